"""Running turns that have scopes: memory that ran out, a claude that left, and units that go at the end."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import endings, registry, turns
from hive_subagent_daemon.cgroups import OomCounters
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.values import Exited, Signalled
from tests.unit import support_streams as streams
from tests.unit.support_turns import HeldLook, Json, Parts, until

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.turns import Turn
    from tests.unit.support_children import FakeChild

LIMIT, PEAK = 64 * 1024**2, 65 * 1024**2
FIGURES = {"peak_bytes": PEAK, "limit_bytes": LIMIT}
KILLED = Signalled(signal.SIGKILL)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Use the parts on a fresh folder, with scopes, a memory limit and short pauses."""
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(endings, "STORE_RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(registry, "STOP_SOFT_SECONDS", 0.1)
    monkeypatch.setattr(registry, "STOP_HARD_SECONDS", 0.5)
    made = Parts(tmp_path, limits=Limits(max_running=3))
    made.launcher.scopes = True
    made.launcher.limit = LIMIT
    return made


def running(parts: Parts) -> tuple[Turn, FakeChild]:
    """Return the running turn and its child."""
    return parts.registry.running["alpha"], parts.launcher.children[-1]


# Memory that ran out


async def test_a_claude_that_the_kernel_killed_is_told_with_peak_and_limit(parts: Parts) -> None:
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        child.counters = OomCounters(1, PEAK)
        child.end(KILLED)
        end = await parts.ended(turn)
        status = await parts.status_of()
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "oom", "SIGKILL")
    assert end["oom"] == {"kills": 1, **FIGURES}
    assert end["title"] == "alpha was killed mid-turn by SIGKILL (oom)"
    assert (status["state"], status["last_turn"]["cause"]) == ("killed", "oom")
    assert child.oom_asked == [True]


async def test_a_process_that_the_kernel_killed_is_a_warning_when_claude_went_on(parts: Parts) -> None:
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        child.counters = OomCounters(1, PEAK)
        child.succeed("done all the same")
        end = await parts.ended(turn)
    assert (end["outcome"], end["cause"], end["text"]) == ("completed", None, "done all the same")
    assert end["oom"] == {"kills": 1, **FIGURES}
    [warning] = end["warnings"]
    assert "for lack of memory (peak 65 MiB, limit 64 MiB)" in warning
    assert child.oom_asked == [False]


async def test_a_kill_that_nobody_counted_is_no_oom(parts: Parts) -> None:
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        child.counters = OomCounters(0, PEAK)
        child.end(KILLED)
        end = await parts.ended(turn)
    assert (end["outcome"], end["cause"], end["oom"]) == ("killed", "unknown", None)


async def test_an_outside_kill_long_after_one_of_the_kernel_is_not_taken_for_it(parts: Parts) -> None:
    """The counters say only how many there were; the looks say that claude had outlived them."""
    async with parts.running():
        turn_id: str = (await parts.start())["turn"]
        turn, child = running(parts)
        child.counters = OomCounters(1, PEAK)
        await until(lambda: turn.oom_kills.outlived == 1)
        child.end(KILLED)
        end = await parts.ended(turn_id)
    assert (end["outcome"], end["cause"]) == ("killed", "unknown")
    assert end["oom"] == {"kills": 1, **FIGURES}


async def test_a_kill_counted_in_the_look_before_the_end_may_have_been_that_of_claude(parts: Parts) -> None:
    """The kernel counts it before its victim is gone."""
    async with parts.running():
        turn_id: str = (await parts.start())["turn"]
        turn, child = running(parts)
        turn.oom_kills.see(1)
        child.counters = OomCounters(1, PEAK)
        child.end(KILLED)
        assert (await parts.ended(turn_id))["cause"] == "oom"


async def test_a_look_at_a_claude_that_has_just_died_proves_nothing(parts: Parts) -> None:
    async with parts.running():
        await parts.start()
        turn, child = running(parts)
        child.counters = OomCounters(2, PEAK)
        child.gone.set()
        turn.look()
        turn.look()
        assert turn.oom_kills.outlived == 0
        child.exit = KILLED


async def test_a_turn_that_systemd_ended_after_a_kill_is_oom_too(parts: Parts) -> None:
    """OOMPolicy=stop: claude gets SIGTERM and exits with 143."""
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        child.counters = OomCounters(1, PEAK, stops=True)
        child.end(Exited(143))
        end = await parts.ended(turn)
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "oom", "SIGTERM")


