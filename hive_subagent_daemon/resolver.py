"""Addresses of host names, from a thread that nobody has to wait for.

A resolver without an answer can hold a thread for half a minute, and neither asyncio's nor anyio's worker
threads let a process end before that. Ours is a daemon thread.
"""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

if TYPE_CHECKING:
    from collections.abc import Callable

Lookup = tuple[tuple[str, ...], OSError | None]


async def addresses_of(host: str, *, lookup: Callable[[str], Lookup] | None = None) -> tuple[str, ...]:
    """Return the addresses of a host, at least one, in the resolver's order; raises OSError.

    An address is its own. `lookup` takes the place of the system's resolver.
    """
    if _is_address(host):
        return (host,)
    found: list[Lookup] = []
    there = anyio.Event()
    token = current_token()

    def _ask() -> None:
        found.append((lookup or _system_lookup)(host))
        with suppress(anyio.RunFinishedError):  # nobody waits any more
            from_thread.run_sync(there.set, token=token)

    try:
        threading.Thread(target=_ask, name=f"resolving {host}", daemon=True).start()
    except RuntimeError as error:  # a limit on processes
        raise OSError(errno.EAGAIN, "no thread for the resolver") from error
    await there.wait()
    addresses, failure = found[0]
    if failure is not None:
        raise failure
    return addresses


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _system_lookup(host: str) -> Lookup:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        return (), OSError(0, "the host has no name that could be looked up")
    except OSError as error:
        return (), error
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    return tuple(addresses), None if addresses else OSError(0, "the host has no address")
