"""What an earlier daemon left in scopes: memory that ran out is still told, and no unit is left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.cgroups import OomCounters
from tests.unit import support_streams as streams
from tests.unit.support_children import FakeChild
from tests.unit.support_records import loose_end
from tests.unit.support_turns import Json, Parts
from tests.unit.test_recovery import PID, SUCCESS, TURN, leave, record

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.records import TurnRecord

LIMIT, PEAK = 64 * 1024**2, 65 * 1024**2
SCOPE = f"unit-{TURN}.scope"
CGROUP = f"/unit-{TURN}.slice"


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts on a fresh folder, with scopes."""
    made = Parts(tmp_path)
    made.launcher.scopes = True
    return made


def in_scope(parts: Parts) -> TurnRecord:
    """Return the record of a turn that ran in a scope with a memory limit."""
    return replace(record(parts), scope=SCOPE, cgroup=CGROUP, memory_limit_bytes=LIMIT)


def left(parts: Parts, *, alive: bool = False, counters: OomCounters | None = None) -> FakeChild:
    """Leave the slice of the turn, its claude dead or alive; it counted this."""
    child = parts.launcher.left[TURN] = FakeChild(PID, foreign=True)
    child.scope, child.counters = SCOPE, counters
    if not alive:
        child.end()
    return child


async def settle(parts: Parts) -> Json:
    """Settle and return the only loose end."""
    await parts.recovery().settle()
    assert list((parts.state / "turns").iterdir()) == []
    [end] = (await parts.subagents.get_loose_ends(name=None, ids=None, limit=9))["loose_ends"]
    return dict(end)


async def test_memory_that_ran_out_while_no_daemon_ran_is_told_by_the_counters_that_are_left(
    parts: Parts,
) -> None:
    leave(parts, in_scope(parts), stdout=streams.lines(streams.init(), streams.assistant("so far")))
    child = left(parts, counters=OomCounters(1, PEAK))
    end = await settle(parts)
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "oom", "SIGKILL")
    assert end["oom"] == {"kills": 1, "peak_bytes": PEAK, "limit_bytes": LIMIT}
    assert end["text"] == "so far"
    assert child.signals == []
    assert (child.oom_asked, child.released) == ([False], 1)
    [root] = parts.launcher.looked_for
    assert (root.scope, root.cgroup) == (SCOPE, CGROUP)


async def test_a_turn_that_had_its_result_is_completed_though_memory_had_run_out(parts: Parts) -> None:
    leave(parts, in_scope(parts), stdout=SUCCESS)
    left(parts, counters=OomCounters(2, PEAK))
    end = await settle(parts)
    assert (end["outcome"], end["oom"]["kills"]) == ("completed", 2)
    assert any("killed 2 processes" in warning for warning in end["warnings"])


@pytest.mark.parametrize(("outlived", "cause"), [(0, "oom"), (1, "oom"), (2, "unknown")])
async def test_what_claude_had_outlived_when_its_daemon_died_does_not_explain_its_end(
    parts: Parts, outlived: int, cause: str
) -> None:
    leave(parts, replace(in_scope(parts), oom_outlived=outlived), stdout=streams.lines(streams.init()))
    left(parts, counters=OomCounters(2, PEAK))
    end = await settle(parts)
    assert end["outcome"] == ("killed" if cause == "oom" else "lost")
    assert (end["cause"], end["oom"]["kills"]) == (cause, 2)


@pytest.mark.parametrize("counters", [None, OomCounters(0, PEAK)], ids=["not-counted", "none"])
async def test_a_turn_of_which_no_counter_tells_is_lost(parts: Parts, counters: OomCounters | None) -> None:
    leave(parts, in_scope(parts))
    child = left(parts, counters=counters)
    end = await settle(parts)
    assert (end["outcome"], end["cause"], end["oom"]) == ("lost", "unknown", None)
    assert child.released == 1


async def test_a_claude_that_lives_is_stopped_by_us_whatever_was_killed_before(parts: Parts) -> None:
    leave(parts, in_scope(parts), stdout=streams.lines(streams.init()))
    child = left(parts, alive=True, counters=OomCounters(1, PEAK))
    end = await settle(parts)
    assert (end["outcome"], end["cause"], end["oom"]["kills"]) == ("killed", "daemon stopped", 1)
    assert (child.emptied, child.released) == (1, 1)


async def test_the_counters_are_read_while_they_are_there_and_the_units_go_before_the_folder(
    parts: Parts,
) -> None:
    """With the loose end on the disk: a crash at any instant leaves a trace of what is to be stopped."""
    seen: list[tuple[bool, bool, list[bool]]] = []
    files = leave(parts, in_scope(parts))
    child = left(parts, counters=OomCounters(1, PEAK))

    def look() -> None:
        """Take note of what there is."""
        stored = (parts.state / "loose-ends" / f"{TURN}.json").exists()
        seen.append((stored, files.folder.exists(), list(child.oom_asked)))

    child.on_release = look
    await settle(parts)
    assert seen == [(True, True, [False])]


@pytest.mark.parametrize("alive", [False, True])
async def test_of_a_turn_whose_loose_end_is_stored_the_units_still_go(parts: Parts, *, alive: bool) -> None:
    """The daemon died between storing and stopping."""
    files = leave(parts, in_scope(parts))
    parts.records.store_loose_end(loose_end(TURN, name="alpha"))
    parts = Parts(parts.folder)
    child = left(parts, alive=alive, counters=OomCounters(1, PEAK))
    folders: list[bool] = []
    child.on_release = lambda: folders.append(files.folder.exists())
    end = await settle(parts)
    assert end["outcome"] == "completed"
    assert (child.emptied, child.released, folders) == (1, 1, [True])
    assert child.gone.is_set()


async def test_of_a_turn_without_a_record_the_scope_is_found_by_its_name(parts: Parts) -> None:
    """It follows from the turn."""
    files = leave(parts, in_scope(parts))
    (files.folder / "record.json").write_text("{")
    child = left(parts)
    await settle(parts)
    assert [root.scope for root in parts.launcher.looked_for] == [SCOPE]
    assert child.released == 1


async def test_an_end_that_cannot_be_stored_keeps_the_units_for_the_next_start(parts: Parts) -> None:
    leave(parts, in_scope(parts))
    child = left(parts, counters=OomCounters(1, PEAK))
    parts.storage.broken = "loose-ends"
    with pytest.raises(OSError, match="No space left"):
        await parts.recovery().settle()
    assert child.released == 0
    parts.heal()
    assert (await settle(parts))["cause"] == "oom"
