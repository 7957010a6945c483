"""Unit files for a daemon: templates of this package filled in. Values in, texts out.

A placeholder is a word in capitals between two `@`; a line of one that stands for nothing is left out.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.config_values import ListenAddress, TcpAddress, UnixAddress, is_address
from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.unit_names import MAX_BYTES, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

USER_FOLDER: Final = "~/.config/systemd/user"
SYSTEM_FOLDER: Final = "/etc/systemd/system"
_STEM: Final = "hive-subagent"
_PLACEHOLDER: Final = re.compile(r"@([A-Z][A-Z_]*)@")
_NEEDS_NO_QUOTES: Final = re.compile(r"[A-Za-z0-9_./:=@+,-]+")
_RUNTIME_FOLDERS: Final = Path("/run/user")


class UnitFilesError(SubagentError):
    """Unit files that cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Account:
    """The user that the daemon runs as."""

    name: str
    uid: int


@dataclass(frozen=True)
class Wanted:
    """What the units shall run: a program, its flags, where it listens; `path` is the PATH of its turns."""

    account: Account
    program: Path
    listen: tuple[ListenAddress, ...]
    path: str
    agent: str | None = None
    config_file: Path | None = None
    work_dir: Path | None = None


@dataclass(frozen=True)
class UnitFile:
    """A unit file by its name."""

    name: str
    text: str


@dataclass(frozen=True)
class UnitFiles:
    """The files of one daemon, where they belong, and what to type, as oneself, once they are there."""

    files: tuple[UnitFile, ...]
    folder: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class _Form:
    """What differs between the managers."""

    folder: str
    templates: tuple[str, str]
    commands: tuple[str, ...]
    linger: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


def user_units(wanted: Wanted) -> UnitFiles:
    """Return a socket and a service for the user's own manager."""
    name = _STEM if wanted.agent is None else _name_of(wanted.agent)
    linger = "The last one (linger) keeps your manager, and so the daemon, there while you are logged out."
    form = _Form(
        USER_FOLDER,
        ("user.socket", "user.service"),
        (
            "systemctl --user daemon-reload",
            f"systemctl --user enable --now {shlex.quote(f'{name}.socket')}",
            "loginctl enable-linger",
        ),
        linger,
        {"SOCKET_USER": ""},  # What a user's manager makes belongs to the user.
    )
    return _filled(wanted, name, form)


def system_units(wanted: Wanted) -> UnitFiles:
    """Return a socket and a service of the system's manager for one agent, with `User=`.

    Raises UnitFilesError for a socket below /run/user, which the mount of that folder would hide.
    """
    account = wanted.account
    agent = account.name if wanted.agent is None else wanted.agent
    for address in wanted.listen:
        if isinstance(address, UnixAddress) and _RUNTIME_FOLDERS in address.path.parents:
            message = (
                f"{address.text}: {_RUNTIME_FOLDERS} is not there yet when the system's manager makes its "
                f"sockets: use a path such as unix:/run/{_STEM}/{account.name}.sock."
            )
            raise UnitFilesError(message)
    name = _name_of(agent)
    commands = ["systemctl daemon-reload", f"systemctl enable --now {shlex.quote(f'{name}.socket')}"]
    values = {
        "AGENT": agent,
        "STATE_DIRECTORY": _quoted(f"{_STEM}/{agent}", also=":"),
        "SOCKET_USER": f"SocketUser={account.name}",
    }
    if account.uid == 0:
        # Without sudo: root alone is for containers, which often have none.
        form = _Form(SYSTEM_FOLDER, ("system.socket", "root.service"), tuple(commands), values=values)
    else:
        commands.append(f"loginctl enable-linger {shlex.quote(account.name)}")
        linger = (
            f"The last one (linger) keeps {account.name}'s manager, and so the daemon, there after a logout."
        )
        by_root = tuple(f"sudo {command}" for command in commands)
        form = _Form(SYSTEM_FOLDER, ("system.socket", "system.service"), by_root, linger, values)
    return _filled(wanted, name, form)


