"""The manager behind a bus: a scope is there when its job is done, and silence costs little time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import dbus_link, systemd_bus
from hive_subagent_daemon.dbus_link import BusError, NoAnswerError, RefusedCallError
from hive_subagent_daemon.systemd_bus import SystemdBus
from tests.unit.support_bus import (
    FAULTY,
    JOB,
    NAME,
    FakeBus,
    Manner,
    body,
    done,
    queued,
    refused,
    removed,
    returned,
    serving,
)
from tests.unit.support_turns import LIMIT_SECONDS, open_descriptors, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from jeepney import Message

PROPERTIES: list[systemd_bus.Property] = [("PIDs", ("au", [7])), ("Slice", ("s", "x.slice"))]
STEPS = ["Hello", "AddMatch", "Subscribe"]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait shortly for a manager that does not answer."""
    monkeypatch.setattr(dbus_link, "CONNECT_SECONDS", 0.5)
    for name in ("START_SECONDS", "STOP_SECONDS", "ASK_SECONDS"):
        monkeypatch.setattr(systemd_bus, name, 0.5)
    monkeypatch.setattr(systemd_bus, "RECONNECT_SECONDS", (0.01, 0.02))


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[FakeBus]:
    """Let a bus with a manager listen that does everything at once."""
    made = FakeBus(tmp_path / "bus")
    made.answers |= {"StartTransientUnit": done, "StopUnit": done, "Get": version}
    async with serving(made):
        yield made


@pytest.fixture
async def manager(bus: FakeBus) -> AsyncIterator[SystemdBus]:
    """Ask the manager behind that bus."""
    asked = SystemdBus(bus.socket)
    with anyio.fail_after(LIMIT_SECONDS):
        yield asked
        await asked.close()


def version(call: Message) -> list[Message]:
    """Answer what a property is."""
    known = {"Version": "257.13-1", "ControlGroup": "/user.slice"}
    return [returned(call, "v", ("s", known[body(call)[1]]))]


async def start(manager: SystemdBus) -> None:
    """Make a scope."""
    await manager.start_scope("x.scope", PROPERTIES)


async def stop(manager: SystemdBus) -> None:
    """Stop a slice."""
    await manager.stop_unit("x.slice")


async def look(manager: SystemdBus) -> None:
    """Look for a slice."""
    await manager.cgroup_of_slice("x.slice")


async def ask(manager: SystemdBus) -> None:
    """Ask who the manager is."""
    await manager.version_and_cgroup()


REQUESTS = [start, stop, look, ask]


# What is asked


async def test_the_manager_tells_its_version_and_its_cgroup(manager: SystemdBus) -> None:
    assert await manager.version_and_cgroup() == ("257.13-1", "/user.slice")
    assert manager.trouble is None


async def test_a_scope_is_asked_for_as_the_manager_wants_it(manager: SystemdBus, bus: FakeBus) -> None:
    """A name that is in use is an error, not a replacement."""
    await start(manager)
    assert body(bus.calls[-1]) == ("x.scope", "fail", PROPERTIES, [])


async def test_one_connection_serves_all_calls(manager: SystemdBus, bus: FakeBus) -> None:
    """And systemd sends no signals without a subscriber."""
    for _ in range(3):
        await start(manager)
    await stop(manager)
    assert bus.connected == 1
    assert bus.members == [*STEPS, *["StartTransientUnit"] * 3, "StopUnit"]


async def test_many_calls_at_once_share_one_connection_and_get_their_own_answers(
    manager: SystemdBus, bus: FakeBus
) -> None:
    jobs: list[str] = []

    def numbered(call: Message) -> list[Message]:
        """Give each call a job of its own, which is done when the last one is queued."""
        jobs.append(f"/job/{len(jobs)}")
        return [returned(call, "o", jobs[-1]), *(removed(job) for job in jobs if len(jobs) == 5)]

    bus.answers["StartTransientUnit"] = numbered
    async with anyio.create_task_group() as calls:
        for _ in range(5):
            calls.start_soon(start, manager)
    assert bus.connected == 1


# Jobs


@pytest.mark.parametrize("order", ["answer-first", "signal-first"])
async def test_a_scope_is_there_when_its_job_is_done(manager: SystemdBus, bus: FakeBus, order: str) -> None:
    """The signal can come before the answer."""
    told = {
        "answer-first": lambda call: [removed("/other"), queued(call), removed("/third"), removed()],
        "signal-first": lambda call: [removed("/other"), removed(), queued(call)],
    }
    bus.answers["StartTransientUnit"] = told[order]
    await start(manager)


