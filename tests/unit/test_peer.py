"""Who is at the other end of an accepted socket."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, cast

import pytest

from hive_subagent_daemon import sock_diag
from hive_subagent_daemon.peer import PROC_NET, PeerFinder, RemotePeer, TcpPeer, UnixPeer, UnknownPeer
from tests.support.other_user import NOBODY, as_user, needs_root
from tests.support.sockets import WAYS, Way, connected, inode_of, listening
from tests.unit.support_started import own_cgroup, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@pytest.fixture(params=["netlink", "proc"])
def finder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerFinder]:
    """Return a finder that asks over netlink, and one that cannot and reads /proc."""
    if request.param == "proc":
        monkeypatch.setattr(sock_diag, "NETLINK_SOCK_DIAG", 31)  # no such netlink protocol
    with contextlib.closing(PeerFinder()) as finder:
        yield finder


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_the_peer_is_the_process_that_holds_the_other_socket(finder: PeerFinder, way: Way) -> None:
    with connected(way) as (client, accepted):
        peer = finder.peer_of(accepted)
        assert isinstance(peer, TcpPeer)
        assert (peer.uid, peer.inode) == (os.geteuid(), inode_of(client))


def test_netlink_tells_the_cgroup_of_the_socket() -> None:
    with contextlib.closing(PeerFinder()) as finder, connected() as (_client, accepted):
        peer = finder.peer_of(accepted)
        assert isinstance(peer, TcpPeer)
        assert peer.cgroup_id is not None
        assert peer.cgroup_id > 0


def test_a_half_closed_client_keeps_its_identity(finder: PeerFinder) -> None:
    with connected() as (client, accepted):
        client.shutdown(socket.SHUT_WR)
        peer = finder.peer_of(accepted)
        assert isinstance(peer, TcpPeer)
        assert peer.inode == inode_of(client)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_client_that_has_closed_is_unknown(finder: PeerFinder, way: Way) -> None:
    with connected(way) as (client, accepted):
        client.sendall(b"POST")
        client.close()
        assert isinstance(finder.peer_of(accepted), UnknownPeer)
        assert accepted.recv(4) == b"POST"  # what it sent is there all the same


def test_a_closed_socket_has_no_inode_and_reads_as_root_on_some_kernels() -> None:
    """Show the trap that the inode rule is for, as the kernel of this machine sets it."""
    with contextlib.closing(sock_diag.SockDiag()) as diag, connected() as (client, accepted):
        theirs, ours = (
            sock_diag.Endpoint.of(*name) for name in (client.getsockname(), accepted.getsockname())
        )
        client.close()
        for facts in (diag.find(theirs, ours), sock_diag.find_in_proc(theirs, ours, proc_net=PROC_NET)):
            assert facts is not None
            assert facts.inode == 0
            assert facts.uid in {0, os.geteuid()}


def test_a_client_that_reset_the_connection_is_unknown(finder: PeerFinder) -> None:
    with connected() as (client, accepted):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        client.close()
        assert isinstance(finder.peer_of(accepted), UnknownPeer)


def test_a_reset_connection_is_not_taken_for_a_later_one_from_the_same_port(finder: PeerFinder) -> None:
    with listening() as listener, socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.connect(listener.getsockname())
        source = first.getsockname()
        first.sendall(b"POST")
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        first.close()
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        second.bind(source)
        second.connect(listener.getsockname())
        (dead, _), (alive, _) = listener.accept(), listener.accept()
        with dead, alive:
            assert isinstance(finder.peer_of(dead), UnknownPeer)
            assert isinstance(finder.peer_of(alive), TcpPeer)
            assert dead.recv(4) == b"POST"  # and it could have been served


def test_an_answer_counts_only_while_our_own_end_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    find = sock_diag.SockDiag.find
    with contextlib.closing(PeerFinder()) as finder, connected() as (client, accepted):
        assert isinstance(finder.peer_of(accepted), TcpPeer)

        def find_then_reset(
            diag: sock_diag.SockDiag, theirs: sock_diag.Endpoint, ours: sock_diag.Endpoint
        ) -> sock_diag.SocketFacts | None:
            facts = find(diag, theirs, ours)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            client.close()
            return facts

        monkeypatch.setattr(sock_diag.SockDiag, "find", find_then_reset)
        assert finder.peer_of(accepted) == UnknownPeer("the connection was closed at once")


def test_a_listener_on_the_port_of_the_client_is_not_the_client(finder: PeerFinder) -> None:
    with listening() as listener, socket.socket() as client, socket.socket() as impostor:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", 0))
        source = client.getsockname()
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            client.close()
            impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            impostor.bind(source)
            impostor.listen()
            assert isinstance(finder.peer_of(accepted), UnknownPeer)


@pytest.mark.parametrize("state", [2, 3, 6, 7, 9, 10, 11, 12])
def test_a_socket_that_is_not_connected_is_not_the_peer(monkeypatch: pytest.MonkeyPatch, state: int) -> None:
    """A later client on the same port that still connects (SYN_SENT, 2), and whatever else there may be."""
    facts = sock_diag.SocketFacts(state, 0, 7, None)
    monkeypatch.setattr(sock_diag.SockDiag, "find", lambda *_: facts)
    with contextlib.closing(PeerFinder()) as finder, connected() as (_client, accepted):
        assert finder.peer_of(accepted) == UnknownPeer("no process holds the other end any more")


def test_an_answer_about_a_listening_socket_is_no_answer() -> None:
    """The kernel's exact look-up falls back to a listener on the source port; its owner is anybody."""
    with contextlib.closing(sock_diag.SockDiag()) as diag, listening() as listener:
        own = sock_diag.Endpoint.of(*listener.getsockname())
        assert diag.find(own, sock_diag.Endpoint.of("127.0.0.1", 9)) is None


