"""Finding the peer when the kernel's diagnostics are missing, late or lost."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from hive_subagent_daemon import sock_diag
from hive_subagent_daemon.peer import PeerFinder, TcpPeer, UnknownPeer
from tests.support.processes import eventually
from tests.support.sockets import connected, inode_of

if TYPE_CHECKING:
    import pytest


def test_a_kernel_without_the_module_answers_as_if_there_were_no_socket_and_proc_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sock_diag.SockDiag, "find", lambda *_: None)
    with contextlib.closing(PeerFinder()) as finder, connected() as (client, accepted):
        peer = finder.peer_of(accepted)
        assert isinstance(peer, TcpPeer)
        assert (peer.inode, peer.cgroup_id) == (inode_of(client), None)


def test_once_netlink_has_found_a_socket_its_no_is_final(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finder = PeerFinder(proc_net=tmp_path / "nothing")
    with contextlib.closing(finder), connected() as (_client, accepted):
        assert isinstance(finder.peer_of(accepted), TcpPeer)
        monkeypatch.setattr(sock_diag.SockDiag, "find", lambda *_: None)
        assert finder.peer_of(accepted) == UnknownPeer("no process holds the other end any more")


def test_a_lost_answer_is_waited_for_briefly_and_then_proc_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sock_diag, "SOCK_DIAG_BY_FAMILY", 1)  # a control message, which the kernel ignores
    with contextlib.closing(PeerFinder()) as finder, connected() as (client, accepted):
        peer = finder.peer_of(accepted)
        assert isinstance(peer, TcpPeer)
        assert peer.inode == inode_of(client)
        monkeypatch.undo()
        again = finder.peer_of(accepted)
        assert isinstance(again, TcpPeer)
        assert again.cgroup_id is not None, "netlink is asked again after a lost answer"


def test_without_netlink_and_proc_nobody_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sock_diag, "NETLINK_SOCK_DIAG", 31)
    finder = PeerFinder(proc_net=tmp_path)
    with connected() as (_client, accepted):
        peer = finder.peer_of(accepted)
        assert isinstance(peer, UnknownPeer)
        assert "cannot be read" in peer.reason


def test_an_answer_to_an_earlier_question_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = socket.socket.recvfrom
    late = [struct.pack("=IHHII", 88, 20, 0, 7, 0) + bytes(72)]

    def late_answer_first(sock: socket.socket, size: int) -> tuple[bytes, tuple[int, int]]:
        return (late.pop(), (0, 0)) if late else receive(sock, size)

    monkeypatch.setattr(socket.socket, "recvfrom", late_answer_first)
    with contextlib.closing(PeerFinder()) as finder, connected() as (client, accepted):
        peer = finder.peer_of(accepted)
        assert isinstance(peer, TcpPeer)
        assert (peer.inode, late) == (inode_of(client), [])
        assert peer.cgroup_id is not None, "the right answer was waited for"


def test_many_questions_leave_no_descriptor_behind() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with contextlib.closing(PeerFinder()) as finder, connected() as (_client, accepted):
        for _ in range(300):
            assert isinstance(finder.peer_of(accepted), TcpPeer)
    assert eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)