async def test_a_job_of_somebody_else_is_not_waited_for(manager: SystemdBus, bus: FakeBus) -> None:
    bus.answers["StartTransientUnit"] = lambda call: [queued(call), removed("/other")]
    with pytest.raises(NoAnswerError, match=r"not done within 0\.5 s"):
        await start(manager)


@pytest.mark.parametrize("request_", [start, stop])
@pytest.mark.parametrize("result", ["failed", "canceled", "timeout", "dependency"])
async def test_a_job_that_fails_is_an_error_with_its_result(
    manager: SystemdBus, bus: FakeBus, request_: Callable[[SystemdBus], Awaitable[None]], result: str
) -> None:
    def failed(call: Message) -> list[Message]:
        """Queue a job that fails."""
        return [queued(call), removed(JOB, result=result)]

    bus.answers |= {"StartTransientUnit": failed, "StopUnit": failed}
    with pytest.raises(BusError, match=f"could not do it: {result}"):
        await request_(manager)


async def test_a_name_that_is_in_use_is_told_in_the_words_of_systemd(
    manager: SystemdBus, bus: FakeBus
) -> None:
    text = "Unit x.scope was already loaded or has a fragment file."
    bus.answers["StartTransientUnit"] = lambda call: [refused(call, f"{NAME}.UnitExists", text)]
    with pytest.raises(RefusedCallError) as error:
        await start(manager)
    assert (str(error.value), error.value.name) == (text, f"{NAME}.UnitExists")


async def test_stopping_what_is_not_there_is_fine_and_other_errors_are_told(
    manager: SystemdBus, bus: FakeBus
) -> None:
    bus.answers["StopUnit"] = lambda call: [refused(call, f"{NAME}.NoSuchUnit")]
    await stop(manager)
    bus.answers["StopUnit"] = lambda call: [refused(call, "org.freedesktop.DBus.Error.AccessDenied")]
    with pytest.raises(RefusedCallError):
        await stop(manager)


# Slices


async def test_the_cgroup_of_a_slice_is_told_as_long_as_there_is_one(
    manager: SystemdBus, bus: FakeBus
) -> None:
    bus.answers["GetUnit"] = lambda call: [returned(call, "o", "/unit/x")]
    assert await manager.cgroup_of_slice("x.slice") == "/user.slice"
    bus.answers["Get"] = lambda call: [returned(call, "v", ("s", ""))]
    assert await manager.cgroup_of_slice("x.slice") == ""
    bus.answers["Get"] = lambda call: [refused(call, "org.freedesktop.DBus.Error.UnknownObject")]
    assert await manager.cgroup_of_slice("x.slice") is None
    bus.answers["GetUnit"] = lambda call: [refused(call, f"{NAME}.NoSuchUnit")]
    assert await manager.cgroup_of_slice("x.slice") is None
    bus.answers["GetUnit"] = lambda call: [refused(call, "org.freedesktop.DBus.Error.AccessDenied")]
    with pytest.raises(RefusedCallError):
        await look(manager)


# No manager


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("manner", FAULTY, ids=[manner.name for manner in FAULTY])
async def test_a_bus_that_does_not_speak_is_an_error_in_time(
    tmp_path: Path, request_: Callable[[SystemdBus], Awaitable[None]], manner: Manner
) -> None:
    began = time.monotonic()
    async with serving(FakeBus(tmp_path / "bus", manner=manner)) as silent:
        manager = SystemdBus(silent.socket)
        with pytest.raises(BusError):
            await request_(manager)
        await manager.close()
    assert time.monotonic() - began < 5.0


async def test_no_bus_at_all_is_trouble_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    manager = SystemdBus(tmp_path / "bus")
    with pytest.raises(BusError, match="no systemd manager answers: the bus at"):
        await start(manager)
    assert manager.trouble is not None
    assert str(tmp_path / "bus") in manager.trouble
    await manager.close()


async def test_a_manager_that_takes_the_call_and_never_answers_is_an_error_in_time(
    manager: SystemdBus, bus: FakeBus
) -> None:
    """The connection is as it was afterwards."""
    for member in ("StartTransientUnit", "StopUnit", "GetUnit", "Get"):
        bus.answers[member] = lambda _: []
    for request in REQUESTS:
        with pytest.raises(NoAnswerError):
            await request(manager)
    bus.answers["StartTransientUnit"] = done
    await start(manager)
    assert bus.connected == 1