@needs_root
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_peer_of_another_user_has_its_uid(finder: PeerFinder, way: Way) -> None:
    with listening(way) as listener:
        address = (way.client_host, listener.getsockname()[1])

        def connect() -> bytes:
            held.append(socket.create_connection(address))
            return b"connected"

        held: list[socket.socket] = []
        with as_user(connect) as other:
            accepted, _ = listener.accept()
            assert other.result() == b"connected"
            with accepted:
                peer = finder.peer_of(accepted)
                assert isinstance(peer, TcpPeer)
                assert peer.uid == NOBODY


@needs_root
def test_a_closed_socket_of_another_user_is_never_root(finder: PeerFinder) -> None:
    with listening() as listener:

        def send_and_close() -> bytes:
            with socket.create_connection(listener.getsockname()) as client:
                client.sendall(b"POST")
            return b"closed"

        with as_user(send_and_close) as other:
            accepted, _ = listener.accept()
            assert other.result() == b"closed"
            with accepted:
                assert finder.peer_of(accepted) == UnknownPeer("no process holds the other end any more")


@contextlib.contextmanager
def unix_listener(folder: Path) -> Iterator[socket.socket]:
    """Listen on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        yield listener


def test_the_peer_of_a_unix_socket_is_the_process_that_connected(finder: PeerFinder, tmp_path: Path) -> None:
    with unix_listener(tmp_path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert finder.peer_of(accepted) == UnixPeer(os.geteuid(), os.getegid(), os.getpid(), own_cgroup())
            client.close()
            assert finder.peer_of(accepted) == UnixPeer(os.geteuid(), os.getegid(), os.getpid(), own_cgroup())


def test_a_process_that_connected_and_ended_vouches_for_nobody_though_its_child_has_the_socket(
    finder: PeerFinder, tmp_path: Path
) -> None:
    """Its pid can be another process's by now, and who sends is not told."""
    with unix_listener(tmp_path) as listener:
        listener.settimeout(5)
        script = (
            "import os, socket, sys, time\n"
            "client = socket.socket(socket.AF_UNIX)\n"
            "client.connect(sys.argv[1])\n"
            "if os.fork() == 0:\n"
            "    client.sendall(b'POST')\n"
            "    client.recv(1)\n"
        )
        connecting = start(sys.executable, "-c", script, listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(4) == b"POST"
            for reaped in (False, True):
                os.waitid(os.P_PID, connecting.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
                assert finder.peer_of(accepted) == UnknownPeer("the process that connected has ended")
    os.close(connecting.pidfd)


@needs_root
def test_the_peer_of_a_unix_socket_may_be_another_user(finder: PeerFinder) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(b"")  # an abstract address: no folder has to be open for the other user
        listener.listen()
        listener.settimeout(5)

        def connect() -> bytes:
            held.connect(listener.getsockname())
            return b"connected"

        with socket.socket(socket.AF_UNIX) as held, as_user(connect) as other:
            accepted, _ = listener.accept()
            with accepted:
                assert finder.peer_of(accepted) == UnixPeer(NOBODY, NOBODY, other.pid, own_cgroup())


def test_a_socket_of_another_family_has_an_unknown_peer(finder: PeerFinder) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as odd:
        assert isinstance(finder.peer_of(odd), UnknownPeer)


class FromElsewhere:
    """An accepted socket whose other end has the address of a machine that is not this one."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        """Return an address for documentation."""
        return ("198.51.100.7", 40000)

    def getsockname(self) -> tuple[str, int]:
        """Return an address of ours."""
        return ("127.0.0.1", 7310)


def test_a_peer_with_an_address_of_another_machine_is_a_remote_one(finder: PeerFinder) -> None:
    accepted = cast("socket.socket", FromElsewhere())
    assert finder.peer_of(accepted) == RemotePeer("198.51.100.7")


def own_address() -> str:
    """Return an address of this machine that is not a loopback one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.7", 9))
        except OSError:
            pytest.skip("this machine has no other address than loopback")
        address: str = probe.getsockname()[0]
    return address


def test_who_calls_from_this_machine_is_known_by_whichever_address(finder: PeerFinder) -> None:
    """A socket that is closed at once must not pass for another machine's either."""
    address = own_address()
    with connected(Way(socket.AF_INET, address, socket.AF_INET, address)) as (client, accepted):
        assert isinstance(finder.peer_of(accepted), TcpPeer)
        client.close()
        assert isinstance(finder.peer_of(accepted), UnknownPeer)
