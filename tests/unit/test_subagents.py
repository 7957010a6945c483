"""The verbs: one turn per name at a time, nobody's hang-up leaves a process alone, answers as contracted."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import subagents
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.errors import RefusedError
from tests.unit import support_streams as streams
from tests.unit.support_turns import HeldLook, Json, Parts, until

if TYPE_CHECKING:
    from pathlib import Path

CALLS = 20


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Use the parts on a fresh folder, with short pauses."""
    monkeypatch.setattr(subagents, "ENDING_BY_ITSELF_SECONDS", 0.2)
    monkeypatch.setattr(subagents, "INTERRUPT_SECONDS", 0.4)
    return Parts(tmp_path, limits=Limits(max_running=64))


@pytest.mark.parametrize("verb", ["start", "resume"])
async def test_of_many_calls_for_one_name_one_runs_and_the_others_are_refused(
    parts: Parts, verb: str
) -> None:
    """Whatever their order: one process, one turn, one loose end."""
    answers: list[object] = []

    async def call() -> None:
        """Keep the answer or the refusal."""
        try:
            answers.append(await getattr(parts, verb)())
        except RefusedError as error:
            answers.append(error)

    async with parts.running():
        await parts.play()
        async with anyio.create_task_group() as calls:
            for _ in range(CALLS):
                calls.start_soon(call)
        refusals = [answer for answer in answers if isinstance(answer, RefusedError)]
        assert len(answers) == CALLS
        assert len(refusals) == CALLS - 1
        assert all("'alpha' is" in str(refusal) for refusal in refusals)
        assert len(parts.launcher.specs) == 2
        parts.launcher.children[-1].succeed("again")
        await until(lambda: not parts.registry.running)
    assert len(list((parts.state / "loose-ends").iterdir())) == 2


async def test_a_caller_that_hangs_up_in_the_middle_of_a_spawn_leaves_no_unattended_process(
    parts: Parts,
) -> None:
    """The spawn goes on to its end, and the turn is followed to its loose end as any other."""
    parts.launcher.go_on = anyio.Event()
    hung_up = anyio.CancelScope()

    async def call() -> None:
        """Start, and hang up at some time."""
        with hung_up:
            await parts.start()

    async with parts.running(), anyio.create_task_group() as calls:
        calls.start_soon(call)
        await until(lambda: parts.launcher.specs)
        hung_up.cancel()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RefusedError, match="is being started"):
            await parts.start()
        parts.launcher.go_on.set()
        await until(lambda: parts.registry.running)
        turn = (await parts.status_of())["turn"]
        parts.launcher.children[-1].succeed()
        assert (await parts.ended(turn))["outcome"] == "completed"
        await parts.play()


async def test_a_caller_that_hangs_up_while_the_exec_fails_leaves_nothing(parts: Parts) -> None:
    """The undo is not cancelled half-way."""
    transcript = parts.earlier_session()
    before = parts.files()
    parts.launcher.go_on = anyio.Event()
    parts.launcher.fails = "exec"

    async def call() -> None:
        """Start, and hang up at some time."""
        with anyio.CancelScope() as hung_up:
            scopes.append(hung_up)
            await parts.start()

    scopes: list[anyio.CancelScope] = []
    refused = pytest.RaisesGroup(RefusedError, allow_unwrapped=True, flatten_subgroups=True)
    async with parts.running():
        with refused:
            async with anyio.create_task_group() as calls:
                calls.start_soon(call)
                await until(lambda: parts.launcher.specs)
                scopes[0].cancel()
                parts.launcher.go_on.set()
        assert transcript.exists()
        assert parts.files() == before
        parts.heal()
        await parts.play()


async def test_a_continue_after_a_cut_off_turn_says_by_what_it_was_cut_off(parts: Parts) -> None:
    """Once: the next confirmed spawn clears it."""
    async with parts.running():
        await parts.start()
        await parts.subagents.interrupt(name="alpha", force=False)
        assert (await parts.status_of())["state"] == "killed"
        answer = await parts.resume()
        assert answer["previous_turn"]["outcome"] == "killed"
        assert answer["previous_turn"]["cause"] == "interrupt"
        parts.launcher.children[-1].succeed()
        await parts.ended(answer["turn"])
        assert "previous_turn" not in await parts.resume()


async def test_a_refused_continue_keeps_the_word_of_the_cut_off_turn(parts: Parts) -> None:
    """Only a confirmed spawn clears it."""
    async with parts.running():
        await parts.start()
        await parts.subagents.interrupt(name="alpha", force=False)
        parts.launcher.fails = "exec"
        with pytest.raises(RefusedError):
            await parts.resume()
        assert (await parts.status_of())["state"] == "killed"
        parts.heal()
        assert (await parts.resume())["previous_turn"]["cause"] == "interrupt"


