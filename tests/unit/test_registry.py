"""What runs, to its end: a name is busy until its loose end is stored, and a stop leaves none without."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from hive_subagent_daemon import clock, endings, registry
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.values import Exited, Signalled
from tests.unit import support_streams as streams
from tests.unit.support_turns import HeldLook, Parts, open_descriptors, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Use the parts on a fresh folder, with short pauses."""
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(endings, "STORE_RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(registry, "STOP_SOFT_SECONDS", 0.1)
    monkeypatch.setattr(registry, "STOP_HARD_SECONDS", 1.0)
    return Parts(tmp_path, limits=Limits(max_running=3, exit_grace_seconds=0.05))


async def test_a_turn_ends_with_its_process_and_leaves_one_loose_end(parts: Parts) -> None:
    """Then the name is idle, and of the turn only loose end and memory are left."""
    descriptors = open_descriptors()
    async with parts.running():
        turn = await parts.play()
        assert parts.registry.running == {}
        assert [path.stem for path in (parts.state / "loose-ends").iterdir()] == [turn]
        assert list((parts.state / "turns").iterdir()) == []
        assert parts.launcher.children[-1].emptied
        status = await parts.status_of()
    assert (status["state"], status["last_turn"]["text"]) == ("idle", "done")
    assert parts.records.subagents() == [parts.known["alpha"]]
    assert open_descriptors() == descriptors


async def test_a_running_name_is_refused_and_the_refusal_tells_its_ages(parts: Parts) -> None:
    """So that the parent can decide between waiting and interrupting."""
    async with parts.running():
        await parts.start()
        with pytest.raises(RefusedError, match=r"is running for .* its last output is .* old") as refused:
            await parts.start()
        assert "'alpha'" in str(refused.value)


async def test_the_limit_of_running_turns_is_named_with_what_runs(parts: Parts) -> None:
    """Decision 17; a turn that is being spawned counts."""
    async with parts.running():
        parts.launcher.go_on = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(parts.start, name)
            await until(lambda: len(parts.launcher.specs) == 3)
            with pytest.raises(RefusedError, match=r"max_running is 3 .*\(a, b, c\)"):
                await parts.start("d")
            parts.launcher.go_on.set()
        with pytest.raises(RefusedError, match="max_running"):
            await parts.start("d")


async def test_an_end_is_retried_until_it_is_stored_and_the_name_stays_busy_meanwhile(parts: Parts) -> None:
    """A full disk delays the loose end, it does not lose it (case E4)."""
    async with parts.running():
        turn = (await parts.start())["turn"]
        parts.storage.broken = "loose-ends"
        parts.launcher.children[-1].succeed()
        await until(lambda: parts.registry.unstored, what="a failed attempt")
        assert (await parts.status_of())["state"] == "running"
        with pytest.raises(RefusedError, match="is running"):
            await parts.resume()
        [warning] = (await parts.subagents.status(None))["warnings"]
        assert "alpha cannot be stored yet" in warning
        assert "No space left" in warning
        parts.heal()
        assert (await parts.ended(turn))["text"] == "done"
        await until(lambda: not parts.registry.running)
        assert (await parts.subagents.status(None))["warnings"] == []
        await parts.resume()


@pytest.mark.parametrize("broken", ["names", "loose-ends"])
async def test_an_end_that_is_stored_in_part_is_completed(parts: Parts, broken: str) -> None:
    """Whichever write fails first, in the end all of it is there once."""
    async with parts.running():
        turn = (await parts.start())["turn"]
        parts.storage.broken = broken
        parts.launcher.children[-1].succeed()
        await until(lambda: parts.registry.unstored)
        parts.heal()
        await parts.ended(turn)
        await until(lambda: not parts.registry.running)
    assert len(list((parts.state / "loose-ends").iterdir())) == 1
    assert [one.last_turn.turn for one in parts.records.subagents()] == [turn]
    assert list((parts.state / "turns").iterdir()) == []


async def test_a_stop_asks_all_at_once_and_each_turn_has_its_loose_end(parts: Parts) -> None:
    """SIGINT, and killed, `daemon stopped`."""
    async with parts.running():
        turns = [(await parts.start(name))["turn"] for name in ("a", "b", "c")]
        await parts.registry.stop()
        assert [child.signals for child in parts.launcher.children] == [[signal.SIGINT]] * 3
        ends = [await parts.ended(turn) for turn in turns]
        assert {(end["outcome"], end["signal"], end["cause"]) for end in ends} == {
            ("killed", "SIGINT", "daemon stopped")
        }
        assert parts.registry.running == {}
        with pytest.raises(RefusedError, match="is stopping"):
            await parts.start("d")


async def test_a_stop_kills_what_does_not_listen(parts: Parts) -> None:
    """Everything of the turn, and says by which signal."""
    parts.launcher.stubborn = True
    async with parts.running():
        turn = (await parts.start())["turn"]
        await parts.registry.stop()
        end = await parts.ended(turn)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "daemon stopped")