def _filled(wanted: Wanted, name: str, form: _Form) -> UnitFiles:
    values = {
        "NAME": name,
        "USER": wanted.account.name,
        "UID": str(wanted.account.uid),
        "OF_AGENT": "" if wanted.agent is None else f" of {_specifiers_off(_printable(wanted.agent))}",
        "FOLDER": form.folder,
        "COMMANDS": "\n".join(f"#   {command}" for command in form.commands),
        "LINGER": f"# {form.linger}" if form.linger else "",
        "ADDRESSES": "\n".join(f"ListenStream={each}" for each in _streams(wanted.listen)),
        "COMMAND": _command(wanted, agent=form.values.get("AGENT", wanted.agent)),
        "PATH": _quoted(f"PATH={_printable(wanted.path)}"),
        **form.values,
    }
    if not any(isinstance(address, UnixAddress) for address in wanted.listen):
        values["UNIX"] = ""
    kinds = ("socket", "service")
    made = (
        UnitFile(f"{name}.{kind}", _text(template, values | {"OTHER": other}))
        for kind, other, template in zip(kinds, reversed(kinds), form.templates, strict=True)
    )
    return UnitFiles(tuple(made), form.folder, form.commands)


def _text(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders filled: by a value, else by the part of that name."""

    def _value(name: str) -> str:
        return values[name] if name in values else _text(f"part.{name.lower().replace('_', '-')}", values)

    lines = []
    for line in _template(template).splitlines():
        alone = _PLACEHOLDER.fullmatch(line)
        filled = _PLACEHOLDER.sub(lambda found: _value(found[1]), line)
        if filled or not alone:
            lines.append(filled.removesuffix("\n"))
    return "\n".join(lines) + "\n"


@cache
def _template(name: str) -> str:
    return files("hive_subagent_daemon").joinpath("unit_templates", name).read_text(encoding="utf-8")


def _name_of(agent: str) -> str:
    name = f"{_STEM}-{escape(agent)}"
    if len(name) > MAX_BYTES:
        message = f"the agent's name {agent!r} makes a unit name of {len(name)} bytes: take a shorter name."
        raise UnitFilesError(message)
    return name


def _streams(addresses: Iterable[ListenAddress]) -> list[str]:
    """Return the addresses as systemd takes them: it looks no names up and knows no port of its choice."""
    streams = []
    for address in addresses:
        match address:
            case TcpAddress(port=0):
                message = f"{address.text}: a socket unit needs a fixed port, not 0."
                raise UnitFilesError(message)
            case TcpAddress(host="localhost", port=port):
                streams += [f"127.0.0.1:{port}", f"[::1]:{port}"]
            case TcpAddress() if not is_address(address.host):
                message = f"{address.text}: systemd looks up no names: a socket unit needs an address."
                raise UnitFilesError(message)
            case TcpAddress():
                streams.append(address.text)
            case UnixAddress(path=path):
                streams.append(_specifiers_off(_printable(str(path))))
    return list(dict.fromkeys(streams))


def _command(wanted: Wanted, *, agent: str | None) -> str:
    """Return the value of ExecStart; `=` in each flag, because a value may begin with a dash."""
    flags = {"--config": wanted.config_file, "--agent": agent, "--work-dir": wanted.work_dir}
    given = (f"{flag}={_printable(str(value))}" for flag, value in flags.items() if value is not None)
    # Variables are expanded in arguments, but not in the path of the program.
    arguments = (_quoted(each.replace("$", "$$")) for each in given)
    return " ".join([_quoted(_printable(str(wanted.program))), *arguments])


def _printable(text: str) -> str:
    """Return a text that can stand in a line of a unit file, at its end too."""
    if not text.isprintable() or text != text.rstrip(" \\"):
        message = (
            f"{text!a} cannot stand in a unit file: only printable characters can, and no blank or backslash "
            "at its end."
        )
        raise UnitFilesError(message)
    return text


def _specifiers_off(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str, *, also: str = "") -> str:
    """Return one word as systemd.syntax(7) quotes it; characters of `also` get a backslash too.

    A quotation mark is written as its number: `StateDirectory=` takes it in no other way (systemd 252).
    """
    if _NEEDS_NO_QUOTES.fullmatch(text) and not any(each in text for each in also):
        return text
    escaped = _specifiers_off(text).replace("\\", r"\\").replace('"', r"\x22")
    for each in also:
        escaped = escaped.replace(each, f"\\{each}")
    return f'"{escaped}"'
