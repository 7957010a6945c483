"""The addresses to listen on, as text and as values; without a token only loopback and Unix sockets."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from hive_subagent_daemon.config_checks import (
    FaultCollector,
    Kind,
    Places,
    must_be,
    nonempty_text,
    quoted,
    refusal,
    shown,
)
from hive_subagent_daemon.config_kinds import expanded
from hive_subagent_daemon.config_values import ListenAddress, TcpAddress, UnixAddress

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALLOWED = '"HOST:PORT" or "unix:/PATH"'
_TCP = re.compile(r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")
# What the resolver would read as (part of) an IPv4 address.
_NUMBER = re.compile(r"[0-9]*|0x[0-9a-f]*")
# The kernel's limit for a socket path, with its closing NUL (unix(7)).
_UNIX_PATH_BYTES = 108


def listen_addresses() -> Kind:
    """Return the kind of lists of addresses: at least one, none twice."""
    allowed = f"a list of {_ALLOWED}"

    def _read(value: object, places: Places) -> tuple[ListenAddress, ...]:
        if not isinstance(value, list) or not value:
            reason = f"must be {allowed}, not {'an empty one' if value == [] else shown(value)}"
            raise refusal(reason)
        faults = FaultCollector()
        found: list[Any] = [faults.read(_ADDRESS, each, places=places, where=()) for each in value]
        faults.finish()
        for address in found:
            if found.count(address) > 1:
                reason = f"{quoted(address.text)} is listed twice"
                raise refusal(reason)
        return tuple(found)

    return Kind(allowed, _read, lambda addresses: [address.text for address in addresses])


def _address(value: object, places: Places) -> ListenAddress:
    text = nonempty_text(value, _ALLOWED)
    if text.startswith("unix:"):
        return _unix_address(text, places)
    match = _TCP.fullmatch(text)
    if match is None:
        hint = " (write an IPv6 address in brackets, as in [::1]:7310)" if text.count(":") > 1 else ""
        reason = f"must be {_ALLOWED}, not {shown(text)}{hint}"
        raise refusal(reason)
    port = int(match["port"])
    if port > 65535:
        reason = f"{shown(text)}: a port is a number from 0 to 65535"
        raise refusal(reason)
    host = _ipv4_or_name(match["plain"]) if match["bracketed"] is None else _ipv6(match["bracketed"])
    if host is None:
        raise must_be(text, f"{_ALLOWED} with an address or a host name")
    return TcpAddress(host, port)


def _ipv4_or_name(host: str) -> str | None:
    """Return an address in its usual form, or a host name; never a name that somebody takes for a number."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.lower()
        return name if _NAME.fullmatch(name) and not _NUMBER.fullmatch(name.rpartition(".")[2]) else None
    return str(address) if isinstance(address, IPv4Address) else None


def _ipv6(host: str) -> str | None:
    """Return an address in its usual form; none in IPv4 clothes and none of one interface only."""
    try:
        address = IPv6Address(host)
    except ValueError:
        return None
    return str(address) if address.ipv4_mapped is None and address.scope_id is None else None


def reach_fault(addresses: Iterable[ListenAddress]) -> str | None:
    """Say which address others could reach, which needs a token: a call of `start` runs code as the agent."""
    for address in addresses:
        if isinstance(address, TcpAddress) and not address.is_loopback:
            return (
                f"{quoted(address.text)} is not a loopback address; that needs a token, so set "
                'auth.token_file, or use 127.0.0.1, [::1], localhost or "unix:/PATH"'
            )
    return None


def _unix_address(text: str, places: Places) -> UnixAddress:
    path = expanded(text.removeprefix("unix:"), places)
    if not path.is_absolute() or path.name == "":
        raise must_be(text, '"unix:" and an absolute path')
    if len(str(path).encode()) >= _UNIX_PATH_BYTES:
        reason = f"{shown(text)}: the path of a Unix socket has at most {_UNIX_PATH_BYTES - 1} bytes"
        raise refusal(reason)
    return UnixAddress(path)


_ADDRESS = Kind(_ALLOWED, _address)
