"""The table `[mcp_servers.<name>]`: entries as in `.mcp.json`, checked so that claude drops none silently."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from hive_subagent_daemon.config_checks import (
    FaultCollector,
    Kind,
    Places,
    fits_64_bits,
    must_be,
    nonempty_text,
    refusal,
    shown,
    text_of,
)
from hive_subagent_daemon.config_kinds import boolean, whole_number
from hive_subagent_daemon.config_tables import VARIABLE_NAMES, is_variable_name, plain_text, table_of
from hive_subagent_daemon.config_values import McpServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AVAILABLE = "available_to_subagents"

_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MAX_NESTING = 20
# `streamable-http` is claude's second word for http. The first type of each is the one filled in.
_TYPES = {"url": ("http", "streamable-http", "sse", "ws"), "command": ("stdio",)}
_SCHEMES = {"http": ("http://", "https://"), "sse": ("http://", "https://"), "ws": ("ws://", "wss://")}
_KEYS_OF_THE_OTHER = {"url": ("args", "env"), "command": ("headers", "headersHelper")}


def _header_value(value: object, _places: Places) -> str:
    text = text_of(value, "a string")
    if "\n" in text or "\r" in text:
        reason = "must be a string of one line"
        raise refusal(reason)
    return text


def _strings(value: object, places: Places) -> list[str]:
    if not isinstance(value, list):
        raise must_be(value, "a list of strings")
    faults = FaultCollector()
    for index, each in enumerate(value):
        faults.read(plain_text(), each, places=places, where=(str(index),))
    faults.finish()
    return value


def _json_ready(value: object, depth: int = 0) -> object:
    """Return the value if JSON can hold it, whatever claude makes of it."""
    match value:
        case bool() | str():
            return value
        case int() if fits_64_bits(value):
            return value
        case float() if math.isfinite(value):
            return value
        case list() | dict() if depth >= _MAX_NESTING:
            reason = f"is nested more than {_MAX_NESTING} levels deep"
            raise refusal(reason)
        case list():
            return [_json_ready(each, depth + 1) for each in value]
        case dict():
            return {name: _json_ready(each, depth + 1) for name, each in value.items()}
    raise must_be(value, "something that JSON can hold")


def _nonempty_string(value: object, _places: Places) -> str:
    return nonempty_text(value, "a string with something in it")


# claude drops a server silently when one of these has the wrong type (measured, claude 2.1.197).
_ENTRY_KINDS: Mapping[str, Kind] = {
    "type": plain_text(),
    "url": Kind("a URL", _nonempty_string),
    "command": Kind("a program", _nonempty_string),
    "args": Kind("a list of strings", _strings),
    "env": table_of(plain_text(), names=VARIABLE_NAMES, is_name=is_variable_name),
    "headers": table_of(
        Kind("a string", _header_value),
        names="the name of an HTTP header",
        is_name=lambda name: _HEADER_NAME.fullmatch(name) is not None,
    ),
    "headersHelper": Kind("a program", _nonempty_string),
    # A number of milliseconds for a JavaScript timer, which fires at once above 31 bits.
    "timeout": whole_number(1, 2**31 - 1),
    "alwaysLoad": boolean(),
    AVAILABLE: boolean(),
}
_FREE = Kind("anything", lambda value, _places: _json_ready(value))


def _squeezed(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")


_SPELLINGS = {_squeezed(key): key for key in _ENTRY_KINDS}


def _entry_faults(entry: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """Yield (key, reason) for each thing that does not fit together in a server's entry."""
    # Other keys pass through, since claude's format grows; these two spellings of one key are a mistake.
    for key in entry:
        known = _SPELLINGS.get(_squeezed(key), key)
        if known != key:
            yield key, f"must be spelt {known}"
    if ("url" in entry) == ("command" in entry):
        yield "", f"needs exactly one of url and command, not {'both' if 'url' in entry else 'none'}"
        return
    way = "url" if "url" in entry else "command"
    for key in _KEYS_OF_THE_OTHER[way]:
        if key in entry:
            yield key, f"does not go together with {way}"
    type_ = entry.get("type", _TYPES[way][0])
    if type_ not in _TYPES[way]:
        words = " or ".join(f'"{each}"' for each in _TYPES[way])
        yield "type", f"must be {words} with {way}, not {shown(type_)}"
    elif way == "url" and not _is_url(entry["url"], _final_type(type_)):
        yield "url", f"must begin with {' or '.join(_SCHEMES[_final_type(type_)])}"


def _final_type(type_: object) -> str:
    return "http" if type_ == "streamable-http" else str(type_)


def _is_url(url: object, type_: str) -> bool:
    # claude expands ${VAR} in a URL, so its scheme may be unknown here.
    return isinstance(url, str) and (url.startswith(_SCHEMES[type_]) or "${" in url)


def _server_entry(value: object, places: Places) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise must_be(value, "a table with url or command")
    faults = FaultCollector()
    entry = {
        key: faults.read(_ENTRY_KINDS.get(key, _FREE), each, places=places, where=(key,))
        for key, each in value.items()
    }
    faults.finish()
    for key, reason in _entry_faults(entry):
        faults.add(reason, where=(key,) if key else ())
    faults.finish()
    first_type = _TYPES["url" if "url" in entry else "command"][0]
    return entry | {"type": _final_type(entry.get("type", first_type))}


def _servers(value: object, places: Places) -> tuple[McpServer, ...]:
    entries: dict[str, dict[str, Any]] = _ENTRIES.read(value, places)
    return tuple(_server(name, entry) for name, entry in entries.items())


def _server(name: str, entry: Mapping[str, Any]) -> McpServer:
    rendered = {key: value for key, value in entry.items() if key != AVAILABLE}
    return McpServer(name, rendered, entry.get(AVAILABLE, False))


def _written_servers(servers: Iterable[McpServer]) -> object:
    return {server.name: {**server.entry, AVAILABLE: server.available_to_subagents} for server in servers}


_ENTRIES = table_of(
    Kind("an entry as in .mcp.json", _server_entry),
    names="letters, digits, '_' and '-'",
    is_name=lambda name: _SERVER_NAME.fullmatch(name) is not None,
)


def mcp_servers() -> Kind:
    """Return the kind of MCP server tables: entries as in `.mcp.json`, each with who may use it."""
    return Kind("a table of entries as in .mcp.json", _servers, _written_servers)
