"""Ask the kernel about one TCP socket of this machine, by its exact pair of addresses.

The question goes over a netlink socket to the kernel's `inet_diag`; where that is not to be had (no module,
a sandbox without netlink), /proc/net/tcp and /proc/net/tcp6 give the same facts without the cgroup.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST: Final = 1
NLMSG_ERROR: Final = 2
INET_DIAG_CGROUP_ID: Final = 21
NO_COOKIE: Final = b"\xff" * 8

ESTABLISHED: Final = 1
FIN_WAIT1: Final = 4
FIN_WAIT2: Final = 5
CLOSE_WAIT: Final = 8
LISTEN: Final = 10

# The kernel answers within the send call, so this limit is only met when an answer was lost.
ANSWER_LIMIT_MICROSECONDS: Final = 200_000
ANSWER_BYTES: Final = 8192
# Answers to earlier questions that timed out may still lie in the queue.
STALE_ANSWERS: Final = 16

_MESSAGE_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI2s2s16s16sI8s")
_ANSWER: Final = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
_ATTRIBUTE_HEADER: Final = struct.Struct("=HH")

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a TCP connection; an IPv4 address in IPv6 clothes is kept as the IPv4 address it is."""

    address: IPAddress
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> Endpoint:
        """Read what `getsockname` and `getpeername` give."""
        return cls(plain_address(host), port)


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """What the kernel says about a socket; inode 0: no process holds it any more."""

    state: int
    uid: int
    inode: int
    cgroup_id: int | None


class DiagUnavailableError(OSError):
    """The kernel's socket diagnostics cannot be asked at all (as opposed to: there is no such socket)."""


