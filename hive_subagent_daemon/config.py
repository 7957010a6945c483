"""The configuration: found, read, checked, and written back for `--check`.

Flags win over the file, the file over the defaults. Everything wrong is reported at once, one line for each
fault, with the file or flag it stands in and what would be allowed.
"""

from __future__ import annotations

import stat
import tomllib
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from hive_subagent_daemon.config_checks import Fault, FaultCollector, Places, dotted, nearest, shown
from hive_subagent_daemon.config_listen import reach_fault
from hive_subagent_daemon.config_schema import AGENT, KEYS, STATE_DIR, WORK_DIR, Computed
from hive_subagent_daemon.config_values import (
    Auth,
    Config,
    FileValue,
    Flags,
    Limits,
    ListenAddress,
    LooseEnds,
    McpServer,
    OnRestart,
    OomPolicy,
    Retention,
    ScopeChoice,
    Scopes,
    TcpAddress,
    UnixAddress,
)
from hive_subagent_daemon.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "Auth",
    "Config",
    "FileValue",
    "Flags",
    "Limits",
    "ListenAddress",
    "LooseEnds",
    "McpServer",
    "OnRestart",
    "Retention",
    "ScopeChoice",
    "Scopes",
    "TcpAddress",
    "UnixAddress",
    "changed_keys",
    "effective",
    "find_config_file",
    "load_config",
]

SYSTEM_FILE = Path("/etc/hive-subagent/config.toml")
_MAX_FILE_BYTES = 1_048_576
_MAX_FAULTS = 20
_SCOPE_LIMITS = ("slice", "memory_max", "memory_high", "memory_swap_max", "tasks_max", "cpu_weight")
_BY_NAME = {key.name: key for key in KEYS}
_BY_PLACE = {key.place: key for key in KEYS}
_TABLES = {key.place[:1] for key in KEYS if len(key.place) > 1}


@dataclass(frozen=True)
class _Setting:
    """A raw value and where a reader finds it."""

    label: str
    value: object


def load_config(
    *,
    config_file: Path | None,
    flags: Flags,
    environ: Mapping[str, str],
    cwd: Path,
    user_name: str,
    home: Path,
) -> Config:
    """Return the checked configuration, or raise ConfigError with everything that is wrong.

    `home` is the user's home in the password database, used when $HOME says nothing. Beside the
    configuration file only the existence of the work directory is read, so this may be called again.
    """
    places = Places(cwd, _absolute(environ.get("HOME")) or home)
    file = find_config_file(config_file, environ=environ, home=home)
    faults = FaultCollector()
    # Both become part of other paths, and all of them must be text that TOML can hold.
    faults.read(STATE_DIR.kind, str(cwd), places=places, where=("the working directory",))
    faults.read(STATE_DIR.kind, str(places.home), places=places, where=("the home directory",))
    from_file = {} if file is None else _settings_in(_parsed(cwd / file), str(cwd / file), faults)
    settings = _defaults(cwd, user_name=user_name) | from_file | _settings_of(flags)
    values: dict[str, Any] = {
        name: faults.read(_BY_NAME[name].kind, setting.value, places=places, where=(setting.label,))
        for name, setting in settings.items()
    }
    if STATE_DIR.name not in settings and values[AGENT.name] is not None:
        setting = _default_state_dir(environ, places, agent=values[AGENT.name])
        values[STATE_DIR.name] = faults.read(
            STATE_DIR.kind, setting.value, places=places, where=(setting.label,)
        )
    if faults.faults:
        raise ConfigError(_report(faults.faults))
    if values.get("auth.token_file") is None and (fault := reach_fault(values["listen"])) is not None:
        raise ConfigError(_report([Fault((settings["listen"].label,), fault)]))
    return _config(values)


def find_config_file(config_file: Path | None, *, environ: Mapping[str, str], home: Path) -> Path | None:
    """Return the file that was asked for, else the first of the usual ones that is there, else None."""
    if config_file is not None:
        return config_file
    home = _absolute(environ.get("HOME")) or home
    own = (_absolute(environ.get("XDG_CONFIG_HOME")) or home / ".config") / "hive-subagent/config.toml"
    return next((file for file in (own, SYSTEM_FILE) if _is_there(file)), None)


def effective(config: Config) -> str:
    """Return the whole configuration as TOML that loads as the same configuration.

    Values of `[environment]` stand in it as in the user's own file; a `file` value only by its path.
    """
    document: dict[str, Any] = {}
    for key in KEYS:
        value = attrgetter(key.name)(config)
        if value is None:
            continue
        table = document
        for name in key.place[:-1]:
            table = table.setdefault(name, {})
        table[key.place[-1]] = key.kind.write(value)
    return tomli_w.dumps(document)


def changed_keys(before: Config, after: Config) -> list[str]:
    """Return the dotted names of the keys whose values differ."""
    return [key.name for key in KEYS if attrgetter(key.name)(before) != attrgetter(key.name)(after)]