async def test_what_systemd_oomd_did_is_said_to_be_its_deed(parts: Parts) -> None:
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        child.counters = OomCounters(1, PEAK, by_oomd=True)
        child.end(KILLED)
        end = await parts.ended(turn)
    assert (end["outcome"], end["cause"]) == ("killed", "oom")
    assert "systemd-oomd" in end["error"]


async def test_our_own_kill_is_not_looked_for_with_systemd_oomd(parts: Parts) -> None:
    """It would wait for a word that does not come."""
    parts.launcher.stubborn = True
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        await parts.registry.stop()
        assert (await parts.ended(turn))["cause"] == "daemon stopped"
    assert parts.launcher.children[-1].oom_asked == [False]


async def test_the_limit_that_is_told_is_the_last_that_was_read_while_claude_lived(parts: Parts) -> None:
    """As after `systemctl set-property`; when claude is gone the scope and its limit can be gone too."""
    async with parts.running():
        turn_id: str = (await parts.start())["turn"]
        turn, child = running(parts)
        child.limit = 2 * LIMIT
        await until(lambda: turn.memory_limit_bytes == 2 * LIMIT)
        child.counters = OomCounters(1, PEAK)
        child.gone.set()
        child.limit = None
        turn.look()
        child.exit = KILLED
        end = await parts.ended(turn_id)
    assert end["oom"] == {"kills": 1, "peak_bytes": PEAK, "limit_bytes": 2 * LIMIT}


async def test_what_claude_has_outlived_is_in_its_record_for_the_next_daemon(parts: Parts) -> None:
    async with parts.running():
        await parts.start()
        _, child = running(parts)
        [(_, _, before)] = parts.records.turns()
        child.counters = OomCounters(3, PEAK)

        def stored() -> bool:
            [(_, _, record)] = parts.records.turns()
            assert record is not None
            assert before is not None
            return record == replace(before, oom_outlived=3)

        await until(stored)


