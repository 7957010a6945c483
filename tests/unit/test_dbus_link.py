"""One connection to a message bus: whatever does not answer is an error in time, and leaves nothing."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from jeepney import MatchRule, new_method_call

from hive_subagent_daemon import dbus_link
from hive_subagent_daemon.dbus_link import BusError, DBusLink, NoAnswerError, RefusedCallError, open_link
from tests.unit.support_bus import (
    FAULTY,
    MANAGER,
    NAME,
    FakeBus,
    Manner,
    refused,
    removed,
    returned,
    serving,
)
from tests.unit.support_turns import LIMIT_SECONDS, open_descriptors, until

if TYPE_CHECKING:
    from pathlib import Path

    from jeepney import Message

SIGNAL = MatchRule(type="signal", member="JobRemoved")
WITHIN_SECONDS = 5.0


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait shortly for a bus that does not answer."""
    monkeypatch.setattr(dbus_link, "CONNECT_SECONDS", 0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the bus listens."""
    return tmp_path / "bus"


def call(member: str = "Ask") -> Message:
    """Return a call of a method."""
    message: Message = new_method_call(MANAGER, member)
    return message


async def opened(bus: FakeBus) -> DBusLink:
    """Connect to a bus that speaks."""
    with anyio.fail_after(LIMIT_SECONDS):
        return await open_link(bus.socket, matches=[SIGNAL])


async def refusal(path: Path) -> str:
    """Try to connect and return why that fails, well in time."""
    began = time.monotonic()
    with pytest.raises(BusError) as error:
        await open_link(path, matches=[SIGNAL])
    assert time.monotonic() - began < WITHIN_SECONDS
    return str(error.value)


# Connecting


async def test_no_socket_is_said_by_its_path(path: Path) -> None:
    assert await refusal(path) == (
        f"the bus at {path} cannot be reached ([Errno 2] No such file or directory)"
    )


async def test_a_socket_on_which_nobody_listens_is_told(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
        assert "Connection refused" in await refusal(path)


@pytest.mark.parametrize("manner", FAULTY, ids=[manner.name for manner in FAULTY])
async def test_whoever_is_no_bus_is_an_error_in_time(path: Path, manner: Manner) -> None:
    async with serving(FakeBus(path, manner=manner)) as bus:
        told = await refusal(path)
        assert bus.connected == 1
    if manner in (Manner.SILENT, Manner.AUTHENTICATES, Manner.GREETS):
        assert "no answer" in told
    if manner is not Manner.GREETS:
        assert told.startswith(f"the bus at {path} cannot be reached (")


@pytest.mark.parametrize("manner", FAULTY, ids=[manner.name for manner in FAULTY])
async def test_a_connection_that_does_not_come_about_leaves_no_descriptor_open(
    path: Path, manner: Manner
) -> None:
    """It is tried again and again, as long as the daemon runs."""
    async with serving(FakeBus(path, manner=manner)):
        before = open_descriptors()
        for _ in range(3):
            await refusal(path)
        await until(lambda: open_descriptors() <= before, what="the closing of the sockets")


@pytest.mark.parametrize("manner", [Manner.SILENT, Manner.AUTHENTICATES, Manner.GREETS])
async def test_connecting_that_is_given_up_leaves_no_descriptor_open(path: Path, manner: Manner) -> None:
    """As by a call of `start`, which waits less than a connection may take."""
    async with serving(FakeBus(path, manner=manner)) as bus:
        before = open_descriptors()
        with anyio.move_on_after(0.05) as given_up:
            await open_link(path, matches=[SIGNAL])
        assert given_up.cancelled_caught
        await until(lambda: bus.connected == 1)
        await until(lambda: open_descriptors() <= before, what="the closing of the socket")


@pytest.mark.parametrize("name", ["a b", "%2f", "a;b,c=d", "ä"])
async def test_a_socket_may_be_called_anything(tmp_path: Path, name: str) -> None:
    async with serving(FakeBus(tmp_path / name)) as bus:
        link = await opened(bus)
        assert repr(link) == "DBusLink(open)"
        await link.close()
        assert repr(link) == "DBusLink(lost)"


async def test_what_is_to_be_heard_is_asked_for(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        link = await opened(bus)
        assert bus.members == ["Hello", "AddMatch"]
        await link.close()


async def test_a_bus_that_does_not_let_us_hear_is_refused(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        bus.answers["AddMatch"] = lambda call: [refused(call, "org.freedesktop.DBus.Error.LimitsExceeded")]
        before = open_descriptors()
        await refusal(path)
        await until(lambda: open_descriptors() <= before)


# Calling


async def test_an_answer_is_returned_as_it_is(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        bus.answers["Ask"] = lambda call: [returned(call, "si", "x", 7)]
        link = await opened(bus)
        assert await link.call(call(), within_seconds=WITHIN_SECONDS) == ("x", 7)
        await link.close()


async def test_an_error_comes_with_its_words_and_its_name(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        bus.answers["Ask"] = lambda call: [refused(call, f"{NAME}.UnitExists", "it is there already")]
        link = await opened(bus)
        with pytest.raises(RefusedCallError, match=r"^it is there already$") as error:
            await link.call(call(), within_seconds=WITHIN_SECONDS)
        assert error.value.name == f"{NAME}.UnitExists"
        await link.close()


async def test_a_call_that_is_not_answered_ends_in_time_and_the_connection_stays(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        bus.answers["Ask"] = lambda _: []
        link = await opened(bus)
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.05 s"):
            await link.call(call(), within_seconds=0.05)
        assert not link.lost.is_set()
        bus.answers["Ask"] = lambda call: [returned(call, "s", "now")]
        assert await link.call(call(), within_seconds=WITHIN_SECONDS) == ("now",)
        await link.close()


async def test_a_bus_that_goes_away_is_noticed_at_once(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        link = await opened(bus)
        bus.hang_up()
        with anyio.fail_after(LIMIT_SECONDS):
            await link.lost.wait()
        with pytest.raises(BusError, match="the connection broke"):
            await link.call(call(), within_seconds=WITHIN_SECONDS)
        await link.close()
        await link.close()


async def test_a_call_under_way_ends_with_the_connection(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        bus.answers["Ask"] = lambda _: []
        link = await opened(bus)

        async def hang_up() -> None:
            await until(lambda: bus.members[-1] == "Ask")
            bus.hang_up()

        async with anyio.create_task_group() as beside:
            beside.start_soon(hang_up)
            with pytest.raises(BusError, match="the connection broke"):
                await link.call(call(), within_seconds=LIMIT_SECONDS)
        assert link.lost.is_set()
        await link.close()


# Signals


async def test_the_signals_that_match_are_heard_from_then_on(path: Path) -> None:
    async with serving(FakeBus(path)) as bus:
        bus.answers["Ask"] = lambda call: [removed("/before"), returned(call)]
        link = await opened(bus)
        await link.call(call(), within_seconds=WITHIN_SECONDS)
        with link.signals(SIGNAL) as heard:
            bus.send(removed("/a"), removed("/b"))
            with anyio.fail_after(LIMIT_SECONDS):
                assert [(await heard.get()).body[1] for _ in range(2)] == ["/a", "/b"]
        await link.close()
