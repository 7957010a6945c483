"""Daemons that crash at chosen instants of the story, and what was lost by it."""

from __future__ import annotations

import random
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.stub.kill_sinks import sinks_in
from tests.stub.kill_story import all_delivered, check, lay_out, quiet, tell, write_recording_claude
from tests.support.daemon_harness import Daemon, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.conftest import TellFigure
    from tests.stub.daemon_forks import Forks
    from tests.stub.kill_sinks import Sinks
    from tests.stub.kill_story import Confirmed

SEED = 20260101
SHARE_OF_THE_USUAL_RUN = 10
USUAL = Setting(limits={"max_running": 8})
ALWAYS = (
    "before launch",
    "creating the process",
    "at the gate",
    "recorded",
    "after launch",
    "before write loose-ends",
    "inside os.rename loose-ends",
    "after write loose-ends",
    "before write names",
    "after rename transcript",
    "before note",
    "before write loose-ends, noting",
    "inside os.rename loose-ends, noting",
    "after write loose-ends, noting",
    "before write notices",
    "after write notices",
)
AT_THE_END = "the end of the story"  # nothing reaches it: the daemon is killed from outside then


def nothing_more(_daemon: Daemon) -> None:
    """Check nothing beside what the story tells."""


class Crashes:
    """Lets daemons crash, each in a folder of its own, and gathers what went wrong."""

    def __init__(
        self,
        folder: Path,
        forks: Forks,
        *,
        setting: Setting = USUAL,
        check_more: Callable[[Daemon], object] = nothing_more,
        settle: Callable[[Daemon], object] = nothing_more,
    ) -> None:
        """Begin with no crash."""
        self.folder = folder
        self.setting = setting
        self.check_more = check_more
        self.settle = settle
        self.forks = forks
        self.tried = 0
        self.deliveries = 0
        self.faults: list[str] = []

    @contextmanager
    def daemon(self) -> Iterator[tuple[Daemon, Sinks]]:
        """Lend a fresh daemon that is not booted yet, with the story laid out, and its sinks."""
        folder = self.folder / f"{self.tried:04d}"
        folder.mkdir()
        claude = write_recording_claude(folder / "claude")
        with sinks_in(folder / "got") as sinks:
            tables = {**self.setting.tables, "loose_ends": sinks.table}
            daemon = Daemon(folder, claude, replace(self.setting, tables=tables))
            lay_out(daemon)
            yield daemon, sinks

    def trace(self, *instants: str) -> list[str]:
        """Return the instants of the whole story or, after crashes, of the recovery from the last one."""
        with self.daemon() as (daemon, _):
            written = daemon.folder / "trace"
            if not instants:
                fork = self.forks.boot(daemon, trace=written)
                tell(daemon)
            else:
                self.crash(daemon, instants)
                fork = self.forks.boot(daemon, trace=written)
            all_delivered(daemon)
            found = written.read_text().splitlines()
            fork.kill()
            shutil.rmtree(daemon.folder)
        return found

    def survive(self, *instants: str) -> None:
        """Crash at these instants, one after the other; then boot, and check what is there."""
        with self.daemon() as (daemon, sinks):
            self.tried += 1
            try:
                confirmed = self.crash(daemon, instants)
                fork = self.forks.boot(daemon)
                try:
                    self.settle(daemon)
                    check(daemon, confirmed)
                    self.deliveries += sinks.check(daemon, most=len(instants) + 1)
                    self.check_more(daemon)
                finally:
                    assert fork.stop() == 0
                    daemon.shut()
            except AssertionError as error:
                self.faults.append(f"killed at {', then '.join(instants)} ({daemon.folder}): {error}")
            else:
                shutil.rmtree(daemon.folder)

    def crash(self, daemon: Daemon, instants: Iterable[str]) -> Confirmed:
        """Play the story up to the first instant, and recover up to each of the others."""
        confirmed: Confirmed | None = None
        for instant in instants:
            fork = self.forks.boot(daemon, instant=instant)
            confirmed = confirmed or tell(daemon)
            reached = instant == AT_THE_END or fork.is_gone(within=1.0)
            fork.kill()
            assert reached, f"{instant} was not reached"
            quiet(daemon)
        assert confirmed is not None
        return confirmed

    def conclude(self, kind: str, figure: TellFigure) -> None:
        """Tell the figures and fail if anything was lost."""
        tried = f"{self.tried} tried, {self.deliveries} deliveries to sinks"
        figure(f"{kind}: {tried}, {len(self.faults)} with a loss")
        assert not self.faults, "\n".join(self.faults)


def sample(instants: list[str], *, always: Sequence[str]) -> list[str]:
    """Return the same tenth of the instants each time, those in `always` among them."""
    chance = random.Random(SEED)
    chosen = [chance.choice([one for one in instants if one.startswith(f"{what} #")]) for what in always]
    others = [one for one in instants if one not in chosen]
    wanted = max(len(instants) // SHARE_OF_THE_USUAL_RUN, 12) - len(chosen)
    return chosen + chance.sample(others, max(wanted, 2))
