"""Messages to running turns are handed over or refused, never lost in silence; turns are stopped so."""

from __future__ import annotations

import json
import logging
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from hive_subagent_daemon import steering, stream_input, turns
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.judge import judge
from hive_subagent_daemon.skim import TAKEN_MESSAGES, EarlierResult
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.values import Cause, Exited, OutcomeKind, SentSignal
from tests.unit.support_evidence import aborted, evidence, result, seen
from tests.unit.support_streams import init
from tests.unit.support_streams import result as result_event
from tests.unit.support_turns import Parts, open_descriptors, until
from tests.unit.test_stream_input import taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hive_subagent_daemon.turns import Turn
    from tests.unit.support_children import FakeChild


class Talk:
    """A steerable turn on a fake child, and what was said to it."""

    def __init__(self, parts: Parts, reader: int) -> None:
        """Take the parts and the end from which the child would read."""
        self.parts = parts
        self.turn: Turn = parts.registry.running["alpha"]
        self.child: FakeChild = parts.launcher.children[-1]
        self._reader = reader
        self._read = b""

    @property
    def heard(self) -> list[dict[str, Any]]:
        """All events that the child could have read so far."""
        with suppress(BlockingIOError):
            while piece := os.read(self._reader, 1 << 20):
                self._read += piece
        whole = self._read[: self._read.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def ids(self) -> list[str]:
        """The ids of the messages among them."""
        return [event["uuid"] for event in self.heard if event["type"] == "user"]

    async def steer(self, text: str = "less") -> dict[str, Any]:
        """Hand over a message."""
        return dict(await self.parts.subagents.steer(name="alpha", text=text))

    async def refused(self, text: str = "less") -> str:
        """Hand over a message that must be refused, and return why."""
        with pytest.raises(RefusedError) as caught:
            await self.steer(text)
        return str(caught.value)

    async def seen(self, *events: dict[str, Any]) -> None:
        """Let claude say something, and the daemon see it."""
        self.child.says(*events)
        await in_thread(self.turn.output.look)


@asynccontextmanager
async def talking(parts: Parts) -> AsyncIterator[Talk]:
    """Run a steerable turn."""
    readers: list[int] = []

    def opened() -> None:
        readers.append(os.open(parts.launcher.specs[-1].stdin, os.O_RDONLY | os.O_NONBLOCK))

    parts.launcher.created = opened
    async with parts.running():
        await parts.start(steerable=True)
        try:
            yield Talk(parts, readers[0])
        finally:
            parts.launcher.children[-1].end()
            await until(lambda: not parts.registry.running)
            os.close(readers[0])


async def test_a_steerable_turn_gets_its_prompt_as_the_first_message(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    async with talking(parts) as talk:
        [first] = talk.heard
        assert first["message"]["content"].startswith("Carry out the instructions")
        argv = parts.launcher.specs[-1].argv
        assert argv[argv.index("--input-format") + 1] == "stream-json"
        assert "--replay-user-messages" in argv
        [(_, _, record)] = parts.records.turns()
        assert record is not None
        assert record.steerable is True
        assert (await parts.status_of())["steerable"] is True


async def test_a_message_is_on_its_way_and_unread_until_claude_shows_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with talking(Parts(tmp_path)) as talk:
        assert (await talk.steer("/leave it"))["unread_messages"] == 1
        assert (await talk.steer("basalt"))["unread_messages"] == 2
        assert [event["message"]["content"] for event in talk.heard[1:]] == [" /leave it", "basalt"]
        await talk.seen(init(), taken(talk.ids[1]))
        assert (await talk.parts.status_of())["unread_messages"] == 1
        assert "basalt" not in caplog.text


async def test_the_id_of_a_message_is_stored_before_claude_can_read_it(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    async with talking(parts) as talk:
        await talk.steer()
        [(_, _, record)] = parts.records.turns()
        assert record is not None
        assert list(record.unread) == talk.ids[1:]


async def test_the_input_ends_with_the_last_result_and_messages_are_refused_from_then_on(
    tmp_path: Path,
) -> None:
    async with talking(Parts(tmp_path)) as talk:
        await talk.seen(init(), taken(talk.ids[0]), result_event())
        await until(lambda: not talk.turn.is_steerable)
        assert "is ending: wait for its loose end" in await talk.refused()
        assert (await talk.parts.status_of())["steerable"] is False


async def test_a_message_that_comes_with_the_result_holds_the_turn_until_it_was_answered(
    tmp_path: Path,
) -> None:
    async with talking(Parts(tmp_path)) as talk:
        await talk.steer()
        first, second = talk.ids
        await talk.seen(init(), taken(first), result_event("one"))
        await anyio.sleep(3 * steering.LOOK_SECONDS)  # nothing may happen
        assert talk.turn.is_steerable
        await talk.seen(init(), taken(second), result_event("two"))
        await until(lambda: not talk.turn.is_steerable)
        talk.child.end()
        end = await talk.parts.ended(talk.turn.record.turn)
        assert (end["outcome"], end["warnings"]) == ("completed", [])
        assert end["text"] == "two\n\nBefore that, in the same turn:\n\none"


async def test_a_claude_that_leaves_a_message_gets_its_grace_after_the_end_of_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path, limits=Limits(exit_grace_seconds=600.0))
    async with talking(parts) as talk:
        await talk.steer()
        await talk.seen(init(), taken(talk.ids[0]), result_event())
        assert not talk.turn.overstays(grace_seconds=0.0)
        talk.turn.end_input(grace_seconds=0.0)
        assert not talk.turn.is_steerable
        monkeypatch.setattr(talk.turn.output, "age_seconds", lambda: 100.0)
        assert not talk.turn.overstays(grace_seconds=60.0)
        await until(lambda: talk.turn.overstays(grace_seconds=0.0))


async def test_a_turn_that_ends_before_it_has_read_a_message_says_so(tmp_path: Path) -> None:
    parts, before = Parts(tmp_path), open_descriptors()
    async with talking(parts) as talk:
        await talk.steer()
        await talk.seen(init(), taken(talk.ids[0]))
        talk.child.end(Exited(1))
        end = await talk.parts.ended(talk.turn.record.turn)
        assert any("A message that was handed to it" in warning for warning in end["warnings"])
    assert open_descriptors() == before


async def test_too_many_unread_messages_and_a_full_pipe_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_input, "MOST_UNREAD", 2)
    monkeypatch.setattr(steering, "HAND_OVER_SECONDS", 0.02)
    async with talking(Parts(tmp_path)) as talk:
        await talk.steer()
        await talk.steer("x" * 2_000_000)
        assert "does not read what is said to 'alpha'" in await talk.refused()
        await until(lambda: len(talk.ids) == 3)
        assert "has not read the last 2 messages" in await talk.refused()


async def test_what_does_not_run_or_listen_is_not_steered(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    async with parts.running():
        with pytest.raises(RefusedError, match="nothing runs under the name 'alpha'"):
            await parts.subagents.steer(name="alpha", text="less")
        await parts.start()
        with pytest.raises(RefusedError, match="is not steerable: interrupt it and continue"):
            await parts.subagents.steer(name="alpha", text="less")
        with pytest.raises(RefusedError, match="more than max_prompt_bytes"):
            await parts.subagents.steer(name="alpha", text="x" * 10_000_001)
        assert (await parts.status_of())["steerable"] is False


async def test_an_interrupt_asks_first_takes_back_what_is_unread_and_leaves_claude_its_time(
    tmp_path: Path,
) -> None:
    async with talking(Parts(tmp_path)) as talk:
        await talk.steer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.turn.interrupt, Cause.INTERRUPT)
            await until(lambda: len(talk.heard) == 4)
            [(_, _, record)] = talk.parts.records.turns()
            assert record is not None
            assert [sent.signal for sent in record.sent] == [signal.SIGINT]
            assert "is ending" in await talk.refused()
            assert talk.turn.steering is not None
            assert not talk.turn.steering.is_open
            asked = [event["request"]["subtype"] for event in talk.heard[2:]]
            assert asked == ["cancel_async_message", "interrupt"]
            talk.child.says(init(), result_event(is_error=True, terminal_reason="aborted_streaming"))
            talk.child.end(Exited(1))
        end = await talk.parts.ended(talk.turn.record.turn)
        assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt")
        assert talk.child.signals == []


async def test_the_first_message_counts_as_read_however_many_came_after_it(tmp_path: Path) -> None:
    """Else the end of a turn with many messages would be waited for."""
    async with talking(Parts(tmp_path)) as talk:
        await talk.seen(init(), taken(talk.ids[0]))
        talk.turn.end_input(grace_seconds=600.0)
        await talk.seen(*(taken(str(number)) for number in range(TAKEN_MESSAGES)), result_event())
        await until(lambda: not talk.turn.is_steerable)


@pytest.mark.parametrize("force", [False, True])
async def test_a_caller_that_hangs_up_leaves_no_turn_half_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, force: bool
) -> None:
    """A claude that does not react to the request gets the signal all the same, and is not only said to."""
    monkeypatch.setattr(turns, "REQUEST_SECONDS", 0.1)
    parts = Parts(tmp_path)
    hung_up = anyio.CancelScope()

    async def call() -> None:
        with hung_up:
            await parts.subagents.interrupt(name="alpha", force=force)

    async with talking(parts) as talk:
        keep = talk.turn.keep
        assert keep is not None

        async def kept(turn: Turn) -> None:
            hung_up.cancel()
            await keep(turn)

        talk.turn.keep = kept
        await call()
        assert hung_up.cancelled_caught
        assert talk.turn.sent
        assert (talk.child.emptied > 0) if force else (talk.child.signals == [signal.SIGINT])


