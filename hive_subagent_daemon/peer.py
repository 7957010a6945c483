"""Who is at the other end of an accepted socket, as the kernel tells it.

Nothing of this comes from the caller itself. A TCP peer is known only while a process holds its socket: a
closed (orphan) socket has inode 0 and, on some kernels, reads as uid 0, which would be root: it is refused.
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon import cgroups, procfs
from hive_subagent_daemon.sock_diag import (
    CLOSE_WAIT,
    ESTABLISHED,
    FIN_WAIT1,
    FIN_WAIT2,
    DiagUnavailableError,
    Endpoint,
    SockDiag,
    SocketFacts,
    find_in_proc,
)

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    AnySocket = socket.socket | TransportSocket

PROC_NET: Final = Path("/proc/self/net")

# A half-closed client (it has sent all it wants and still reads) is FIN_WAIT; SYN_SENT, LISTEN and the rest
# belong to some other use of the same port.
OPEN_PEER_STATES: Final = frozenset({ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT})
OPEN_OWN_STATES: Final = frozenset({ESTABLISHED, CLOSE_WAIT})

_CREDENTIALS: Final = struct.Struct("@iII")


@dataclass(frozen=True, slots=True)
class TcpPeer:
    """The process (or processes) holding the other socket of a TCP connection on this machine.

    `cgroup_id` is the inode number of the folder of the cgroup in which the socket was made; None where the
    kernel does not tell.
    """

    uid: int
    inode: int
    cgroup_id: int | None


@dataclass(frozen=True, slots=True)
class UnixPeer:
    """The process that connected a Unix socket, as it was when it connected; `pid` 0: not in our view.

    `cgroup` is the path of the cgroup in which it was when the connection was accepted.
    """

    uid: int
    gid: int
    pid: int
    cgroup: str | None = None


@dataclass(frozen=True, slots=True)
class RemotePeer:
    """A socket of another machine, container or network namespace: no kernel here vouches for its owner."""

    address: str


@dataclass(frozen=True, slots=True)
class UnknownPeer:
    """A peer that nobody vouches for, with the reason in words; always refused."""

    reason: str


Peer = TcpPeer | UnixPeer
AnyPeer = Peer | RemotePeer | UnknownPeer


class PeerFinder:
    """Finds the peer of accepted sockets; asks over netlink and falls back to /proc/net/tcp."""

    def __init__(self, *, proc_net: Path = PROC_NET) -> None:
        """Nothing is opened before the first question."""
        self._proc_net = proc_net
        self._diag: SockDiag | None = None
        self._netlink_refused = False
        self._netlink_proven = False

    def close(self) -> None:
        """Close what is open; a later question opens it again."""
        if self._diag is not None:
            self._diag.close()
            self._diag = None

    def peer_of(self, accepted: AnySocket) -> AnyPeer:
        """Return who is at the other end; never raises and never waits longer than a fifth of a second."""
        if accepted.family == socket.AF_UNIX:
            return _unix_peer(accepted)
        if accepted.family in {socket.AF_INET, socket.AF_INET6}:
            return self._tcp_peer(accepted)
        return UnknownPeer(f"it came over a socket of the unknown family {accepted.family}")

    def _tcp_peer(self, accepted: AnySocket) -> AnyPeer:
        try:
            name = accepted.getpeername()
            theirs = Endpoint.of(*name[:2])
            if not theirs.address.is_loopback and not _is_of_this_machine(accepted.family, name):
                return RemotePeer(str(theirs.address))
            ours = Endpoint.of(*accepted.getsockname()[:2])
            facts = self._facts(theirs, ours)
        except DiagUnavailableError as error:
            return UnknownPeer(f"the kernel's socket tables cannot be read ({error.strerror})")
        except OSError:
            return UnknownPeer("the connection was closed at once")
        if facts is None or facts.inode == 0 or facts.state not in OPEN_PEER_STATES:
            return UnknownPeer("no process holds the other end any more")
        # Asked last: while our own end is connected, nobody else can hold a connected socket on the same pair
        # of addresses, so the answer was about this connection and not about a later one.
        if not _still_connected(accepted):
            return UnknownPeer("the connection was closed at once")
        return TcpPeer(facts.uid, facts.inode, facts.cgroup_id)

    def _facts(self, theirs: Endpoint, ours: Endpoint) -> SocketFacts | None:
        """Ask netlink; ask /proc when netlink cannot be asked or has never found anything yet.

        Without the kernel module every netlink question is answered *no such socket*.
        """
        if not self._netlink_refused:
            try:
                facts = self._netlink().find(theirs, ours)
            except DiagUnavailableError as error:
                self.close()
                self._netlink_refused = error.errno in _LASTING
            else:
                self._netlink_proven = self._netlink_proven or facts is not None
                if self._netlink_proven:
                    return facts
        return find_in_proc(theirs, ours, proc_net=self._proc_net)

    def _netlink(self) -> SockDiag:
        if self._diag is None:
            self._diag = SockDiag()
        return self._diag


# Answers of a kernel or sandbox that will not change its mind; others (no memory, a lost answer) may pass.
_LASTING: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL}
)


def _unix_peer(accepted: AnySocket) -> Peer | UnknownPeer:
    try:
        raw = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError as error:
        return UnknownPeer(f"the kernel does not tell the peer's credentials ({error.strerror})")
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    if pid == 0:
        return UnixPeer(uid, gid, pid)
    found = procfs.process(pid)
    if found is None or found.dead:
        return UnknownPeer("the process that connected has ended")
    cgroup = cgroups.of_process(pid)
    return UnixPeer(uid, gid, pid, None if cgroup is None else cgroups.path_of(cgroup))


def _is_of_this_machine(family: int, name: tuple[Any, ...]) -> bool:
    """Tell whether an address is one of ours, as the kernel's routes say: only then can it be bound.

    A socket that is closed at once has such an address too, and must not pass for another machine's.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((name[0], 0, *name[2:]))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _still_connected(accepted: AnySocket) -> bool:
    try:
        state: int = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return False
    return state in OPEN_OWN_STATES
