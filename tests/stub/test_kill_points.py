"""The daemon is killed at every instant of a turn's life and loses nothing (cases E4 and D2, decision 6).

`kill_story` says what happens in the story and what must hold after it; `killing_daemon` what an instant is.
The usual run takes a seeded tenth of the instants, `--long` all of them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.storage import Storage
from tests.stub.crashes import ALWAYS, AT_THE_END, SEED, Crashes, sample
from tests.stub.daemon_forks import Forks
from tests.stub.kill_load import PARENTS, Parent, check_after, kill_under_load
from tests.stub.kill_sinks import COUNT as SINKS
from tests.stub.kill_story import stored_ends
from tests.stub.killing_daemon import DURABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import TellFigure

USUAL_KILLS = 20
LONG_KILLS = 200
USUAL_LIMIT_SECONDS = 180
LONG_LIMIT_SECONDS = 1200
# A first crash that leaves a turn in each condition that a recovery meets.
CONDITIONS = {
    "prepared, its earlier session archived": "before launch #2",
    "recorded, but not released": "recorded #2",
    "ended without being stored": "before write loose-ends #1",
    "stored, but not forgotten": "after write loose-ends #2",
    "alive": "after launch #3",
}
USUAL_SECOND_CRASHES = (
    ("before launch #2", "after rename transcript #1"),
    ("recorded #2", "before write loose-ends #1"),
    ("before write loose-ends #1", "after write loose-ends #1"),
    ("after launch #3", "before write loose-ends #1"),
    ("after launch #3", "before write names #1"),
)
# What may be lost by a crash: the files of a turn, and what a start makes anew.
UNGUARDED = {"turns/stdin", "turns/stdout", "turns/stderr", "lock"}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return what forks daemons."""
    with Forks() as program:
        yield program


@pytest.fixture
def crashes(tmp_path: Path, forks: Forks) -> Crashes:
    """Return a gatherer of crashes for one test."""
    return Crashes(tmp_path, forks)


def test_every_durable_operation_is_an_instant() -> None:
    """A new method of Storage has to be watched as well, or to be known as one that changes nothing."""
    public = {name for name, value in vars(Storage).items() if callable(value) and not name.startswith("_")}
    assert public == {*DURABLE, "free_bytes"}


def test_what_must_survive_is_changed_by_durable_operations_only(crashes: Crashes) -> None:
    """Outside of them only the files of a turn are written, and folders made."""
    depth = 0
    outside = set()
    for instant in crashes.trace():
        moment, _, what = instant.rpartition(" #")[0].partition(" ")
        if what.partition(" ")[0] in DURABLE:
            depth += 1 if moment == "before" else -1
        elif moment == "inside" and depth == 0 and not what.startswith("os.mkdir"):
            outside.add(what.removeprefix("open "))
    assert outside == UNGUARDED


def test_what_a_sink_has_taken_is_noted_by_a_durable_operation(crashes: Crashes) -> None:
    """So it counts by itself: once for each of the three loose ends and each sink."""
    kinds = Counter(instant.rpartition(" #")[0] for instant in crashes.trace())
    noted = ("before note", "before write loose-ends, noting", "inside os.rename loose-ends, noting")
    assert [kinds[kind] for kind in noted] == [3 * SINKS] * 3
    assert kinds["before write loose-ends"] == 3 + 1  # stored, and one of them closed


@pytest.mark.timeout(USUAL_LIMIT_SECONDS)
def test_a_kill_at_a_tenth_of_the_instants_loses_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """One loose end per turn, no process, no stuck name, no session lost."""
    for instant in [*sample(crashes.trace(), always=ALWAYS), AT_THE_END]:
        crashes.survive(instant)
    assert crashes.tried >= 12
    crashes.conclude("kill points (a tenth)", figure)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_a_kill_at_any_instant_loses_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """Likewise, everywhere."""
    for instant in [*crashes.trace(), AT_THE_END]:
        crashes.survive(instant)
    crashes.conclude("kill points (all)", figure)


@pytest.mark.timeout(USUAL_LIMIT_SECONDS)
def test_a_kill_during_the_recovery_loses_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """The start-up that settles a crash may crash itself."""
    for first, second in USUAL_SECOND_CRASHES:
        crashes.survive(first, second)
    crashes.conclude("kill points of a recovery (some)", figure)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
@pytest.mark.parametrize("first", CONDITIONS.values(), ids=CONDITIONS.keys())
def test_a_kill_at_any_instant_of_a_recovery_loses_nothing(
    first: str, crashes: Crashes, figure: TellFigure
) -> None:
    """Likewise, everywhere, for each condition that a turn can be left in."""
    for second in crashes.trace(first):
        crashes.survive(first, second)
    crashes.conclude(f"kill points of a recovery (first {first})", figure)


def kill_at_random(crashes: Crashes, *, kills: int, figure: TellFigure) -> None:
    """Kill one daemon again and again while six subagents work, each time at a random moment."""
    chance = random.Random(SEED)
    with crashes.daemon() as (daemon, sinks):
        parents = [Parent(daemon, f"load-{n}", random.Random(f"{SEED} {n}")) for n in range(PARENTS)]
        for _ in range(kills):
            fork = crashes.forks.boot(daemon)
            try:
                check_after(daemon, parents)
            finally:
                kill_under_load(parents, fork, chance)
        fork = crashes.forks.boot(daemon)
        try:
            check_after(daemon, parents)
            count = sinks.check(daemon, most=kills + 1)
        finally:
            assert fork.stop() == 0
            daemon.shut()
        again = count - len(stored_ends(daemon)) * SINKS
    turns = sum(len(parent.confirmed.turns) for parent in parents)
    figure(
        f"random kills: {kills}, with {turns} confirmed turns of {PARENTS} subagents, none lost; "
        f"{count} deliveries to {SINKS} sinks, {again} of them again"
    )


@pytest.mark.timeout(USUAL_LIMIT_SECONDS)
def test_kills_at_random_moments_under_load_lose_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """Six subagents start, go on, are interrupted and end all the time."""
    kill_at_random(crashes, kills=USUAL_KILLS, figure=figure)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_many_kills_at_random_moments_under_load_lose_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """Likewise, ten times as often."""
    kill_at_random(crashes, kills=LONG_KILLS, figure=figure)
