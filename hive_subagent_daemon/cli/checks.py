"""What `doctor` looks at on this machine, with the daemon's configuration; each check says how to mend it.

Only looks: nothing is made or changed, and no request is sent that could cost something.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from hive_subagent_daemon import cgroups, claude_command, clock
from hive_subagent_daemon.config import Flags, find_config_file, load_config
from hive_subagent_daemon.config_values import ScopeChoice
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.managers import NoManagerError, User, try_manager
from hive_subagent_daemon.storage import FREE_BYTES_TO_START

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hive_subagent_daemon.config_values import Config

CLAUDE_SECONDS: Final = 20.0
_LINGER: Final = Path("/var/lib/systemd/linger")
_OLDEST_YEAR: Final = 2026
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+\b.{0,40}")


class Verdict(Enum):
    """What a check found."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "FAIL"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, what was found, and how to mend it."""

    what: str
    verdict: Verdict
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Machine:
    """Who asks, and what of the surroundings the checks may see."""

    user: User
    home: Path
    environ: Mapping[str, str]
    directory: Path

    @classmethod
    def here(cls) -> Machine:
        """Return what is true of this process."""
        uid = os.getuid()
        try:
            entry = pwd.getpwuid(uid)
            user, home = User(uid, entry.pw_name), Path(entry.pw_dir)
        except KeyError:
            user, home = User(uid, str(uid)), Path("/")
        return cls(user, home, dict(os.environ), Path.cwd())


def configuration(machine: Machine, config_file: Path | None) -> tuple[Config, Check]:
    """Return the configuration that the daemon would find; ConfigError when it would refuse it."""
    config = load_config(
        config_file=config_file,
        flags=Flags(),
        environ=machine.environ,
        cwd=machine.directory,
        user_name=machine.user.name,
        home=machine.home,
    )
    file = find_config_file(config_file, environ=machine.environ, home=machine.home)
    return config, _good("configuration", str(file) if file is not None else "no file: defaults")


def local_checks(machine: Machine, config: Config) -> Iterator[Check]:
    """Yield what can be seen from here, for the user who asks."""
    if machine.user.uid == 0 and not config.allow_root:
        yield _bad(
            "user",
            "root, which the daemon refuses to run as",
            "run it as another user, or set allow_root = true",
        )
    yield from _claude(machine, config)
    yield from _systemd(machine, config)
    yield _cgroup()
    yield from _linger(machine, config)
    yield _state_dir(config)
    yield _work_dir(config)
    yield _clock()


def _good(what: str, found: str) -> Check:
    return Check(what, Verdict.GOOD, found)


def _note(what: str, found: str, fix: str = "") -> Check:
    return Check(what, Verdict.NOTE, found, fix)


def _bad(what: str, found: str, fix: str) -> Check:
    return Check(what, Verdict.BAD, found, fix)


def _claude(machine: Machine, config: Config) -> Iterator[Check]:
    try:
        environment = claude_command.child_environment(
            machine.environ, config.environment, turn="doctor", sandbox_mark=machine.user.uid == 0
        )
        program = claude_command.find_program(config.claude, environment, config.work_dir)
    except RefusedError as error:
        yield _bad("claude", str(error), "the daemon takes `claude` from its configuration and its own PATH")
        return
    version = (_output_of([str(program), "--version"], environment) or "").strip()
    if not _VERSION.fullmatch(version):
        yield _bad("claude", f"{program} does not tell its version", f"run `{program} --version` yourself")
        return
    yield _good("claude", f"{program}, {version}")
    yield login(_output_of([str(program), "auth", "status", "--json"], environment))


def login(answer: str | None) -> Check:
    """Judge what `claude auth status --json` says, which asks nobody (measured, 2.1.150 to 2.1.332)."""
    fix = "log in with `claude` as this user, or put a key or token into [environment]"
    try:
        told: Any = json.loads(answer or "")
    except ValueError:
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("loggedIn"), bool):
        return _note("login", "this claude does not tell: the first turn will show", fix)
    if not told["loggedIn"]:
        return _bad("login", "claude is not logged in", fix)
    expires = told.get("loginExpiresAt")
    if isinstance(expires, str) and expires < clock.as_text(clock.now()):
        return _bad("login", f"the login has expired ({expires})", fix)
    by = told.get("apiKeySource") or told.get("authMethod") or "unknown"
    return _good("login", f"there is one ({by}); whether the API takes it, the first turn shows")


