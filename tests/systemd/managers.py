"""The service managers of the machine that the tests run in, and what they say about units and processes."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import eventually

CGROUPS = Path("/sys/fs/cgroup")
COMMAND_SECONDS = 60
MANAGER_SECONDS = 60.0


def output_of(*words: str, uid: int = 0, environment: dict[str, str] | None = None) -> str:
    """Run a command that must succeed, as this user, and return what it printed."""
    done = run(*words, uid=uid, environment=environment)
    assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def run(
    *words: str, uid: int = 0, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as this user with nothing but this environment and a PATH."""
    return subprocess.run(
        words,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"} | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
        user=uid,
        group=uid,
        extra_groups=[],
    )


@dataclass(frozen=True)
class Manager:
    """The manager of the system (uid 0), or the one of a user."""

    uid: int

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find this manager."""
        runtime = f"/run/user/{self.uid}"
        bus = f"unix:path={runtime}/bus"
        return {"XDG_RUNTIME_DIR": runtime, "DBUS_SESSION_BUS_ADDRESS": bus} if self.uid else {}

    @property
    def flags(self) -> list[str]:
        """What systemctl and its like have to be given to speak to this manager."""
        return ["--user"] if self.uid else ["--system"]

    @property
    def cgroup(self) -> str:
        """The cgroup below which all units of this manager are."""
        return f"/user.slice/user-{self.uid}.slice/user@{self.uid}.service" if self.uid else ""

    def systemctl(self, *words: str) -> str:
        """Let systemctl do something that must succeed."""
        return output_of("systemctl", *self.flags, *words, uid=self.uid, environment=self.environment)

    def systemd_run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command through systemd-run in this manager."""
        return run("systemd-run", *self.flags, "--quiet", *words, uid=self.uid, environment=self.environment)

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", "--", unit).strip()

    def units(self, containing: str = "") -> set[str]:
        """Return the names of all loaded units that contain this text, failed and inactive ones included."""
        listed = self.systemctl("list-units", "--all", "--full", "--plain", "--no-legend", "--no-pager")
        names = {line.split()[0] for line in listed.splitlines() if line.strip()}
        return {name for name in names if containing in name}

    def failed_units(self) -> set[str]:
        """Return the names of all failed units."""
        listed = self.systemctl("list-units", "--failed", "--full", "--plain", "--no-legend", "--no-pager")
        return {line.split()[0] for line in listed.splitlines() if line.strip()}

    def folder_of(self, unit: str) -> Path:
        """Return the folder of a unit's cgroup."""
        return CGROUPS / self.show(unit, "ControlGroup").lstrip("/")

    def wait_until_up(self) -> None:
        """Wait until this manager has started what it starts by itself."""
        if self.uid:
            unit = f"user@{self.uid}.service"
            eventually(
                lambda: SYSTEM.show(unit, "ActiveState") == "active", within=MANAGER_SECONDS, what=unit
            )


SYSTEM = Manager(0)


@dataclass(frozen=True)
class Form:
    """How a daemon runs: as which user, and in whose manager the scopes of its turns are."""

    name: str
    user: str

    @property
    def uid(self) -> int:
        """The user id of the daemon and its turns."""
        return pwd.getpwnam(self.user).pw_uid

    @property
    def manager(self) -> Manager:
        """The manager of the scopes."""
        return Manager(self.uid)

    @property
    def launcher(self) -> str:
        """What `status` is to say."""
        return "user scope" if self.uid else "system scope"


ROOT = Form("root", "root")
USER = Form("user", "hs-agent")
OTHER_USER = Form("other-user", "hs-other")
ALONE = Form("alone", "hs-alone")  # without a manager


def cgroup_of(pid: int) -> str:
    """Return the path of a process's cgroup, below that of the machine."""
    return unified(Path(f"/proc/{pid}/cgroup").read_text())


def unified(lines: str) -> str:
    """Return the path in the hierarchy of cgroup v2; a host may have those of v1 beside it."""
    [path] = [line.removeprefix("0::") for line in lines.splitlines() if line.startswith("0::")]
    return path


def processes_in(cgroup: str) -> list[int]:
    """Return the processes in a cgroup and in all below it; none when it is gone."""
    found: list[int] = []
    for folder, _, _ in os.walk(CGROUPS / cgroup.lstrip("/")):
        try:
            found += map(int, Path(folder, "cgroup.procs").read_text().split())
        except OSError:  # it is gone by now
            continue
    return found
