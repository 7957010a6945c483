"""Many turns with everything mixed by a seeded plan; in the end as little is used as in the beginning."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from typing_extensions import override

from tests.stub.conftest import assert_without_fault
from tests.stub.soak_machine import MOST_RUNNING, Plan, Soak
from tests.stub.steps import success
from tests.support.daemon_harness import Daemon, Setting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import TellFigure

SEED_VARIABLE = "HIVE_SUBAGENT_SOAK_SEED"
USUAL_SEED = 20260103
PLANS_AT_ONCE = 4
STEPS_OF_A_PLAN = 50
USUAL_TURNS, USUAL_SECONDS = 100, 90.0
LONG_TURNS, LONG_SECONDS = 1000, 1800.0
FLAT_TURNS = 40
FLAT_MEMORY_BYTES = 2 * 1024 * 1024
# Of a name there is kept, for as long as retention says: the record of its last turn, and its prompt.
FILES_OF_A_NAME, NAME_STATE_BYTES, NAME_MEMORY_BYTES = 2, 8 * 1024, 16 * 1024
CLOSED_DAYS = 0
OF_PLANS = settings(
    max_examples=PLANS_AT_ONCE,
    stateful_step_count=STEPS_OF_A_PLAN,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@dataclass(frozen=True)
class Use:
    """What a daemon uses, with nothing running."""

    private_bytes: int
    descriptors: int
    threads: int
    state_files: int
    state_bytes: int

    @override
    def __str__(self) -> str:
        """Return it in one line of a report."""
        return (
            f"{self.private_bytes / 2**20:.1f} MiB private, {self.descriptors} descriptors, {self.threads} "
            f"threads, {self.state_files} files with {self.state_bytes / 2**10:.0f} KiB"
        )


def use_of(daemon: Daemon) -> Use:
    """Measure a daemon with nothing running."""
    assert daemon.process is not None
    process = Path(f"/proc/{daemon.process.pid}")
    rollup = (process / "smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_"))
    sizes = []
    for path in daemon.state.rglob("*"):
        with suppress(FileNotFoundError):  # housekeeping removes what was closed
            sizes += [path.stat().st_size] if path.is_file() and path.name != "ballast" else []
    return Use(
        private_bytes=private,
        descriptors=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        state_files=len(sizes),
        state_bytes=sum(sizes),
    )


@pytest.fixture
def soaked(tmp_path: Path, claude_program: Path) -> Iterator[Daemon]:
    """Return a daemon that keeps closed loose ends no longer than to its next start."""
    tables = {"retention": {"closed_days": CLOSED_DAYS}}
    setting = Setting(limits={"max_running": MOST_RUNNING}, tables=tables)
    daemon = Daemon(tmp_path / "d", claude_program, setting)
    yield daemon.boot()
    daemon.shut()
    assert_without_fault(daemon.log)


def play_plans(soak: Soak) -> int:
    """Play one plan after the other until there were enough turns; return the seed of the first."""
    first = int(os.environ.get(SEED_VARIABLE, USUAL_SEED))
    plan = type("SoakingPlan", (Plan,), {"soak": soak})
    number = first
    while not soak.is_done:
        print(f"plans of seed {number}: {SEED_VARIABLE}={number} plays them again")
        try:
            run_state_machine_as_test(seed(number)(plan), settings=OF_PLANS)
        finally:
            assert not soak.failures, soak.failures[0]
        number += 1
    return first


def soak_through(daemon: Daemon, *, turns: int, seconds: float, figure: TellFigure) -> None:
    """Play plans, then compare what is used after further turns with what is used before them."""
    before = settled_use(daemon)
    soak = Soak(daemon, turns=turns, seconds=seconds)
    first = play_plans(soak)
    after = settled_use(daemon)
    check_growth(daemon, before, after)
    check_flatness(daemon)
    ends = ", ".join(f"{count} {kind}" for kind, count in sorted(soak.ends.items()))
    figure(
        f"soak of seed {first}: {soak.turns} turns ({ends}) in {soak.plans} plans, {soak.refusals} "
        f"refusals, {soak.restarts} restarts, {soak.kills} kills; none lost, none told twice"
    )
    figure(f"soak of seed {first}: at its start {before}; at its end {after}")


def settled_use(daemon: Daemon) -> Use:
    """Measure a daemon that was just booted and has had one turn, once what was closed has gone."""
    close_all(daemon)
    daemon.restart()
    end = daemon.play("flat", success())
    stored = daemon.state / "loose-ends"
    eventually(
        lambda: not any(is_closed(path) for path in stored.glob("*.json")), what="closed loose ends removed"
    )
    daemon.ok("close_loose_ends", ids=[end["id"]])
    return use_of(daemon)


def is_closed(path: Path) -> bool:
    """Tell whether this is the file of a loose end that is closed, and not of one just removed."""
    with suppress(FileNotFoundError):
        return json.loads(path.read_text())["closed_at"] is not None
    return False


def check_growth(daemon: Daemon, before: Use, after: Use) -> None:
    """Fail when a soak has left more than what is remembered of each name, for as long as names are kept."""
    names = len(list((daemon.state / "names").iterdir()))
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads + 2
    assert after.private_bytes <= before.private_bytes + FLAT_MEMORY_BYTES + names * NAME_MEMORY_BYTES
    assert after.state_files <= before.state_files + names * FILES_OF_A_NAME
    assert after.state_bytes <= before.state_bytes + names * NAME_STATE_BYTES


def check_flatness(daemon: Daemon) -> None:
    """Fail when turns leave something behind, in the daemon or in its state directory."""
    before = settled_use(daemon)
    for _ in range(FLAT_TURNS):
        daemon.ok("close_loose_ends", ids=[daemon.resume("flat")["id"]])
    after = use_of(daemon)
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads + 2
    assert after.private_bytes <= before.private_bytes + FLAT_MEMORY_BYTES
    assert after.state_files <= before.state_files + FLAT_TURNS
    daemon.restart()
    most = before.state_files + 1  # housekeeping removes what was closed
    eventually(lambda: use_of(daemon).state_files <= most, what="a state directory as small as before")
    eventually(
        lambda: use_of(daemon).descriptors <= before.descriptors, what="no more descriptors than before"
    )


def close_all(daemon: Daemon) -> None:
    """Close every loose end."""
    while ends := daemon.ok("get_loose_ends", limit=100).content["loose_ends"]:
        daemon.ok("close_loose_ends", ids=[end["id"] for end in ends])


@pytest.mark.timeout(240)
def test_a_soak_leaves_nothing_behind(soaked: Daemon, figure: TellFigure) -> None:
    """A hundred turns in a minute and a half."""
    soak_through(soaked, turns=USUAL_TURNS, seconds=USUAL_SECONDS, figure=figure)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_long_soak_leaves_nothing_behind(soaked: Daemon, figure: TellFigure) -> None:
    """A thousand turns in half an hour."""
    soak_through(soaked, turns=LONG_TURNS, seconds=LONG_SECONDS, figure=figure)
