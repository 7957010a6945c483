"""The daemon as a service of the machine's systemd, in one form or the other, and what tests do with it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import REPOSITORY, ScriptedDaemon, Setting
from tests.support.sockets import free_port
from tests.systemd.managers import SYSTEM, Form, output_of, processes_in, run

if TYPE_CHECKING:
    from collections.abc import Sequence

UNIT_FOLDER = Path("/run/systemd/system")
STOP_SECONDS = 20.0
PROGRAM = """#!{python}
import signal, sys, time
sys.path.insert(0, {repository!r})
# A test blocks the event loop with this signal.
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))
from hive_subagent_daemon.daemon_main import main
sys.exit(main())
"""
# A daemon without a socket, as somebody could write it who wants none.
OWN_SERVICE = """
[Unit]
StartLimitIntervalSec=0
[Service]
Type=notify
User={user}
ExecStart={program} --config {config}
KillMode=mixed
OOMPolicy=continue
"""


@dataclass(frozen=True)
class Units:
    """The units of a daemon: those of `hive-subagent-daemon units`, or one that has no socket."""

    has_socket: bool = True
    listen: Sequence[str] = ()  # further addresses of the socket
    lines: Sequence[str] = ()  # of a drop-in for [Service]


def write_program(folder: Path) -> Path:
    """Write the daemon's program, which needs no installed package."""
    folder.mkdir()
    path = folder / "hive-subagent-daemon"
    path.write_text(PROGRAM.format(python=sys.executable, repository=str(REPOSITORY)))
    path.chmod(0o755)
    return path


def journal_lines(*words: str) -> list[str]:
    """Return entries of the journal as JSON, those of this moment included."""
    output_of("journalctl", "--sync")
    return output_of("journalctl", "--output=json", "--no-pager", "--quiet", *words).splitlines()


class Service(ScriptedDaemon):
    """One daemon that systemd runs. The test, as root, calls it like a parent."""

    def __init__(
        self, folder: Path, claude: Path, setting: Setting, *, form: Form, units: Units | None = None
    ) -> None:
        """Lay out the folders and give them to the daemon's user; nothing is installed yet."""
        super().__init__(folder, claude, setting)
        self.form = form
        self.units = units or Units()
        self.agent = str(setting.top.get("agent", "stub"))
        name = f"hive-subagent-{output_of('systemd-escape', '--', self.agent).strip()}"
        self.unit, self.socket_unit = f"{name}.service", f"{name}.socket"
        self.port = free_port()
        self.program = write_program(folder / "bin")
        self._cursor: str = json.loads(journal_lines("--lines=1")[0])["__CURSOR"]
        for inner in (folder, *folder.rglob("*")):
            os.chown(inner, form.uid, form.uid)

    @override
    def write_config(self) -> Path:
        path = super().write_config()
        own = f'listen = ["127.0.0.1:{self.port}"]'
        path.write_text(path.read_text().replace('listen = ["127.0.0.1:0"]', own))
        return path

    def install(self) -> None:
        """Write configuration and units, and let systemd read them."""
        config = self.write_config()
        if self.units.has_socket:
            words = ["--system", f"--agent={self.agent}", "--run-as", self.form.user, "--config", str(config)]
            words += [f"--listen={each}" for each in (f"127.0.0.1:{self.port}", *self.units.listen)]
            output_of(str(self.program), "units", *words, "--output", str(UNIT_FOLDER), "--force")
        else:
            text = OWN_SERVICE.format(user=self.form.user, program=self.program, config=config)
            (UNIT_FOLDER / self.unit).write_text(text)
        drop_in = UNIT_FOLDER / f"{self.unit}.d" / "test.conf"
        drop_in.parent.mkdir(exist_ok=True)
        environment = [f'Environment="{name}={value}"' for name, value in self.environment().items()]
        lines = ["[Service]", "RestartSec=100ms", *environment, *self.units.lines, ""]
        drop_in.write_text("\n".join(lines))
        SYSTEM.systemctl("daemon-reload")

    def listen(self) -> Service:
        """Start the socket alone: the first caller starts the daemon."""
        self.install()
        SYSTEM.systemctl("start", "--", self.socket_unit)
        return self

    def boot(self) -> Service:
        """Start the service; this returns when it says that it is ready."""
        self.install()
        code = run("systemctl", "start", "--", self.unit).returncode
        assert code == 0, f"{self.unit} did not start:\n{self.log[-5000:]}"
        return self

    def stop(self) -> None:
        """Stop the service, and its socket if it has one."""
        units = [self.socket_unit, self.unit] if self.units.has_socket else [self.unit]
        SYSTEM.systemctl("stop", "--", *units)

    def restart(self) -> None:
        """Restart the service."""
        SYSTEM.systemctl("restart", "--", self.unit)

    def kill(self) -> None:
        """Kill the daemon, and nothing else, without warning."""
        pid = self.main_pid
        SYSTEM.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "--", self.unit)
        eventually(lambda: not is_alive(pid), what="the daemon's end")

    def show(self, name: str) -> str:
        """Return a property of the service."""
        return SYSTEM.show(self.unit, name)

    def comes_to(self, state: str, *, within: float = STOP_SECONDS) -> None:
        """Wait until the service is in this state."""
        eventually(lambda: self.show("ActiveState") == state, within=within, what=f"{self.unit} {state}")

    @property
    def main_pid(self) -> int:
        """The process id of the daemon; 0 while it does not run."""
        return int(self.show("MainPID"))

    @property
    def instance(self) -> str:
        """What stands in the name of every unit of this daemon's turns."""
        return (self.state / "instance").read_text().strip()

    def turn_units(self) -> set[str]:
        """Return every unit of this daemon's turns, in whichever state."""
        return self.form.manager.units(f"-{self.instance}\\x2d")

    def is_back(self, pid: int, *, within: float = 30.0) -> None:
        """Wait until another process than this one is the daemon, and has said that it is ready."""
        eventually(lambda: self.main_pid not in (0, pid), within=within, what="another daemon")
        self.comes_to("active", within=within)

    def journal(self, *matches: str) -> list[dict[str, Any]]:
        """Return the entries of the journal that match, or else all that are about this service."""
        wanted = matches or (f"--unit={self.unit}",)
        lines = journal_lines(f"--after-cursor={self._cursor}", *wanted)
        return [json.loads(line) for line in lines]

    @property
    def log(self) -> str:
        """What was said by the daemon and about its service so far, over all its starts."""
        return "\n".join(str(entry.get("MESSAGE")) for entry in self.journal())

    def uninstall(self) -> None:
        """Remove the units."""
        for unit in (self.unit, self.socket_unit):
            (UNIT_FOLDER / unit).unlink(missing_ok=True)
        shutil.rmtree(UNIT_FOLDER / f"{self.unit}.d", ignore_errors=True)
        SYSTEM.systemctl("daemon-reload")

    def shut(self) -> None:
        """Stop the service and remove it; fail when it had failed or leaves a process."""
        if not (UNIT_FOLDER / self.unit).exists():
            return
        state, cgroup = self.show("ActiveState"), self.show("ControlGroup")
        self.stop()
        left = {*self.processes(), *(processes_in(cgroup) if cgroup else ())}
        for pid in left:
            os.kill(pid, 9)
        log = self.log[-5000:]
        SYSTEM.systemctl("reset-failed")
        self.uninstall()
        assert state != "failed", f"{self.unit} had failed:\n{log}"
        assert not left, f"processes left after the daemon: {left}\n{log}"
