"""Who may be inside at once, and who goes when there are too many."""

from __future__ import annotations

import contextlib
import resource
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import door as door_module
from hive_subagent_daemon.access import AccessRule
from hive_subagent_daemon.door import MAX_OF_ONE_STRANGER, MAX_STRANGERS, Door, most_connections
from hive_subagent_daemon.peer import AnyPeer, Peer, PeerFinder, RemotePeer, TcpPeer, UnixPeer, UnknownPeer
from hive_subagent_daemon.tokens import BearerToken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN = TcpPeer(1000, 7, None)


class Guest:
    """A connection that remembers whether it had to go."""

    def __init__(self) -> None:
        """It is welcome."""
        self.evicted = False

    def evict(self) -> None:
        """Go."""
        self.evicted = True


async def of_no_turn(_peer: Peer) -> str | None:
    """Find every peer outside of all turns."""
    return None


def door(most: int = 1000, token: BearerToken | None = None) -> Door:
    """Return a door for uid 1000."""
    rule = AccessRule(1000, of_no_turn, token=token or BearerToken(None))
    return Door(rule, PeerFinder(), most=most)


def entered(door: Door, number: int, peer: AnyPeer = OWN) -> list[Guest]:
    """Bring in so many connections of a peer."""
    guests = [Guest() for _ in range(number)]
    assert all(door.enter(guest, peer) for guest in guests)
    return guests


def test_when_it_is_full_the_one_that_has_been_silent_longest_makes_room() -> None:
    full = door(3)
    guests = entered(full, 5)
    assert [guest.evicted for guest in guests] == [True, True, False, False, False]


def test_the_silent_go_before_those_between_two_requests() -> None:
    full = door(3)
    answered, silent, busy = entered(full, 3)
    full.busy(answered)
    full.rests(answered)
    full.busy(busy)
    entered(full, 1)
    assert (answered.evicted, silent.evicted) == (False, True)
    full.leave(silent)
    [newest] = entered(full, 1)
    assert (answered.evicted, newest.evicted) == (False, False)


def test_of_those_between_two_requests_the_one_that_was_answered_first_goes() -> None:
    full = door(2)
    guests = entered(full, 2)
    for guest in guests:
        full.busy(guest)
    for guest in reversed(guests):
        full.rests(guest)
    full.busy(guests[1])
    full.rests(guests[1])
    entered(full, 1)
    assert [guest.evicted for guest in guests] == [True, False]


def test_one_that_is_being_answered_never_goes_and_a_new_one_is_refused_instead() -> None:
    full = door(2)
    guests = entered(full, 2)
    for guest in guests:
        full.busy(guest)
    newest = Guest()
    assert not full.enter(newest, OWN)
    assert not full.is_stranger(newest)
    full.leave(newest)
    full.leave(guests[0])
    entered(full, 1)
    assert [guest.evicted for guest in guests] == [False, False]


@pytest.mark.parametrize(
    "peer", [TcpPeer(1001, 7, None), UnixPeer(1001, 1, 1), RemotePeer("192.0.2.7"), UnknownPeer("gone")]
)
def test_strangers_of_one_origin_are_few(peer: AnyPeer) -> None:
    guarded = door()
    guests = entered(guarded, MAX_OF_ONE_STRANGER, peer)
    one_too_many = Guest()
    assert not guarded.enter(one_too_many, peer)
    guarded.leave(one_too_many)
    entered(guarded, 1, TcpPeer(1002, 7, None))
    guarded.leave(guests[0])
    entered(guarded, 1, peer)


def test_all_strangers_together_are_few_and_leave_the_others_alone() -> None:
    guarded = door()
    for uid in range(2000, 2000 + MAX_STRANGERS):
        entered(guarded, 1, TcpPeer(uid, 7, None))
    assert not guarded.enter(Guest(), TcpPeer(1999, 7, None))
    entered(guarded, 100)


def test_one_machine_is_one_origin_whatever_address_of_its_network_it_takes() -> None:
    guarded = door()
    for number in range(MAX_OF_ONE_STRANGER):
        entered(guarded, 1, RemotePeer(f"2001:db8::{number + 1}"))
    assert not guarded.enter(Guest(), RemotePeer("2001:db8::ffff"))
    entered(guarded, 1, RemotePeer("2001:db8:0:1::1"))


def test_one_that_has_shown_the_token_is_no_stranger_any_more(tmp_path: Path) -> None:
    guarded = door(token=BearerToken(tmp_path / "token"))
    for _ in range(3):
        for guest in entered(guarded, MAX_OF_ONE_STRANGER, RemotePeer("192.0.2.7")):
            assert guarded.is_stranger(guest)
            guarded.admit(guest)
            assert not guarded.is_stranger(guest)


@contextlib.contextmanager
def descriptors(soft: int) -> Iterator[None]:
    """Lower the limit of open files for a moment."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_leaves_descriptors_for_turns() -> None:
    with descriptors(1024):
        assert most_connections() == 768
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= 8192:
        with descriptors(8192):
            assert most_connections() == door_module.MAX_CONNECTIONS


def test_what_happens_on_a_connection_is_use_and_the_end_of_an_idle_one_is_none() -> None:
    """A client that lets go of a connection it has kept does not want anything."""
    uses = []
    hall = Door(AccessRule(1000, of_no_turn), PeerFinder(), used=lambda: uses.append("used"))
    [idle, waiting] = entered(hall, 2)
    for step in (hall.busy, hall.rests, hall.busy, hall.rests):
        step(idle)
    hall.busy(waiting)
    assert len(uses) == 2 + 4 + 1
    hall.leave(idle)
    assert len(uses) == 7
    hall.leave(waiting)
    assert len(uses) == 8
