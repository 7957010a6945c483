"""`force` over several levels: nothing of it is left, whatever comes or fails while it is done."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import anyio
import pytest
from typing_extensions import override

from hive_subagent_daemon import endings, registry
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.nesting import NestedSubagents
from hive_subagent_daemon.values import Bounds, Terms
from tests.unit.support_children import FakeChild
from tests.unit.support_turns import Parts, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hive_subagent_daemon.launcher import Leftovers
    from tests.unit.support_turns import Json


class Lacking(FakeChild):
    """A child that cannot be killed as long as the system lacks descriptors."""

    lacks = 0

    @override
    async def empty(self) -> Leftovers:
        if self.lacks and not self.gone.is_set():
            self.lacks -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return await super().empty()


class Asking(FakeChild):
    """A child during whose killing something is asked."""

    ask: Callable[[], Awaitable[None]]

    @override
    async def empty(self) -> Leftovers:
        if not self.gone.is_set():
            await self.ask()
        return await super().empty()


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Use the parts on a fresh folder, with short pauses."""
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(endings, "CONCLUDE_AGAIN_SECONDS", 0.01)
    return Parts(tmp_path, limits=Limits(max_running=9, max_depth=4, exit_grace_seconds=0.05))


def inside(parts: Parts, name: str) -> NestedSubagents:
    """Return the tools as the running turn of this name has them."""
    turn = parts.registry.running[name]
    return NestedSubagents(parts.subagents, parts.registry, parts.inbox, turn=turn)


async def start_inside(parts: Parts, parent: str, name: str) -> Json:
    """Let a subagent start one of its own."""
    return await inside(parts, parent).start(
        name=name, prompt_file="recipe.md", model=None, trigger=None, dir=None, terms=Terms()
    )


def fail_at_first_kill(parts: Parts, name: str, *, times: int = 1) -> None:
    """Let the next attempts to kill a subagent fail for a lack of descriptors."""
    child = parts.registry.running[name].child
    assert isinstance(child, FakeChild)
    child.__class__ = Lacking
    assert isinstance(child, Lacking)
    child.lacks = times


async def test_what_a_nested_one_is_starting_when_the_force_begins_is_killed_too(parts: Parts) -> None:
    async with parts.running(), anyio.create_task_group() as tasks:
        await parts.start("outer")
        await start_inside(parts, "outer", "inner")
        parts.launcher.go_on = anyio.Event()
        tasks.start_soon(start_inside, parts, "inner", "third")
        await until(lambda: len(parts.launcher.specs) == 3)
        await parts.subagents.interrupt(name="outer", force=True)
        parts.launcher.go_on.set()
        await until(lambda: len(parts.launcher.children) == 3 and not parts.registry.running)
    assert parts.known["third"].last_turn.verdict.cause == "forced interrupt"


async def test_a_nested_one_starts_nothing_while_its_parent_is_being_killed(parts: Parts) -> None:
    async with parts.running():
        await parts.start("outer")
        await start_inside(parts, "outer", "inner")
        within, refused = inside(parts, "inner"), []
        child = parts.registry.running["outer"].child
        assert isinstance(child, FakeChild)
        child.__class__ = Asking
        assert isinstance(child, Asking)

        async def ask() -> None:
            with pytest.raises(RefusedError, match="is being killed") as error:
                await within.continue_turn(name="third", prompt="x", model=None, dir=None, terms=Terms())
            refused.append(error)

        child.ask = ask
        await parts.subagents.interrupt(name="outer", force=True)
        assert refused
        await until(lambda: not parts.registry.running)


async def test_those_of_a_nested_one_that_has_ended_are_killed_and_named(parts: Parts) -> None:
    """The middle of the family is gone: the rest belongs together all the same."""
    async with parts.running():
        await parts.start("outer")
        inner = (await start_inside(parts, "outer", "inner"))["turn"]
        await start_inside(parts, "inner", "third")
        parts.launcher.children[1].succeed()
        await parts.ended(inner)
        await until(lambda: "inner" not in parts.registry.running)
        await parts.subagents.interrupt(name="outer", force=True)
        await until(lambda: not parts.registry.running)
    assert parts.known["third"].last_turn.verdict.cause == "forced interrupt"


async def test_one_that_cannot_be_killed_does_not_keep_the_others_alive(parts: Parts) -> None:
    async with parts.running():
        await parts.start("outer")
        await start_inside(parts, "outer", "inner")
        fail_at_first_kill(parts, "outer")
        with pytest.raises(RefusedError, match="try again"):
            await parts.subagents.interrupt(name="outer", force=True)
        await until(lambda: "inner" not in parts.registry.running)
        await parts.subagents.interrupt(name="outer", force=True)
        await until(lambda: not parts.registry.running)


async def test_a_time_out_without_descriptors_is_tried_again_and_ends_no_daemon(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hive_subagent_daemon.turns.TIME_OUT_SECONDS", 0.01)
    parts.launcher.stubborn = True
    async with parts.running():
        turn = (await parts.start("outer", bounds=Bounds(timeout_seconds=0.05)))["turn"]
        fail_at_first_kill(parts, "outer", times=3)
        assert (await parts.ended(turn))["cause"] == "timeout"
        await until(lambda: not parts.registry.running)


async def test_a_stop_without_descriptors_ends_every_turn_all_the_same(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "STOP_SOFT_SECONDS", 0.05)
    parts.launcher.stubborn = True
    async with parts.running():
        turns = [(await parts.start(name))["turn"] for name in ("a", "b")]
        fail_at_first_kill(parts, "a", times=2)
        await parts.registry.stop()
        assert [(await parts.ended(turn))["cause"] for turn in turns] == ["daemon stopped"] * 2


async def test_a_nested_one_steers_only_its_own(parts: Parts) -> None:
    async with parts.running():
        for name in ("outer", "other"):
            await parts.start(name)
        await start_inside(parts, "outer", "inner")
        with pytest.raises(RefusedError, match="'other' is not a subagent of yours"):
            await inside(parts, "outer").steer(name="other", text="less")
        with pytest.raises(RefusedError, match="'inner' is not steerable"):
            await inside(parts, "outer").steer(name="inner", text="less")