def plain_address(host: str) -> IPAddress:
    """Return the address without scope id, as IPv4 when it is one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class SockDiag:
    """A netlink socket kept open: one question costs about two system calls."""

    def __init__(self) -> None:
        """Open the socket, or raise DiagUnavailableError."""
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
            )
        except OSError as error:
            raise DiagUnavailableError(error.errno, error.strerror) from error
        limit = struct.pack("@ll", 0, ANSWER_LIMIT_MICROSECONDS)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._sequence = 0

    def close(self) -> None:
        """Close the netlink socket."""
        self._socket.close()

    def find(self, source: Endpoint, destination: Endpoint) -> SocketFacts | None:
        """Return the facts of the socket whose own end is `source`, None when there is none.

        A missing kernel module reads like a missing socket (ENOENT); the caller has to tell them apart.
        """
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        try:
            self._socket.sendto(_question(self._sequence, source, destination), (0, 0))
            kind, payload = self._answer()
        except OSError as error:
            raise DiagUnavailableError(error.errno, error.strerror) from error
        if kind == NLMSG_ERROR:
            _expect_no_socket(payload)
            return None
        return _facts(payload, source, destination)

    def _answer(self) -> tuple[int, bytes]:
        """Receive the answer to the newest question; older ones and other senders are skipped."""
        for _ in range(STALE_ANSWERS):
            message, (sender, _groups) = self._socket.recvfrom(ANSWER_BYTES)
            if sender != 0 or len(message) < _MESSAGE_HEADER.size:
                continue
            length, kind, _flags, sequence, _port = _MESSAGE_HEADER.unpack_from(message)
            if sequence == self._sequence:
                return kind, message[_MESSAGE_HEADER.size : length]
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def _question(sequence: int, source: Endpoint, destination: Endpoint) -> bytes:
    family = socket.AF_INET if source.address.version == 4 else socket.AF_INET6
    request = _REQUEST.pack(
        family,
        socket.IPPROTO_TCP,
        0,
        0xFFFFFFFF,
        source.port.to_bytes(2, "big"),
        destination.port.to_bytes(2, "big"),
        source.address.packed,
        destination.address.packed,
        0,
        NO_COOKIE,
    )
    length = _MESSAGE_HEADER.size + len(request)
    return _MESSAGE_HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, sequence, 0) + request


def _expect_no_socket(payload: bytes) -> None:
    """Accept only ENOENT as *there is no such socket*."""
    (code,) = struct.unpack_from("=i", payload)
    if code != -errno.ENOENT:
        raise DiagUnavailableError(-code, os.strerror(-code))


def _facts(payload: bytes, source: Endpoint, destination: Endpoint) -> SocketFacts | None:
    """Read an answer; one about any other socket is no answer.

    The kernel's exact look-up falls back to a *listening* socket on the source port, whose owner may be
    anybody: so both ends are compared.
    """
    fields = _ANSWER.unpack_from(payload)
    family, state, _timer, _retransmits, near_port, far_port, near, far = fields[:8]
    uid, inode = fields[13], fields[14]
    size = 4 if family == socket.AF_INET else 16
    ends = (
        Endpoint(_unpacked(near[:size]), int.from_bytes(near_port, "big")),
        Endpoint(_unpacked(far[:size]), int.from_bytes(far_port, "big")),
    )
    if ends != (source, destination):
        return None
    return SocketFacts(state, uid, inode, _cgroup_id(payload[_ANSWER.size :]))


def _unpacked(packed: bytes) -> IPAddress:
    return plain_address(str(ipaddress.ip_address(packed)))


def _cgroup_id(attributes: bytes) -> int | None:
    """Find attribute 21, the inode number of the folder of the cgroup in which the socket was made."""
    at = 0
    while at + _ATTRIBUTE_HEADER.size <= len(attributes):
        length, kind = _ATTRIBUTE_HEADER.unpack_from(attributes, at)
        if length < _ATTRIBUTE_HEADER.size:
            return None
        if kind == INET_DIAG_CGROUP_ID and length >= _ATTRIBUTE_HEADER.size + 8:
            return int.from_bytes(attributes[at + 4 : at + 12], "little" if _LITTLE else "big")
        at += (length + 3) & ~3
    return None


_LITTLE: Final = struct.pack("=H", 1) == b"\x01\x00"


def find_in_proc(source: Endpoint, destination: Endpoint, *, proc_net: Path) -> SocketFacts | None:
    """Find the same facts in the kernel's text tables, which do not tell the cgroup.

    Raises DiagUnavailableError when neither table can be read. A client that speaks IPv4 through an IPv6
    socket stands in the second table.
    """
    read_any = False
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), (proc_net / table).open(encoding="ascii") as lines:
            next(lines, None)
            read_any = True
            for line in lines:
                facts = _row_facts(line.split(), source, destination)
                if facts is not None:
                    return facts
    if not read_any:
        message = f"cannot read {proc_net}/tcp"
        raise DiagUnavailableError(errno.EACCES, message)
    return None


def sockets_on_port(port: int, *, proc_net: Path) -> list[SocketFacts]:
    """Return the facts of every socket whose own end has this port, as far as the tables can be read."""
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = (line.split() for line in (proc_net / table).read_text(encoding="ascii").splitlines()[1:])
            found += [_facts_of(row) for row in rows if len(row) >= 10 and row[1].endswith(f":{port:04X}")]
    return found


def _facts_of(columns: list[str]) -> SocketFacts:
    return SocketFacts(int(columns[3], 16), int(columns[7]), int(columns[9]), None)


def _row_facts(columns: list[str], source: Endpoint, destination: Endpoint) -> SocketFacts | None:
    # Comparing the port as text first keeps a table of thousands of rows cheap.
    if len(columns) < 10 or not columns[1].endswith(f":{source.port:04X}"):
        return None
    if (_table_endpoint(columns[1]), _table_endpoint(columns[2])) != (source, destination):
        return None
    return _facts_of(columns)


def _table_endpoint(text: str) -> Endpoint:
    """Read `0100007F:1C8E`: words of four bytes, each in the machine's own byte order."""
    words, _, port = text.rpartition(":")
    raw = bytes.fromhex(words)
    if _LITTLE:
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return Endpoint(_unpacked(raw), int(port, 16))