async def test_a_stop_waits_for_a_turn_that_is_being_spawned_and_stops_it_too(parts: Parts) -> None:
    """No process is left behind by a start that came just before."""
    parts.launcher.go_on = anyio.Event()
    async with parts.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(parts.start)
        await until(lambda: parts.launcher.specs)
        tasks.start_soon(parts.registry.stop)
        await anyio.wait_all_tasks_blocked()
        parts.launcher.go_on.set()
        await until(lambda: parts.launcher.children and parts.launcher.children[0].gone.is_set())
    assert parts.launcher.children[0].signals == [signal.SIGINT]


async def test_a_process_that_stays_after_its_result_is_ended_and_the_result_counts(parts: Parts) -> None:
    """First asked, then everything of it is killed."""
    parts.launcher.stubborn = True
    async with parts.running():
        turn = (await parts.start())["turn"]
        child = parts.launcher.children[-1]
        child.says(streams.init(), streams.result("made it"))
        end = await parts.ended(turn)
    assert child.signals == [signal.SIGTERM]
    assert (end["outcome"], end["text"]) == ("completed", "made it")


async def test_a_death_from_outside_is_killed_by_nobody_known(parts: Parts) -> None:
    """Decision 3."""
    async with parts.running():
        turn = (await parts.start())["turn"]
        parts.launcher.children[-1].end(Signalled(signal.SIGKILL))
        end = await parts.ended(turn)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "unknown")


async def test_a_turn_may_end_while_another_ones_output_is_read(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are closed by then: looking at its age must not fail, or all turns would be unattended."""
    async with parts.running():
        quick, slow = [(await parts.start(name))["turn"] for name in ("quick", "slow")]
        held = HeldLook(parts.registry.running["slow"].output, monkeypatch)
        child = parts.launcher.children[0]
        child.says(streams.init(), streams.result("quick"))
        await until(held.reached.is_set)
        child.end(Exited(0))
        await parts.ended(quick)
        held.go_on.set()
        parts.launcher.children[1].succeed("slow")
        assert (await parts.ended(slow))["text"] == "slow"


async def test_names_that_were_idle_for_long_are_forgotten_with_their_instructions(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those that run, nor those that ended lately; claude's sessions are never touched."""
    earlier = parts.earlier_session("gone")
    async with parts.running():
        monkeypatch.setattr(clock, "now", lambda: clock.from_text("2026-01-31T12:00:00.000Z"))
        await parts.play("gone")
        await parts.play("busy")
        monkeypatch.undo()
        await parts.play("fresh")
        await parts.resume("busy")
        assert await parts.registry.forget_idle(days=90) == 1
        assert sorted(parts.known) == ["busy", "fresh"]
        assert (await parts.status_of("gone"))["state"] == "unknown"
    assert {path.name.partition(".")[0] for path in (parts.state / "prompts").iterdir()} == {"busy", "fresh"}
    assert earlier.with_name(f"{earlier.name}.archived").exists()


async def test_the_roots_are_those_of_the_running_turns(parts: Parts) -> None:
    """By them a caller inside a turn is recognised."""
    async with parts.running():
        answer: dict[str, Any] = await parts.start()
        [root] = parts.registry.roots()
        assert (root.turn, root.session_id, root.pid) == (
            answer["turn"],
            answer["session_id"],
            answer["pid"],
        )
        parts.launcher.children[-1].succeed()
        await parts.ended(answer["turn"])
        await until(lambda: not parts.registry.running)
        assert parts.registry.roots() == []
