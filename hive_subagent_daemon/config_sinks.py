"""The tables `[[loose_ends.sinks]]`: each a URL or a program, checked as far as that goes without trying."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from hive_subagent_daemon.config_checks import (
    FaultCollector,
    Kind,
    Places,
    must_be,
    nearest,
    nonempty_text,
    refusal,
    shown,
    text_of,
)
from hive_subagent_daemon.config_kinds import expanded, program
from hive_subagent_daemon.sink_values import CommandSink, HttpAddress, HttpSink, Sink, SocketAddress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_SINKS: Final = 32
_TYPES: Final = ("http", "command")
_NEEDED: Final = {"http": "url", "command": "argv"}
_OPTIONAL: Final = {"http": ("header_file", "name"), "command": ("name",)}
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_VISIBLE: Final = re.compile(r"[!-~]+")
_SOCKET_BYTES: Final = 107  # with its closing NUL the kernel takes 108 (unix(7))
_URL: Final = '"http://HOST:PORT/PATH", "https://…", "unix:/SOCKET" or "unix:/SOCKET:/PATH"'
_PERCENT: Final = "in visible ASCII, everything else percent-encoded"


def sinks() -> Kind:
    """Return the kind of lists of sinks: tables with `type = "http"` or `type = "command"`, none twice."""
    allowed = "an array of tables ([[loose_ends.sinks]])"

    def _read(value: object, places: Places) -> tuple[Sink, ...]:
        if not isinstance(value, list):
            raise must_be(value, allowed)
        if len(value) > MOST_SINKS:
            reason = f"must be at most {MOST_SINKS} sinks, not {len(value)}"
            raise refusal(reason)
        faults = FaultCollector()
        found: list[Any] = [
            faults.read(_SINK, each, places=places, where=(str(index),)) for index, each in enumerate(value)
        ]
        for index, sink in enumerate(found):
            if sink is not None and sink.id in [other.id for other in found[:index] if other is not None]:
                what = "name" if sink.name else _NEEDED["http" if isinstance(sink, HttpSink) else "command"]
                faults.add(
                    f"is the {what} of an earlier sink too: each needs its own", where=(str(index), what)
                )
        faults.finish()
        return tuple(found)

    return Kind(allowed, _read, lambda every: [_written(sink) for sink in every])


def _sink(value: object, places: Places) -> Sink:
    if not isinstance(value, dict):
        raise must_be(value, 'a table with type = "http" or type = "command"')
    type_ = _type_of(value)
    faults = FaultCollector()
    needed, optional = _NEEDED[type_], _OPTIONAL[type_]
    if needed not in value:
        faults.add(f'needs {needed} with type = "{type_}"')
    for key in value:
        if key not in ("type", needed, *optional):
            faults.add(_unknown(key, type_), where=(key,))
    settings: dict[str, Any] = {
        key: faults.read(_KINDS[key], value[key], places=places, where=(key,))
        for key in (needed, *optional)
        if key in value
    }
    faults.finish()
    if type_ == "command":
        return CommandSink(**settings)
    address, target = settings["url"]
    return HttpSink(**settings | {"url": value["url"], "address": address, "target": target})


def _type_of(table: Mapping[str, object]) -> str:
    type_ = table.get("type")
    if type_ in _TYPES:
        return str(type_)
    faults = FaultCollector()
    allowed = " or ".join(f'"{each}"' for each in _TYPES)
    if type_ is None:
        faults.add(f"needs type = {allowed}")
    else:
        faults.add(f"must be {allowed}, not {shown(type_)}", where=("type",))
    faults.finish()
    raise AssertionError  # `finish` has raised


def _unknown(key: str, type_: str) -> str:
    allowed = ("type", _NEEDED[type_], *_OPTIONAL[type_])
    if key in {*_NEEDED.values(), "header_file"}:
        return f'does not go together with type = "{type_}"'
    near = nearest(key, allowed)
    return (
        f"unknown key (did you mean {near}?)" if near else f"unknown key; allowed here: {', '.join(allowed)}"
    )


def _url(value: object, places: Places) -> tuple[HttpAddress | SocketAddress, str]:
    # No message shows the URL, whose path or query may be a secret.
    url = nonempty_text(value, _URL)
    if not _VISIBLE.fullmatch(url):
        reason = f"must be a URL {_PERCENT}"
        raise refusal(reason)
    if url.startswith("unix:"):
        path, colon, target = url.removeprefix("unix:").partition(":/")
        return _socket(path, places), f"/{target}" if colon else "/"
    parts, port = _split(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "http+unix":
        return _socket(unquote(parts.netloc), places), target
    if parts.scheme not in _PORTS or not parts.hostname:
        reason = f"must be {_URL}"
        raise refusal(reason)
    return HttpAddress(parts.hostname, port or _PORTS[parts.scheme], tls=parts.scheme == "https"), target


def _split(url: str) -> tuple[SplitResult, int | None]:
    """Return the parts of a URL and its port; refuse what a URL can hold and a sink cannot use."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        reason = "must be a URL with a host, and with a port from 1 to 65535 if any"
        raise refusal(reason)
    if "@" in parts.netloc:
        reason = "must hold no user name and password: put an Authorization header into a header_file"
        raise refusal(reason)
    if parts.fragment:
        reason = "must have no fragment (#…), which is never sent"
        raise refusal(reason)
    return parts, port


def _socket(text: str, places: Places) -> SocketAddress:
    path = expanded(text, places)
    if not path.is_absolute() or "\0" in text or len(str(path).encode()) > _SOCKET_BYTES:
        reason = f"must name a Unix socket by its absolute path of at most {_SOCKET_BYTES} bytes"
        raise refusal(reason)
    return SocketAddress(path)


def _header_file(value: object, places: Places) -> Path:
    path = expanded(nonempty_text(value, "the path of a file"), places)
    if not path.is_absolute():
        reason = f"must be an absolute path, not {shown(value)}"
        raise refusal(reason)
    return path


def _name(value: object, _places: Places) -> str:
    allowed = "1 to 63 letters, digits, '_', '.' and '-', the first one a letter or digit"
    text = text_of(value, allowed)
    if not _NAME.fullmatch(text):
        raise must_be(value, allowed)
    return text


def _argv(value: object, places: Places) -> tuple[str, ...]:
    allowed = "a list of strings: the program, then its arguments"
    if not isinstance(value, list) or not value:
        reason = f"must be {allowed}, not {'an empty one' if value == [] else shown(value)}"
        raise refusal(reason)
    faults = FaultCollector()
    words: list[Any] = [
        faults.read(program() if index == 0 else _WORD, each, places=places, where=(str(index),))
        for index, each in enumerate(value)
    ]
    faults.finish()
    return tuple(words)


def _written(sink: Sink) -> Mapping[str, object]:
    written: dict[str, object] = {}
    match sink:
        case HttpSink():
            written |= {"type": "http", "url": sink.url}
            if sink.header_file is not None:
                written["header_file"] = str(sink.header_file)
        case CommandSink():
            written |= {"type": "command", "argv": list(sink.argv)}
    return written | ({"name": sink.name} if sink.name else {})


_WORD: Final = Kind("a string", lambda value, _places: text_of(value, "a string"))
_KINDS: Final[Mapping[str, Kind]] = {
    "url": Kind(_URL, _url),
    "header_file": Kind("the path of a file", _header_file),
    "argv": Kind("a list of strings", _argv),
    "name": Kind("a name", _name),
}
_SINK: Final = Kind("a sink", _sink)
