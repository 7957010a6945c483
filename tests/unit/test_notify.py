"""What systemd hears: each message as it reads it, never twice the same status, and nothing that can fail."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from hive_subagent_daemon import notify
from hive_subagent_daemon.notify import Notifier, status_line

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
MakeNotifier = Callable[..., Notifier]


class Systemd:
    """The other end of the notification socket."""

    def __init__(self, address: str) -> None:
        """Listen for messages."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """Return the messages since the last look."""
        messages: list[str] = []
        try:
            while True:
                messages.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return messages

    async def next_messages(self, number: int) -> list[str]:
        """Wait for so many messages."""
        messages: list[str] = []
        with anyio.fail_after(20):
            while len(messages) < number:
                await anyio.wait_readable(self.socket)
                messages += self.heard()
        return messages


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """Be systemd."""
    listening = Systemd(str(tmp_path / "notify"))
    with listening.socket:
        yield listening


@pytest.fixture
def notifier_with(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNotifier]:
    """Return a maker of notifiers in exactly the environment that it is given."""
    with ExitStack() as made:

        def make(**environment: str) -> Notifier:
            for variable in VARIABLES:
                monkeypatch.delenv(variable, raising=False)
            for variable, value in environment.items():
                monkeypatch.setenv(variable, value)
            notifier = Notifier()
            made.callback(notifier.close)
            return notifier

        yield make


@pytest.fixture
def notifier(notifier_with: MakeNotifier, systemd: Systemd) -> Notifier:
    """Be connected."""
    return notifier_with(NOTIFY_SOCKET=systemd.socket.getsockname())


def test_the_life_of_a_service_is_told(notifier: Notifier, systemd: Systemd) -> None:
    notifier.ready()
    notifier.status("2 running, 5 loose ends")
    notifier.stopping()
    assert systemd.heard() == ["READY=1", "STATUS=2 running, 5 loose ends", "STOPPING=1"]


def test_a_reload_carries_the_time_by_which_systemd_knows_it(notifier: Notifier, systemd: Systemd) -> None:
    before = time.monotonic_ns() // 1000
    notifier.reloading()
    [message] = systemd.heard()
    lines = dict(line.split("=") for line in message.splitlines())
    assert (list(lines), lines["RELOADING"]) == (["RELOADING", "MONOTONIC_USEC"], "1")
    assert before <= int(lines["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000


def test_a_status_is_sent_only_when_it_has_changed(notifier: Notifier, systemd: Systemd) -> None:
    for text in ("0 running", "0 running", "1 running", "0 running"):
        notifier.status(text)
    assert systemd.heard() == ["STATUS=0 running", "STATUS=1 running", "STATUS=0 running"]


def test_a_status_is_one_line_of_unicode_that_can_say_nothing_else(
    notifier: Notifier, systemd: Systemd
) -> None:
    notifier.status("müde…\nMAINPID=1\n")
    assert systemd.heard() == ["STATUS=müde… MAINPID=1"]


@pytest.mark.parametrize(
    ("running", "loose_ends", "trouble", "line"),
    [
        (0, 0, None, "0 running, 0 loose ends"),
        (2, 1, None, "2 running, 1 loose end"),
        (2, 5, "the disk is full", "the disk is full; 2 running, 5 loose ends"),
    ],
)
def test_the_line_counts_what_runs_and_what_is_open(
    running: int, loose_ends: int, trouble: str | None, line: str
) -> None:
    assert status_line(running=running, loose_ends=loose_ends, trouble=trouble) == line


def test_an_abstract_socket_is_reached_too(notifier_with: MakeNotifier) -> None:
    listening = Systemd(f"\0notify-{os.getpid()}")
    with listening.socket:
        notifier_with(NOTIFY_SOCKET=f"@notify-{os.getpid()}").ready()
        assert listening.heard() == ["READY=1"]


def test_children_hear_nothing_of_it(notifier_with: MakeNotifier, systemd: Systemd) -> None:
    """Neither the socket nor the watchdog is theirs."""
    address = systemd.socket.getsockname()
    notifier_with(NOTIFY_SOCKET=address, WATCHDOG_USEC="2000000", WATCHDOG_PID=str(os.getpid())).ready()
    with os.popen("env") as env:
        assert [line for line in env if line.startswith(VARIABLES)] == []
    assert systemd.heard() == ["READY=1"]


async def say_everything(notifier: Notifier) -> None:
    """Use every verb."""
    notifier.ready()
    notifier.status("0 running, 0 loose ends")
    notifier.reloading()
    notifier.stopping()
    with anyio.move_on_after(0.05):
        await notifier.ping()


@pytest.mark.parametrize("address", [None, ""], ids=["unset", "empty"])
async def test_it_is_silent_without_systemd(
    notifier_with: MakeNotifier, address: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"WATCHDOG_USEC": "20000"} | ({} if address is None else {"NOTIFY_SOCKET": address})
    await say_everything(notifier_with(**environment))
    assert caplog.records == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("address", ["/nowhere/notify", "junk", "x" * 200])
async def test_a_socket_that_is_not_there_is_told_once_and_no_trouble(
    notifier_with: MakeNotifier, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    await say_everything(notifier_with(NOTIFY_SOCKET=address, WATCHDOG_USEC="20000"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "cannot be reached" in caplog.text


async def test_a_socket_that_goes_away_is_told_once_and_no_trouble(
    notifier_with: MakeNotifier, systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = notifier_with(NOTIFY_SOCKET=systemd.socket.getsockname(), WATCHDOG_USEC="20000")
    systemd.socket.close()
    await say_everything(notifier)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "does not take messages" in caplog.text


def test_a_systemd_that_does_not_read_blocks_nobody_for_long(
    notifier_with: MakeNotifier, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a status that was not taken is said again."""
    monkeypatch.setattr(notify, "SEND_LIMIT_SECONDS", 0.02)
    notifier = notifier_with(NOTIFY_SOCKET=systemd.socket.getsockname())
    began = time.monotonic()
    sent = 0
    while not notifier.is_failing:
        notifier.status(f"{sent}")
        sent += 1
        assert time.monotonic() < began + 5
    assert systemd.heard()[-1] == f"STATUS={sent - 2}"
    notifier.status(f"{sent - 1}")
    assert systemd.heard() == [f"STATUS={sent - 1}"]


