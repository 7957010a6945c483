"""The addresses to listen on, as text and as values; without tokens only loopback and Unix sockets."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

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

_ALLOWED = '"HOST:PORT" or "unix:/PATH"'
_TCP = re.compile(r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
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
        # A call of `start` is code execution as the agent, so nothing beyond this machine may reach it.
        reason = (
            f"{shown(text)} is not a loopback address; that needs a token, which is not available in this "
            'version: use 127.0.0.1, [::1], localhost or "unix:/PATH"'
        )
        raise refusal(reason)
    return TcpAddress(host, port)


def _ipv4_or_name(host: str) -> str | None:
    if host.lower() == "localhost":
        return "localhost"
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return str(address) if isinstance(address, IPv4Address) and address.is_loopback else None


def _ipv6(host: str) -> str | None:
    try:
        address = IPv6Address(host)
    except ValueError:
        return None
    return "::1" if address == IPv6Address("::1") else None


def _unix_address(text: str, places: Places) -> UnixAddress:
    path = expanded(text.removeprefix("unix:"), places)
    if not path.is_absolute() or path.name == "":
        raise must_be(text, '"unix:" and an absolute path')
    if len(str(path).encode()) >= _UNIX_PATH_BYTES:
        reason = f"{shown(text)}: the path of a Unix socket has at most {_UNIX_PATH_BYTES - 1} bytes"
        raise refusal(reason)
    return UnixAddress(path)


_ADDRESS = Kind(_ALLOWED, _address)