async def test_a_claude_that_does_not_react_to_the_request_gets_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "REQUEST_SECONDS", 0.02)
    async with talking(Parts(tmp_path)) as talk:
        answer = await talk.parts.subagents.interrupt(name="alpha", force=False)
        assert (answer["signal"], answer["ended"]) == ("SIGINT", True)
        assert talk.child.signals == [signal.SIGINT]


async def test_the_stop_of_the_daemon_asks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "REQUEST_SECONDS", 0.02)
    async with talking(Parts(tmp_path)) as talk:
        await talk.parts.registry.stop()
        assert [event["type"] for event in talk.heard] == ["user", "control_request"]
        end = await talk.parts.ended(talk.turn.record.turn)
        assert (end["cause"], end["signal"]) == ("daemon stopped", "SIGINT")


async def test_a_refused_start_leaves_no_fifo_and_no_descriptor(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    parts.launcher.fails = "exec"
    before = open_descriptors()
    async with parts.running():
        with pytest.raises(RefusedError):
            await parts.start(steerable=True)
    assert list((parts.state / "turns").iterdir()) == []
    assert open_descriptors() == before


def test_a_request_of_ours_whose_result_is_an_aborted_one_is_a_kill_of_ours() -> None:
    sent = (SentSignal(signal.SIGINT, Cause.INTERRUPT, 10),)
    verdict = judge(evidence(Exited(1), aborted(), sent=sent, steerable=True))
    assert (verdict.kind, verdict.signal, verdict.cause) == (OutcomeKind.KILLED, "SIGINT", Cause.INTERRUPT)


def test_only_a_steered_turn_tells_what_its_earlier_rounds_have_said() -> None:
    earlier = (EarlierResult(result("one"), 10, 3, 20), EarlierResult(result(""), 30, 0, 40))
    known = seen(result("two"), earlier=earlier)
    assert judge(evidence(Exited(0), of=known)).text == "two"
    steered = judge(evidence(Exited(0), of=known, steerable=True))
    assert steered.text == "two\n\nBefore that, in the same turn:\n\none"