def _output_of(words: list[str], environment: Mapping[str, str]) -> str | None:
    """Return what a program prints, whatever its exit code; None when it cannot be run or takes too long."""
    try:
        ended = subprocess.run(
            words,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CLAUDE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.decode(errors="replace")


def _systemd(machine: Machine, config: Config) -> Iterator[Check]:
    if config.scopes.manager is ScopeChoice.OFF:
        yield _note("systemd", "turns run as process groups: scopes are off", 'set scopes.manager = "auto"')
        return

    async def tried() -> tuple[str, list[str]]:
        manager, notices = await try_manager(config.scopes, user=machine.user, environ=machine.environ)
        return manager.name, notices

    try:
        name, notices = anyio.run(tried)
    except NoManagerError as error:
        kind = _note if config.scopes.manager is ScopeChoice.AUTO else _bad
        yield kind("systemd", "no manager makes scopes: no memory limits, no OOM reports", str(error))
        return
    yield _good("systemd", f"scopes by {name}")
    for notice in notices:
        yield _bad("controllers", notice, "let systemd delegate it: Delegate=yes for user@.service")


def _cgroup() -> Check:
    fix = "boot with systemd.unified_cgroup_hierarchy=1"
    if not cgroups.is_unified():
        return _note("cgroup", f"cgroup v2 is not mounted at {cgroups.ROOT}: no scopes", fix)
    if "memory" not in cgroups.controllers(cgroups.ROOT):
        return _bad("cgroup", "v2, but without the memory controller", "boot with cgroup_enable=memory")
    return _good("cgroup", "v2 with the memory controller")


def _linger(machine: Machine, config: Config) -> Iterator[Check]:
    """Look at lingering only where the scopes would be in the user's own manager."""
    if config.scopes.manager in (ScopeChoice.OFF, ScopeChoice.SYSTEM) or machine.user.uid == 0:
        return
    name = machine.user.name
    if (_LINGER / name).exists():
        yield _good("linger", f"{name} keeps a manager after logging out")
    else:
        yield _note(
            "linger",
            f"{name}'s manager ends with the last login, and all turns with it",
            f"loginctl enable-linger {name}",
        )


def _state_dir(config: Config) -> Check:
    path = config.state_dir
    at = path
    while not at.exists() and at != at.parent:
        at = at.parent
    if not at.is_dir() or not os.access(at, os.W_OK | os.X_OK):
        return _bad("state dir", f"{path} cannot be written by you", f"make {at} yours, or set state_dir")
    free = shutil.disk_usage(at).free
    if free < FREE_BYTES_TO_START:
        return _bad(
            "state dir", f"{free >> 20} MiB free at {path}", f"free {FREE_BYTES_TO_START >> 20} MiB there"
        )
    return _good("state dir", f"{path}, {free / 2**30:.1f} GiB free")


def _work_dir(config: Config) -> Check:
    if config.work_dir.is_dir() and os.access(config.work_dir, os.R_OK | os.X_OK):
        return _good("work dir", str(config.work_dir))
    return _bad(
        "work dir", f"{config.work_dir} is no directory that you can enter", "make it, or set work_dir"
    )


def _clock() -> Check:
    now = clock.now()
    if now.year < _OLDEST_YEAR:
        return _bad("clock", f"it says {clock.as_text(now)}", "set it: timedatectl set-ntp true")
    if (
        _output_of(["timedatectl", "show", "-p", "NTPSynchronized", "--value"], os.environ) or ""
    ).strip() == "no":
        return _note("clock", f"{clock.as_text(now)}, not kept by a time server", "timedatectl set-ntp true")
    return _good("clock", clock.as_text(now))