async def test_the_watchdog_is_pinged_at_once_and_twice_in_each_interval(
    notifier_with: MakeNotifier, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    notifier = notifier_with(NOTIFY_SOCKET=systemd.socket.getsockname(), WATCHDOG_USEC="30000000")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.ping)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert set(systemd.heard()) == {"WATCHDOG=1"}
    assert set(pauses) == {15.0}


def block(seconds: float) -> None:
    """Do what nothing in an event loop may do."""
    time.sleep(seconds)


async def test_a_blocked_event_loop_pings_no_more(notifier_with: MakeNotifier, systemd: Systemd) -> None:
    notifier = notifier_with(
        NOTIFY_SOCKET=systemd.socket.getsockname(), WATCHDOG_USEC="40000", WATCHDOG_PID=str(os.getpid())
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.ping)
        assert set(await systemd.next_messages(3)) == {"WATCHDOG=1"}
        block(0.2)
        assert systemd.heard() == []
        assert await systemd.next_messages(1) == ["WATCHDOG=1"]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("variable", ["WATCHDOG_USEC", "WATCHDOG_PID"])
@pytest.mark.parametrize("value", ["", "0", "-5", "soon", "1.5", "٣", "9" * 5000])
async def test_a_nonsense_value_is_told_and_then_ignored(
    notifier_with: MakeNotifier,
    systemd: Systemd,
    variable: str,
    value: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = {"WATCHDOG_USEC": "20000", "NOTIFY_SOCKET": systemd.socket.getsockname(), variable: value}
    notifier = notifier_with(**environment)
    with anyio.fail_after(1):
        await notifier.ping()
    assert systemd.heard() == []
    assert f"{variable} is {value!a}, which is no number above 0" in caplog.text


async def test_the_watchdog_of_another_process_is_not_pinged(
    notifier_with: MakeNotifier, systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    address = systemd.socket.getsockname()
    with anyio.fail_after(1):
        await notifier_with(NOTIFY_SOCKET=address, WATCHDOG_USEC="20000", WATCHDOG_PID="1").ping()
        await notifier_with(NOTIFY_SOCKET=address).ping()
    assert (systemd.heard(), caplog.records) == ([], [])


async def test_an_endless_interval_is_no_trouble(notifier_with: MakeNotifier, systemd: Systemd) -> None:
    address = systemd.socket.getsockname()
    notifier = notifier_with(NOTIFY_SOCKET=address, WATCHDOG_USEC="9" * 19)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.ping)
        assert await systemd.next_messages(1) == ["WATCHDOG=1"]
        tasks.cancel_scope.cancel()