def _config(values: Mapping[str, Any]) -> Config:
    """Build the configuration from the checked value of each dotted key."""
    return Config(
        agent=values["agent"],
        claude=values["claude"],
        work_dir=values["work_dir"],
        state_dir=values["state_dir"],
        listen=values["listen"],
        on_restart=OnRestart(values["on_restart"]),
        idle_exit_seconds=values["idle_exit_seconds"],
        allow_root=values["allow_root"],
        umask=values["umask"],
        log_level=values["log_level"],
        retention=Retention(values["retention.closed_days"], values["retention.idle_days"]),
        environment=values["environment"],
        scopes=Scopes(
            manager=ScopeChoice(values["scopes.manager"]),
            oom_policy=OomPolicy(values["scopes.oom_policy"]),
            **{name: values.get(f"scopes.{name}") for name in _SCOPE_LIMITS},
        ),
        limits=Limits(
            max_running=values["limits.max_running"],
            exit_grace_seconds=values["limits.exit_grace_seconds"],
            stall_after_seconds=values["limits.stall_after_seconds"],
            max_prompt_bytes=values["limits.max_prompt_bytes"],
            timeout_seconds=values.get("limits.timeout_seconds"),
            max_budget_usd=values.get("limits.max_budget_usd"),
            max_turns=values.get("limits.max_turns"),
            max_depth=values["limits.max_depth"],
        ),
        auth=Auth(values.get("auth.token_file"), values["auth.allow_uids"]),
        mcp_servers=values["mcp_servers"],
        loose_ends=LooseEnds(values["loose_ends.sinks"]),
    )


def _absolute(text: str | None) -> Path | None:
    """Return an absolute path; the XDG base directory rules ignore relative and empty ones."""
    return Path(text) if text and text.startswith("/") else None


def _is_there(file: Path) -> bool:
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # Reading it will say what is wrong; to pass over it would hide that.
    return True


def _default_state_dir(environ: Mapping[str, str], places: Places, *, agent: str) -> _Setting:
    # systemd separates several directories by colons; ours is the first.
    first = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if first:
        return _Setting("$STATE_DIRECTORY", first)
    base = _absolute(environ.get("XDG_STATE_HOME")) or places.home / ".local/state"
    return _Setting("state_dir (the default)", str(base / "hive-subagent" / agent))


def _defaults(cwd: Path, *, user_name: str) -> dict[str, _Setting]:
    """Return the defaults, without that of the state directory, which needs the agent's name."""
    settings = {
        key.name: _Setting(f"{key.name} (the default)", key.default)
        for key in KEYS
        if key.default is not None and not isinstance(key.default, Computed)
    }
    settings[AGENT.name] = _Setting("agent (by default the user's name)", user_name)
    settings[WORK_DIR.name] = _Setting("work_dir (by default the working directory)", str(cwd))
    return settings


def _settings_of(flags: Flags) -> dict[str, _Setting]:
    given = {key.name: (key.flag, getattr(flags, key.flag[2:].replace("-", "_"))) for key in KEYS if key.flag}
    return {
        name: _Setting(flag, list(value) if isinstance(value, tuple) else value)
        for name, (flag, value) in given.items()
        if value not in (None, ())
    }


def _parsed(file: Path) -> dict[str, object]:
    """Return the tables of a TOML file, or raise ConfigError with the file and, where known, the line."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            message = f"{file}: the configuration must be a regular file"
            raise ConfigError(message)
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        message = f"{file}: the configuration cannot be read: {error.strerror}"
        raise ConfigError(message) from error
    if len(content) > _MAX_FILE_BYTES:
        message = f"{file}: the configuration is larger than {_MAX_FILE_BYTES} bytes"
        raise ConfigError(message)
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{file}: not UTF-8 (at line {line})"
        raise ConfigError(message) from error
    except (ValueError, RecursionError) as error:
        # ValueError: tomllib's own error, and Python's limit for the digits of a number.
        message = f"{file}: not valid TOML: {error}"
        raise ConfigError(message) from error


def _settings_in(tables: Mapping[str, object], file: str, faults: FaultCollector) -> dict[str, _Setting]:
    """Return the settings of a file by their dotted names, and remember the keys that are none."""
    settings = {}
    for place, value in _leaves(tables):
        label = f"{file}: {dotted(place)}"
        if place in _TABLES:
            faults.add(f"must be a table, not {shown(value)}", where=(label,))
        elif place in _BY_PLACE:
            settings[_BY_PLACE[place].name] = _Setting(label, value)
        else:
            faults.add(f"unknown key{_suggestion(place)}", where=(label,))
    return settings


def _leaves(tables: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield each key, those of our own tables one level deeper."""
    for name, value in tables.items():
        if (name,) in _TABLES and isinstance(value, dict):
            yield from (((name, inner), each) for inner, each in value.items())
        else:
            yield (name,), value


def _suggestion(place: tuple[str, ...]) -> str:
    """Return the key that was probably meant, else the ones that are allowed in its place."""
    elsewhere = [key.name for key in KEYS if place[-1] in (key.name, key.place[-1])]
    if elsewhere:
        return f" (did you mean {elsewhere[0]}?)"
    table = place[:-1]
    near = nearest(place[-1], {key.place[len(table)] for key in KEYS if key.place[: len(table)] == table})
    if near is not None:
        return f" (did you mean {'.'.join([*table, near])}?)"
    allowed = dict.fromkeys(key.place[len(table)] for key in KEYS if key.place[: len(table)] == table)
    return f"; allowed here: {', '.join(allowed)}" if allowed else ""


def _report(faults: list[Fault]) -> str:
    lines = [f"{_location(fault.where)}: {fault.reason}" for fault in faults[:_MAX_FAULTS]]
    more = len(faults) - _MAX_FAULTS
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def _location(where: tuple[str, ...]) -> str:
    """Return where a fault is: the label of its setting and the keys below it."""
    label, *keys = where
    return ".".join([label, dotted(keys)] if keys else [label])
