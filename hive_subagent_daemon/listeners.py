"""The sockets on which the daemon listens: bound by itself or passed in.

`reachable` means: there is a token, so an address that other machines can reach is allowed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.config_values import ListenAddress, TcpAddress, UnixAddress
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.port_holder import port_holder
from hive_subagent_daemon.sock_diag import plain_address
from hive_subagent_daemon.socket_files import SocketFile, listen_on_file

if TYPE_CHECKING:
    from collections.abc import Iterable

BACKLOG: Final = 1024
# How often another free port is tried when port 0 was asked for and the IPv6 twin of the first one is taken.
PORT_ATTEMPTS: Final = 10
_UNSPECIFIED: Final = frozenset({"0.0.0.0", "::"})
# IPv6 is not there at all; `localhost` is then IPv4 alone.
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket; `names`: what a Host header may say beside the loopback names."""

    socket: socket.socket
    names: frozenset[str] = frozenset()
    file: SocketFile | None = None

    @property
    def url(self) -> str:
        """Return the address to call, with the actual port."""
        return url_of(self.socket)


class Listeners:
    """All listening sockets of the daemon; leaving the block closes them and removes our socket files."""

    def __init__(self, listeners: Iterable[Listener], *, outlive_us: bool = False) -> None:
        """Take over open listeners; those that `outlive_us` are systemd's too, which starts us again."""
        self.all: Final = tuple(listeners)
        self.outlive_us: Final = outlive_us

    def __enter__(self) -> Listeners:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close everything, in any state."""
        for listener in self.all:
            _close(listener)

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets."""
        return [listener.socket for listener in self.all]

    @property
    def names(self) -> frozenset[str]:
        """Return every name that a Host header may carry beside the loopback ones."""
        return frozenset().union(*(listener.names for listener in self.all))

    @property
    def urls(self) -> list[str]:
        """Return the addresses to call."""
        return [listener.url for listener in self.all]


def bind_all(addresses: Iterable[ListenAddress], *, reachable: bool = False) -> Listeners:
    """Bind and listen on every address, or on none: StartUpError names the one that failed and what to do."""
    with contextlib.ExitStack() as undo:
        bound: list[Listener] = []
        for address in addresses:
            for listener in _bound(address, reachable=reachable):
                undo.callback(_close, listener)
                bound.append(listener)
        undo.pop_all()
    return Listeners(bound)


def url_of(listening: socket.socket) -> str:
    """Return `http://HOST:PORT/mcp` or `unix:PATH`."""
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        path = os.fsdecode(name)
        return f"unix:@{path[1:]}" if path.startswith("\0") else f"unix:{path}"
    return f"http://{_bracketed(name[0])}:{name[1]}/mcp"


def names_of(listening: socket.socket) -> frozenset[str]:
    """Return what a Host header may name because the socket is bound to it."""
    if listening.family == socket.AF_UNIX:
        return frozenset()
    address = plain_address(listening.getsockname()[0])
    # Browsers of this machine reach loopback by http://0.0.0.0 too, so that is nobody's right name.
    return frozenset() if address.is_unspecified else frozenset({_bracketed(str(address))})


def names_in(addresses: Iterable[ListenAddress]) -> frozenset[str]:
    """Return the hosts that stand in `listen`: what a Host header may name, however the socket came."""
    hosts = [address.host.strip("[]") for address in addresses if isinstance(address, TcpAddress)]
    return frozenset(_bracketed(host).lower() for host in hosts if host not in _UNSPECIFIED)


def _bound(address: ListenAddress, *, reachable: bool) -> list[Listener]:
    match address:
        case UnixAddress(path=path):
            listening, file = listen_on_file(path, backlog=BACKLOG)
            return [Listener(listening, file=file)]
        case TcpAddress(host=host, port=port):
            listening_on = _bound_tcp(host, port, reachable=reachable)
            return [Listener(bound, names_in([address]) | names_of(bound)) for bound in listening_on]


