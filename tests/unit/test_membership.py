"""Which processes belong to a turn: by descent, by session, by a mark in their environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import membership, procfs
from hive_subagent_daemon.membership import TurnRoot, living, members, with_descendants
from hive_subagent_daemon.procfs import Process
from tests.unit.support_started import Started, start

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"
BIG = 10_000_000  # above any real pid: has no environment
ROOT = TurnRoot("t1", SESSION, BIG, 100)


def process(pid: int, *, parent: int = 1, session: int = 1, start: int = 200) -> Process:
    """Return a process as /proc might show it."""
    return Process(pid, f"p{pid}", "S", parent, session, start)


def pids(found: list[Process]) -> set[int]:
    """Return the pids of processes."""
    return {one.pid for one in found}


# Pure rules


@pytest.mark.parametrize(
    ("found", "owned"),
    [
        (process(BIG, start=100), True),
        (process(BIG, start=101), False),
        (process(BIG + 1, session=BIG), True),
        (process(BIG + 1, session=BIG, start=100), True),
        (process(BIG + 1, session=BIG, start=99), False),
        (process(BIG + 1), False),
    ],
    ids=["claude", "its-pid-reused", "its-session", "at-its-start", "an-older-session", "somebody-else"],
)
def test_a_turn_owns_claude_and_its_session_but_nothing_older(found: Process, *, owned: bool) -> None:
    assert ROOT.owns(found) is owned


def test_a_turn_whose_process_is_not_known_owns_by_marks_only() -> None:
    unknown = TurnRoot("t1", SESSION, None, 0)
    assert not unknown.owns(process(BIG))
    assert not unknown.owns(process(BIG, session=0))


def test_a_pid_of_zero_names_no_process() -> None:
    """In a container the session of what came in from outside is shown as 0: none of it may be a turn's."""
    damaged = TurnRoot("t1", None, 0, 0)
    assert not damaged.owns(process(BIG, session=0))


def test_descendants_of_members_are_members_however_deep() -> None:
    chain = [process(BIG, start=100), *(process(BIG + n, parent=BIG + n - 1) for n in range(1, 50))]
    others = [process(BIG + 100, parent=1), process(BIG + 101, parent=BIG + 100)]
    assert pids(members(ROOT, [*others, *reversed(chain)])) == pids(chain)


def test_we_and_what_descends_from_us_alone_are_never_members() -> None:
    own = process(os.getpid(), parent=BIG)
    assert pids(with_descendants([process(BIG)], [process(BIG), own, process(BIG + 1, parent=own.pid)])) == {
        BIG
    }
    assert with_descendants([own], [own]) == []


trees = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=25)


@given(trees, st.sets(st.integers(0, 15), max_size=4))
def test_descendants_are_the_closure_even_of_a_table_with_rings(
    pairs: list[tuple[int, int]], at: set[int]
) -> None:
    """The table is read while processes come and go, so that it may hold a reused pid."""
    among = [process(BIG + pid, parent=BIG + parent) for pid, parent in dict(pairs).items()]
    roots = [one for one in among if one.pid - BIG in at]
    expected = pids(roots)
    while further := {one.pid for one in among if one.parent in expected} - expected:
        expected |= further
    found = with_descendants(roots, among)
    assert pids(found) == expected
    assert len(found) == len(expected)


# Real processes


@pytest.fixture
def marked() -> Iterator[Started]:
    """Run a process with the mark of turn t1."""
    yield from running({"HIVE_SUBAGENT_TURN": "t1"})


@pytest.fixture
def of_session() -> Iterator[Started]:
    """Run a process that carries claude's session id only, as its shell commands do."""
    yield from running({"CLAUDE_CODE_SESSION_ID": SESSION})


def running(environment: dict[str, str]) -> Iterator[Started]:
    """Run a process until the test has ended."""
    child = start("sleep", "60", environment=environment)
    yield child
    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED)
    os.close(child.pidfd)


@pytest.mark.parametrize(
    ("root", "by_mark", "by_session"),
    [
        (TurnRoot("t1", SESSION, None, 0), True, True),
        (TurnRoot("t1", None, None, 0), True, False),
        (TurnRoot("t2", None, None, 0), False, False),
        (TurnRoot("t", None, None, 0), False, False),
        (TurnRoot("t11", SESSION[:-1], None, 0), False, False),
        (TurnRoot("t1", SESSION, None, 2**62), False, False),
    ],
    ids=["both", "turn-only", "another-turn", "part-of-a-turn", "other-ids", "older-than-the-turn"],
)
def test_marks_in_the_environment_tell_the_turn(
    marked: Started, of_session: Started, root: TurnRoot, *, by_mark: bool, by_session: bool
) -> None:
    found = pids(members(root, living()))
    assert (marked.pid in found, of_session.pid in found) == (by_mark, by_session)


def test_the_living_are_told_without_those_that_wait_to_be_reaped(marked: Started) -> None:
    ended = start("true")
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    found = pids(living())
    assert marked.pid in found
    assert ended.pid not in found
    os.waitid(os.P_PID, ended.pid, os.WEXITED)
    os.close(ended.pidfd)


def test_the_turn_of_a_process_is_told(marked: Started, of_session: Started) -> None:
    roots = [TurnRoot("t0", None, None, 0), TurnRoot("t1", None, None, 0), TurnRoot("t2", SESSION, None, 0)]
    assert membership.turn_with_process(marked.pid, roots) == "t1"
    assert membership.turn_with_process(of_session.pid, roots) == "t2"
    assert membership.turn_with_process(os.getpid(), roots) is None
    assert membership.turn_with_process(marked.pid, []) is None


def test_the_turn_of_a_socket_is_that_of_a_process_that_has_it_open() -> None:
    roots = [TurnRoot("t0", None, None, 0), TurnRoot("t1", None, None, 0)]
    with socket.socket() as held, socket.socket() as ours:
        with subprocess.Popen(
            ["sleep", "60"], pass_fds=[held.fileno()], env={**os.environ, "HIVE_SUBAGENT_TURN": "t1"}
        ) as child:
            inodes = [os.fstat(one.fileno()).st_ino for one in (held, ours)]
            found = [membership.turn_with_socket(inode, roots) for inode in inodes]
            child.kill()
        assert found == ["t1", None]
        assert membership.turn_with_socket(inodes[0], roots) is None
        assert procfs.holds_socket(os.getpid(), inodes[0])