async def test_an_interrupt_of_what_does_not_run_is_refused(parts: Parts) -> None:
    """There is no queued state to cancel."""
    async with parts.running():
        await parts.play()
        with pytest.raises(RefusedError, match="nothing runs under the name 'alpha'"):
            await parts.subagents.interrupt(name="alpha", force=True)


async def test_a_soft_interrupt_sends_one_signal_and_tells_whether_it_has_ended(parts: Parts) -> None:
    """SIGINT to claude itself; a turn that takes its time is still shutting down."""
    async with parts.running():
        await parts.start()
        answer = await parts.subagents.interrupt(name="alpha", force=False)
        assert (answer["signal"], answer["ended"], answer["outcome"]["cause"]) == (
            "SIGINT",
            True,
            "interrupt",
        )
        parts.launcher.stubborn = True
        await parts.resume()
        answer = await parts.subagents.interrupt(name="alpha", force=False)
        assert (answer["signal"], answer["ended"], answer["outcome"]) == ("SIGINT", False, None)
        assert parts.launcher.children[-1].signals == [signal.SIGINT]
        answer = await parts.subagents.interrupt(name="alpha", force=True)
        assert (answer["signal"], answer["ended"]) == ("SIGKILL", True)
        assert answer["outcome"]["cause"] == "forced interrupt"
        assert answer["stopped_processes"]
        assert answer["remaining_processes"] == []


async def test_a_turn_that_is_just_ending_is_not_signalled(parts: Parts) -> None:
    """Its result is out and counts; a signal now could only harm its session."""
    async with parts.running(), anyio.create_task_group() as calls:
        await parts.start()
        child = parts.launcher.children[-1]
        child.says(streams.init(), streams.result("made it"))

        async def end_soon() -> None:
            """End once the interrupt has seen the result."""
            await until(lambda: parts.registry.running["alpha"].has_result)
            child.end()

        calls.start_soon(end_soon)
        answer = await parts.subagents.interrupt(name="alpha", force=False)
    assert child.signals == []
    assert (answer["signal"], answer["ended"]) == (None, True)
    assert (answer["outcome"]["outcome"], answer["outcome"]["text"]) == ("completed", "made it")


async def test_an_interrupt_may_meet_the_end_of_the_turn(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended without a result while the interrupt looked: no error, and no signal that was not sent."""
    answers: list[Json] = []

    async def interrupt() -> None:
        """Keep the answer."""
        answers.append(await parts.subagents.interrupt(name="alpha", force=False))

    async with parts.running(), anyio.create_task_group() as calls:
        turn = (await parts.start())["turn"]
        held = HeldLook(parts.registry.running["alpha"].output, monkeypatch)
        calls.start_soon(interrupt)
        await until(held.reached.is_set)
        parts.launcher.children[-1].end()
        await parts.ended(turn)
        held.go_on.set()
        await until(lambda: answers)
    assert (answers[0]["signal"], answers[0]["ended"]) == (None, True)
    assert answers[0]["outcome"]["error_class"] == "no result"


async def test_status_shows_the_running_first_then_the_last_ended(parts: Parts) -> None:
    """At most fifty and what a client shows of an answer; the others are counted."""
    async with parts.running():
        for number in range(52):
            await parts.play(f"n{number:02d}")
        await parts.start("zz")
        answer = await parts.subagents.status(None)
    names = [one["name"] for one in answer["subagents"]]
    assert names[:3] == ["zz", "n51", "n50"]
    assert len(names) <= 50
    assert len(names) + answer["more"] == 53
    assert answer["launcher"] == "process group"


async def test_closing_is_explicit_final_and_idempotent(parts: Parts) -> None:
    """Reading closes nothing; what is not known is named."""
    async with parts.running():
        turn = await parts.play()
        for _ in range(2):
            found = await parts.subagents.get_loose_ends(name=None, ids=None, limit=10)
            assert [end["id"] for end in found["loose_ends"]] == [turn]
        for _ in range(2):
            answer = await parts.subagents.close_loose_ends([turn, "unknown", turn])
            assert answer == {"closed": [turn], "unknown": ["unknown"]}
        found = await parts.subagents.get_loose_ends(name=None, ids=None, limit=10)
        assert found == {"loose_ends": [], "remaining": 0}
    again = Parts(parts.folder)
    assert again.inbox.open_count == 0


async def test_a_close_that_the_disk_refuses_is_an_error_and_stays_open(parts: Parts) -> None:
    """Never half closed; what was closed before it is named."""
    async with parts.running():
        turn = await parts.play()
        parts.storage.broken = "loose-ends"
        with pytest.raises(RefusedError, match="could not be closed"):
            await parts.subagents.close_loose_ends([turn])
        assert parts.inbox.open_count == 1
        parts.heal()
        assert (await parts.subagents.close_loose_ends([turn]))["closed"] == [turn]