def _bound_tcp(host: str, port: int, *, reachable: bool) -> list[socket.socket]:
    """Bind every address of the host with one and the same port."""
    for _ in range(PORT_ATTEMPTS):
        try:
            return _bound_families(host, port, reachable=reachable)
        except OSError as error:
            trouble = error
            if port != 0 or error.errno != errno.EADDRINUSE:
                break
    raise StartUpError(_bind_trouble(host, port, trouble)) from trouble


def _bound_families(host: str, port: int, *, reachable: bool) -> list[socket.socket]:
    with contextlib.ExitStack() as undo:
        bound: list[socket.socket] = []
        for family, address in _resolved(host, reachable=reachable):
            wanted = bound[0].getsockname()[1] if bound else port
            try:
                listening = _listening(family, address, wanted, reachable=reachable)
            except OSError as error:
                if bound and error.errno in _NO_IPV6:
                    continue
                raise
            bound.append(undo.enter_context(listening))
        undo.pop_all()
    return bound


def _listening(family: socket.AddressFamily, address: str, port: int, *, reachable: bool) -> socket.socket:
    with contextlib.ExitStack() as undo:
        # The explicit protocol makes asyncio set TCP_NODELAY on accepted connections; without it every call
        # on a kept-alive connection costs 40 ms.
        listening = undo.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((address, port))
        if (fault := reach_fault(listening, reachable=reachable)) is not None:
            message = f"{fault}."
            raise StartUpError(message)
        # Two sockets with SO_REUSEADDR can be bound to one port; only the second listen fails.
        listening.listen(BACKLOG)
        undo.pop_all()
    return listening


def _resolved(host: str, *, reachable: bool) -> list[tuple[socket.AddressFamily, str]]:
    """Return the addresses of the host; one that must not be beyond loopback is refused first."""
    if host.lower() == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        message = f"listen address {host!r} cannot be resolved ({error}): use 127.0.0.1, [::1] or localhost."
        raise StartUpError(message) from error
    addresses: list[tuple[socket.AddressFamily, str]] = list(
        dict.fromkeys((family, str(name[0])) for family, _, _, _, name in found)
    )
    for _family, address in addresses:
        if not reachable and not plain_address(address).is_loopback:
            message = f"{_not_loopback(address)}."
            raise StartUpError(message)
    return addresses


def is_reachable(listening: socket.socket) -> bool:
    """Tell whether other machines could reach this socket, by its real name."""
    if listening.family == socket.AF_UNIX:
        return False
    return not plain_address(listening.getsockname()[0]).is_loopback


def reach_fault(listening: socket.socket, *, reachable: bool) -> str | None:
    """Say, by its real name, what is wrong with a socket that others could reach who shall not."""
    name = listening.getsockname()
    match listening.family:
        case socket.AF_UNIX:
            return None
        case socket.AF_INET | socket.AF_INET6 if reachable or plain_address(name[0]).is_loopback:
            return None
        case socket.AF_INET | socket.AF_INET6:
            return _not_loopback(name[0])
        case family:
            return _not_loopback(f"of {family!s}")


def _not_loopback(address: str) -> str:
    return (
        f"listen address {address} is not a loopback address: whoever reaches this daemon can run code as "
        f"its user, so without a token (auth.token_file) it listens on 127.0.0.1, [::1], localhost or "
        f"unix:PATH only"
    )


def _bind_trouble(host: str, port: int, error: OSError) -> str:
    address = f"{_bracketed(host)}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            holder = port_holder(port)
            held = f", held by {holder}" if holder else ""
            return (
                f"cannot listen on {address}: the port is in use{held}; stop that, or set another `listen`."
            )
        case errno.EACCES:
            return f"cannot listen on {address}: ports below 1024 need root; set a higher port in `listen`."
        case _:
            return f"cannot listen on {address}: {error.strerror}; set another `listen`."


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _close(listener: Listener) -> None:
    if listener.file is not None:
        listener.file.remove()
    listener.socket.close()