@pytest.mark.parametrize("manner", [Manner.SILENT, Manner.AUTHENTICATES, Manner.GREETS])
async def test_a_start_that_is_given_up_while_connecting_leaves_no_descriptor_open(
    tmp_path: Path, manner: Manner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd_bus, "START_SECONDS", 0.05)
    async with serving(FakeBus(tmp_path / "bus", manner=manner)) as silent:
        before = open_descriptors()
        manager = SystemdBus(silent.socket)
        for _ in range(3):
            with pytest.raises(BusError):
                await start(manager)
        await until(lambda: open_descriptors() <= before, what="the closing of the sockets")


# A bus that goes away


async def test_a_connection_that_broke_is_made_anew_by_the_next_call(
    manager: SystemdBus, bus: FakeBus
) -> None:
    await start(manager)
    before = open_descriptors()
    bus.hang_up()
    await until(lambda: open_descriptors() < before)
    await start(manager)
    assert bus.connected == 2
    assert bus.members[-4:] == [*STEPS, "StartTransientUnit"]
    await until(lambda: open_descriptors() <= before)


@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_call_under_way_ends_with_the_connection(
    manager: SystemdBus, bus: FakeBus, request_: Callable[[SystemdBus], Awaitable[None]]
) -> None:
    def hang_up(_: Message) -> list[Message]:
        """Close the connection instead of an answer."""
        bus.hang_up()
        return []

    for member in ("StartTransientUnit", "StopUnit", "GetUnit", "Get"):
        bus.answers[member] = hang_up
    with pytest.raises(BusError):
        await request_(manager)


async def test_the_connection_is_kept_and_trouble_is_told_while_there_is_none(
    manager: SystemdBus, bus: FakeBus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with anyio.create_task_group() as keeping:
        keeping.start_soon(manager.keep_connected)
        await until(lambda: bus.members == STEPS)
        assert manager.trouble is None
        bus.manner = Manner.CLOSES
        bus.hang_up()
        await until(lambda: manager.trouble)
        with pytest.raises(BusError, match="no systemd manager answers"):
            await start(manager)
        bus.manner = Manner.SPEAKS
        await until(lambda: manager.trouble is None)
        await start(manager)
        await until(lambda: "connected to systemd" in caplog.text)
        keeping.cancel_scope.cancel()
    assert caplog.text.count("is gone") == 1


async def test_a_connection_that_is_kept_is_made_anew_at_once(
    manager: SystemdBus, bus: FakeBus, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only by the next call."""
    caplog.set_level("INFO")
    async with anyio.create_task_group() as keeping:
        keeping.start_soon(manager.keep_connected)
        await until(lambda: bus.members == STEPS)
        bus.hang_up()
        await until(lambda: bus.members == STEPS * 2)
        await until(lambda: "again" in caplog.text)
        keeping.cancel_scope.cancel()


async def test_keeping_connected_outlives_a_manager_that_goes_while_it_is_asked(
    manager: SystemdBus, bus: FakeBus
) -> None:
    """As when the user's manager is restarted."""

    def hang_up(_: Message) -> list[Message]:
        """Close the connection instead of an answer."""
        bus.answers["Subscribe"] = lambda call: [returned(call)]
        bus.hang_up()
        return []

    bus.answers["Subscribe"] = hang_up
    async with anyio.create_task_group() as keeping:
        keeping.start_soon(manager.keep_connected)
        await until(lambda: bus.connected == 2)
        await start(manager)
        keeping.cancel_scope.cancel()


async def test_a_bus_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    manager = SystemdBus(tmp_path / "bus")
    late = FakeBus(tmp_path / "bus")
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as keeping:
            keeping.start_soon(manager.keep_connected)
            await until(lambda: manager.trouble)
            async with serving(late):
                await until(lambda: manager.trouble is None)
                keeping.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await manager.close()


async def test_closing_leaves_nothing_open(bus: FakeBus) -> None:
    before = open_descriptors()
    manager = SystemdBus(bus.socket)
    await start(manager)
    await manager.close()
    await until(lambda: open_descriptors() <= before)
    await SystemdBus(bus.socket).close()