async def test_that_the_record_cannot_be_brought_up_to_date_is_said_and_the_turn_goes_on(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        parts.storage.broken = "turns"
        child.counters = OomCounters(1, PEAK)
        await until(lambda: "was not brought up to date" in caplog.text)
        parts.heal()
        child.succeed()
        assert (await parts.ended(turn))["outcome"] == "completed"


# What running turns show


async def test_a_scope_and_the_memory_of_a_turn_are_shown(parts: Parts) -> None:
    async with parts.running():
        answer = await parts.start()
        _, child = running(parts)
        child.memory = 4096
        status = await parts.status_of()
        [root] = parts.registry.roots()
    assert answer["scope"] == f"unit-{answer['turn']}.scope" == root.scope
    assert (status["memory_bytes"], status["memory_limit_bytes"]) == (4096, LIMIT)


async def test_the_limit_that_is_shown_is_the_one_that_holds_now(parts: Parts) -> None:
    """Read back from the kernel: somebody may have changed it (systemctl set-property)."""
    async with parts.running():
        await parts.start()
        _, child = running(parts)
        child.limit = None
        assert (await parts.status_of())["memory_limit_bytes"] is None


async def warnings(parts: Parts) -> list[str]:
    """Return the warnings of `status`."""
    found: Json = await parts.subagents.status(None)
    return list(found["warnings"])


async def test_a_claude_that_left_its_scope_is_told_until_its_end_and_then_with_it(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(turns, "SETTLED_SECONDS", 0.0)
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        assert await warnings(parts) == []
        child.strays = True
        await until(lambda: parts.registry.strayed)
        [warning] = await warnings(parts)
        assert f"alpha has left its scope unit-{turn}.scope" in warning
        child.strays = False  # what has happened is not taken back
        await anyio.sleep(0.05)
        assert await warnings(parts) == [warning]
        assert caplog.text.count("has left its scope") == 1
        child.succeed()
        end = await parts.ended(turn)
    assert end["outcome"] == "completed"
    assert any("had left its scope" in each for each in end["warnings"])


async def test_a_turn_that_ends_while_it_is_looked_at_leaves_no_warning_behind(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look comes back after the end; nothing would take its warning away again."""
    monkeypatch.setattr(turns, "SETTLED_SECONDS", 0.0)
    async with parts.running():
        turn_id: str = (await parts.start())["turn"]
        turn, child = running(parts)
        held = HeldLook(turn.output, monkeypatch)
        await until(held.reached.is_set)
        child.strays = True
        child.succeed()
        await parts.ended(turn_id)
        await until(lambda: not parts.registry.running)
        looked: list[float] = []
        monkeypatch.setattr(
            turn, "notice_activity", lambda stall_after_seconds: looked.append(stall_after_seconds)
        )
        held.go_on.set()
        await until(lambda: looked)
        assert turn.strayed
        assert await warnings(parts) == []


async def test_a_claude_is_not_looked_for_in_its_scope_before_it_has_settled(parts: Parts) -> None:
    async with parts.running():
        await parts.start()
        turn, child = running(parts)
        child.strays = True
        turn.look()
        assert not turn.strayed
        turn.started -= turns.SETTLED_SECONDS + 1
        turn.look()
        assert turn.strayed


async def test_trouble_with_systemd_is_told_and_what_it_refuses_too(parts: Parts) -> None:
    """Nothing is left of the turn: no record, no loose end, and the archive is undone."""
    transcript = parts.earlier_session()
    parts.launcher.in_trouble = "no systemd manager answers: the bus is gone"
    parts.launcher.fails = "place"
    before = parts.files()
    async with parts.running():
        assert await warnings(parts) == ["no systemd manager answers: the bus is gone."]
        with pytest.raises(RefusedError) as refused:
            await parts.start()
        parts.launcher.in_trouble = None
        assert await warnings(parts) == []
    assert str(refused.value).startswith("the turn got no scope, so claude was not executed: systemd did not")
    assert parts.files() == before
    assert transcript.exists()


# The end of the units


async def test_the_units_go_when_the_loose_end_is_stored_and_before_the_folder_of_the_turn(
    parts: Parts,
) -> None:
    """So that a crash at any instant leaves a trace of what is still to be stopped."""
    seen: list[tuple[bool, bool, list[str]]] = []
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)

        def look() -> None:
            """Take note of what there is."""
            stored = (parts.state / "loose-ends" / f"{turn}.json").exists()
            folder = parts.records.turn_folder(turn, "alpha").exists()
            seen.append((stored, folder, list(parts.registry.running)))

        child.on_release = look
        child.succeed()
        await parts.ended(turn)
    assert seen == [(True, True, ["alpha"])]
    assert (child.emptied, child.oom_asked, child.released) == (1, [False], 1)


async def test_the_units_stay_until_the_loose_end_is_stored(parts: Parts) -> None:
    """Or what their counters tell would be lost with a crash."""
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        parts.storage.broken = "loose-ends"
        child.succeed()
        await until(lambda: parts.registry.unstored)
        assert child.released == 0
        parts.heal()
        await parts.ended(turn)
    assert child.released == 1


async def test_the_units_of_an_end_that_could_never_be_stored_are_left_to_the_next_start(
    parts: Parts,
) -> None:
    async with parts.running():
        await parts.start()
        _, child = running(parts)
        parts.storage.broken = "loose-ends"
        child.end(KILLED)
        await until(lambda: parts.registry.unstored)
        await parts.registry.stop()
    assert child.released == 0
    assert len(list((parts.state / "turns").iterdir())) == 1


async def test_a_folder_that_cannot_be_removed_delays_the_end_and_the_units_go_once(parts: Parts) -> None:
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        parts.storage.removals_fail = True
        child.succeed()
        await until(lambda: parts.registry.unstored)
        assert (await parts.status_of())["state"] == "running"
        assert child.released == 1
        parts.heal()
        await parts.ended(turn)
        await until(lambda: not parts.registry.running)
    assert child.released == 1
    assert list((parts.state / "turns").iterdir()) == []


async def test_a_process_that_stays_after_its_result_is_not_taken_for_killed_by_memory(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its SIGTERM and SIGKILL are ours, and its result counts."""
    monkeypatch.setattr(turns, "TERMINATE_SECONDS", 0.01)
    parts.launcher.stubborn = True
    parts.registry.limits = Limits(max_running=3, exit_grace_seconds=0.05)
    async with parts.running():
        turn: str = (await parts.start())["turn"]
        _, child = running(parts)
        child.counters = OomCounters(1, PEAK)
        child.says(streams.init(), streams.result("made it"))
        end = await parts.ended(turn)
    assert (end["outcome"], end["text"], end["oom"]["kills"]) == ("completed", "made it", 1)
