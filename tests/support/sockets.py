"""Connected pairs of real sockets, by every way in which a client can reach a listener on loopback."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Way:
    """How a client reaches a listener: the listener's family and host, the client's family and host."""

    family: socket.AddressFamily
    host: str
    client_family: socket.AddressFamily
    client_host: str


V4 = Way(socket.AF_INET, "127.0.0.1", socket.AF_INET, "127.0.0.1")
WAYS = {
    "v4": V4,
    "another-v4": Way(socket.AF_INET, "127.1.2.3", socket.AF_INET, "127.1.2.3"),
    "v6": Way(socket.AF_INET6, "::1", socket.AF_INET6, "::1"),
    "v4-on-dual-stack": Way(socket.AF_INET6, "::ffff:127.0.0.1", socket.AF_INET, "127.0.0.1"),
    "mapped-on-dual-stack": Way(socket.AF_INET6, "::", socket.AF_INET6, "::ffff:127.0.0.1"),
    "mapped-on-v4": Way(socket.AF_INET, "127.0.0.1", socket.AF_INET6, "::ffff:127.0.0.1"),
}


# Below the ports that the kernel gives to clients by itself: such a one could take it before a test does.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of loopback on which nobody listens now, and which no client gets by chance."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as bound, contextlib.suppress(OSError):
            bound.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def listening(way: Way = V4) -> Iterator[socket.socket]:
    """Listen on a free port."""
    with socket.socket(way.family, socket.SOCK_STREAM) as listener:
        if way.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((way.host, 0))
        listener.listen()
        listener.settimeout(5)
        yield listener


@contextlib.contextmanager
def connected(way: Way = V4) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return a client's socket and the accepted one."""
    with listening(way) as listener, socket.socket(way.client_family, socket.SOCK_STREAM) as client:
        client.connect((way.client_host, listener.getsockname()[1]))
        accepted, _ = listener.accept()
        with accepted:
            yield client, accepted


def inode_of(sock: socket.socket) -> int:
    """Return the inode number of a socket of this process."""
    return os.fstat(sock.fileno()).st_ino
