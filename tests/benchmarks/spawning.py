"""From the call of a launcher to the first output of the program, against `systemd-run --scope`.

Run inside a machine: `python -m tests.benchmarks.spawning MANAGER`, `system` or `user`, prints the seconds of
each way as JSON. The program writes the time of day, which is when its first output is written.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from hive_subagent_daemon.children import Children, become_subreaper
from hive_subagent_daemon.config_values import Scopes
from hive_subagent_daemon.gate import ChildSpec
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.oomd import SYSTEM_BUS, OomdWatch
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.scopes import Place, ScopeLauncher
from hive_subagent_daemon.systemd_bus import SystemdBus
from hive_subagent_daemon.unit_names import default_slice, turn_units
from tests.benchmarks.figures import Figure, median_ms
from tests.support.scripted_daemon import REPOSITORY
from tests.support.slices import slices_in
from tests.systemd.managers import ROOT, USER, Form, output_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hive_subagent_daemon.launcher import Launcher, Placed

SPAWNS = 50
WARM_UP = 5
LIMIT = 1.0
PROGRAM = ("/bin/date", "+%s%N")
PARENT_SLICE = default_slice("benchmark")


def measure() -> list[Figure]:
    """Compare in both forms: root with the system manager, a user with the own one."""
    return [_figure(ROOT, "system"), _figure(USER, "user")]


def _figure(form: Form, manager: str) -> Figure:
    form.manager.wait_until_up()
    words = [sys.executable, "-m", "tests.benchmarks.spawning", manager]
    environment = form.manager.environment | {"PYTHONPATH": str(REPOSITORY)}
    seconds = json.loads(output_of(*words, uid=form.uid, environment=environment))
    ratio = statistics.median(seconds["scope"]) / statistics.median(seconds["systemd-run"])
    how = ", ".join(f"{way} {median_ms(taken):.1f} ms" for way, taken in seconds.items())
    return Figure(
        f"spawn to first output in a scope of the {manager} manager, against systemd-run --scope",
        ratio,
        LIMIT,
        "times",
        f"goal 0.5; medians of {SPAWNS}: {how}",
    )


@dataclass
class Spawns:
    """Programs spawned one after the other, each with files of its own."""

    folder: Path
    bus: Path
    count: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)

    async def compare(self) -> dict[str, list[float]]:
        """Take each way in turn, so that a bad moment of the machine meets all of them."""
        children = Children()
        bus = SystemdBus(self.bus)
        to_stop = slices_in(self.folder / "state")
        scopes = ScopeLauncher(
            children,
            bus,
            scopes=Scopes(),
            place=Place(PARENT_SLICE, "00000000"),
            to_stop=to_stop,
            oomd=OomdWatch(),
            description="scope",
        )
        groups = ProcessGroup(children, to_stop)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scopes.run)
            ways: list[tuple[str, Callable[[], Awaitable[float]]]] = [
                ("scope", partial(self._launch, scopes)),
                ("systemd-run", partial(self._systemd_run, bus)),
                ("process group", partial(self._launch, groups)),
            ]
            for _ in range(WARM_UP + SPAWNS):
                for way, spawn in ways:
                    self.seconds.setdefault(way, []).append(await spawn())
                ways.reverse()  # moving a process between cgroups costs less soon after another was moved
            tasks.cancel_scope.cancel()
        return {way: self.seconds[way][WARM_UP:] for way in ("scope", "systemd-run", "process group")}

    def _output(self) -> Path:
        self.count += 1
        output = self.folder / str(self.count)
        output.touch()
        return output

    async def _launch(self, launcher: Launcher) -> float:
        """Spawn as a turn is spawned, but without the files of a turn."""
        output = self._output()
        turn = f"{self.count:04}"
        spec = ChildSpec(
            argv=PROGRAM,
            environment={},
            dir=self.folder,
            umask=0o077,
            stdin=Path("/dev/null"),
            stdout=output,
            stderr=output,
            title="benchmark",
        )
        root = TurnRoot(turn, None, None, 0, scope=launcher.scope_of(turn))
        began = time.time_ns()
        child = await launcher.launch(spec, root, recorded=_recorded)
        await child.wait()
        seconds = _written(output) - began
        await child.empty()
        await child.release()
        return seconds / 1e9

    async def _systemd_run(self, bus: SystemdBus) -> float:
        """Have systemd-run put the same program into the same kind of scope and slice."""
        output = self._output()
        units = turn_units(PARENT_SLICE, instance="00000001", turn=f"{self.count:04}")
        manager = "--system" if self.bus == SYSTEM_BUS else "--user"
        words = ["systemd-run", manager, "--scope", "--quiet", "--collect", "--property=OOMPolicy=continue"]
        words += [f"--unit={units.scope}", f"--slice={units.slice}", "--description=benchmark", *PROGRAM]
        seconds = _seconds(words, output)  # the event loop has nothing else to do meanwhile
        await bus.stop_unit(units.slice)
        return seconds


async def _recorded(_: Placed) -> None:
    """The daemon writes a record here; systemd-run has nothing like it."""


def _seconds(words: list[str], output: Path) -> float:
    with output.open("wb") as stdout:
        began = time.time_ns()
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=stdout, check=True)
    return (_written(output) - began) / 1e9


def _written(output: Path) -> int:
    return int(output.read_text())


def main() -> None:
    """Measure as the user that this runs as."""
    become_subreaper()
    bus = SYSTEM_BUS if sys.argv[1] == "system" else Path(os.environ["XDG_RUNTIME_DIR"]) / "bus"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        print(json.dumps(anyio.run(Spawns(Path(folder), bus).compare)))


if __name__ == "__main__":
    main()
