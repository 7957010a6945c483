"""Waiting for turns: the first end answers, so do a time-out and a stop; nothing else changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon.errors import RefusedError
from tests.unit.support_turns import Json, Parts, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts on a fresh folder."""
    return Parts(tmp_path)


async def answer_while(
    parts: Parts, act: Callable[[], object], *, names: list[str] | None = None, timeout_seconds: float = 240
) -> Json:
    """Wait for subagents, act once the call waits, and return its answer."""
    answers: list[Json] = []

    async def wait() -> None:
        """Keep the answer."""
        answers.append(await parts.subagents.wait(names=names, timeout_seconds=timeout_seconds))

    async with anyio.create_task_group() as calls:
        calls.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not answers, "it did not wait"
        act()
    return answers[0]


async def test_the_first_end_answers_and_the_others_run_on(parts: Parts) -> None:
    async with parts.running():
        for name in ("a", "b"):
            await parts.start(name)
        answer = await answer_while(parts, parts.launcher.children[1].succeed)
        assert (answer["ended"], answer["timed_out"], answer["more"]) == (["b"], False, 0)
        assert [(one["name"], one["state"]) for one in answer["subagents"]] == [
            ("b", "idle"),
            ("a", "running"),
        ]


async def test_only_the_named_ones_are_waited_for(parts: Parts) -> None:
    async with parts.running():
        for name in ("a", "b"):
            await parts.start(name)
        parts.launcher.children[1].succeed()
        await until(lambda: "b" not in parts.registry.running)
        answer = await answer_while(parts, parts.launcher.children[0].succeed, names=["a", "a"])
        assert answer["ended"] == ["a"]
        assert [one["name"] for one in answer["subagents"]] == ["a"]


async def test_one_that_has_ended_already_answers_at_once(parts: Parts) -> None:
    async with parts.running():
        await parts.play("b")
        await parts.start("a")
        answer = await parts.subagents.wait(names=["a", "b"], timeout_seconds=240)
        assert (answer["ended"], answer["timed_out"]) == (["b"], False)


async def test_the_time_out_answers_with_the_states(parts: Parts) -> None:
    async with parts.running():
        await parts.start("a")
        answer = await parts.subagents.wait(names=None, timeout_seconds=0)
        assert (answer["ended"], answer["timed_out"]) == ([], True)
        assert answer["subagents"][0]["state"] == "running"


async def test_with_nothing_running_there_is_nothing_to_wait_for(parts: Parts) -> None:
    async with parts.running():
        nothing = {"ended": [], "timed_out": False, "subagents": [], "more": 0}
        assert await parts.subagents.wait(names=None, timeout_seconds=240) == nothing


async def test_a_name_of_which_nothing_is_known_is_refused(parts: Parts) -> None:
    async with parts.running():
        await parts.start("a")
        with pytest.raises(RefusedError, match="no turn of 'b', 'c' is on record"):
            await parts.subagents.wait(names=["a", "b", "c"], timeout_seconds=240)


async def test_a_stop_ends_the_waiting_with_a_refusal(parts: Parts) -> None:
    async with parts.running():
        await parts.start("a")
        with pytest.RaisesGroup(pytest.RaisesExc(RefusedError, match="is stopping")):
            await answer_while(parts, parts.subagents.waits.close)
        with pytest.raises(RefusedError, match="is stopping"):
            await parts.subagents.wait(names=None, timeout_seconds=240)


async def test_a_caller_that_hangs_up_is_forgotten(parts: Parts) -> None:
    async with parts.running():
        await parts.start("a")
        with anyio.move_on_after(0.05):
            await parts.subagents.wait(names=None, timeout_seconds=240)
        answer = await answer_while(parts, parts.launcher.children[0].succeed)
        assert answer["ended"] == ["a"]
