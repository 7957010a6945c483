"""Socket activation: the sockets outlive the daemon, and nobody who connects to them is ever turned away."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.stub.conftest import assert_without_fault
from tests.stub.steps import dump, held, success
from tests.support.activation import ActivatedDaemon
from tests.support.calling import Caller, UnixConnection, Waiting, await_answers, finish, health, queued
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    MakeActivated = Callable[..., ActivatedDaemon]

CALLERS = 6
CALLS_BETWEEN = 30
DELAYED_SECONDS = 0.04  # what each answer costs without TCP_NODELAY
OF_SYSTEMD = {
    "INVOCATION_ID": "0123",
    "WATCHDOG_USEC": "30000000",
    "JOURNAL_STREAM": "8:1",
    "STATE_DIRECTORY": "/none",
    "CREDENTIALS_DIRECTORY": "/none",
}
WITHHELD = (
    "LISTEN_",
    "WATCHDOG_",
    "NOTIFY_SOCKET",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "STATE_",
    "CREDENTIALS_",
)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Hold a listening socket open, as systemd does."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as held:
        yield held


@pytest.fixture
def make_activated(tmp_path: Path, claude_program: Path, listening: socket.socket) -> Iterator[MakeActivated]:
    """Return a maker of daemons that get the held socket and others; all are stopped afterwards."""
    made: list[ActivatedDaemon] = []

    def make(
        *more: socket.socket, setting: Setting | None = None, claude: Path = claude_program
    ) -> ActivatedDaemon:
        folder = tmp_path / f"d{len(made)}"
        made.append(ActivatedDaemon(folder, claude, sockets=[listening, *more], setting=setting))
        return made[-1]

    yield make
    for one in made:
        one.shut()
        assert_without_fault(one.log)


def test_every_passed_socket_is_served_without_delay_and_outlives_the_daemon(
    make_activated: MakeActivated, tmp_path: Path
) -> None:
    """Over IPv4, IPv6 and a Unix socket that others may open too, also after a restart."""
    path = tmp_path / "s"
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as v6,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix,
    ):
        unix.bind(str(path))
        unix.listen()
        path.chmod(0o666)
        daemon = make_activated(v6, unix).boot()
        for _ in range(2):
            for connection in (
                http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20),
                http.client.HTTPConnection("::1", v6.getsockname()[1], timeout=20),
                UnixConnection(path),
            ):
                with contextlib.closing(connection):
                    assert min(health(connection) for _ in range(11)) < DELAYED_SECONDS / 2
            daemon.restart()
    assert (path.is_socket(), path.stat().st_mode & 0o777) == (True, 0o666)
    assert "systemd passed in 3 sockets: they decide the addresses, not `listen`" in daemon.log


def test_passed_sockets_win_over_the_configured_addresses(
    make_activated: MakeActivated, listening: socket.socket
) -> None:
    """Those are not even tried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = make_activated(setting=Setting(top={"listen": [address]})).boot()
        assert daemon.port == listening.getsockname()[1]
        assert address not in daemon.log


def test_a_passed_socket_that_is_no_good_is_named(make_activated: MakeActivated) -> None:
    """With its number, its name and the option that has to be changed."""
    with socket.create_server(("0.0.0.0", 0)) as open_to_all:
        daemon = make_activated(open_to_all)
        assert daemon.spawn().wait(20) == 1
        daemon.process = None
    said = daemon.log.splitlines()[-1]
    assert (
        "the passed descriptor 4 (hive.socket) is no good, listen address 0.0.0.0 is not a loopback" in said
    )
    assert "ListenStream=127.0.0.1:PORT" in said


def test_the_first_callers_wait_until_the_daemon_answers(
    make_activated: MakeActivated, listening: socket.socket
) -> None:
    """As does everybody who comes while it is down."""
    callers = [Waiting(listening.getsockname()[1]) for _ in range(3)]
    eventually(lambda: queued(listening) == 3, what="three callers in the queue")
    make_activated().boot()
    for caller in callers:
        caller.join(20)
    assert [caller.answer[:12] for caller in callers] == ["No subagents"] * 3


def test_callers_in_the_queue_of_a_killed_daemon_are_answered_by_the_next_one(
    make_activated: MakeActivated, listening: socket.socket
) -> None:
    """Not one of them sees a reset."""
    daemon = make_activated().boot()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    callers = [Waiting(daemon.port) for _ in range(5)]
    eventually(lambda: queued(listening) == 5, what="five callers in the queue")
    daemon.kill()
    daemon.boot()
    for caller in callers:
        caller.join(20)
    assert [caller.answer[:12] for caller in callers] == ["No subagents"] * 5


@pytest.mark.parametrize(
    "restarts", [pytest.param(5, id="few"), pytest.param(20, id="many", marks=pytest.mark.long)]
)
def test_no_call_is_lost_over_restarts_under_load(
    make_activated: MakeActivated, listening: socket.socket, restarts: int
) -> None:
    """Each is answered, if only by the word that the daemon is stopping, or waits for the next start."""
    daemon = make_activated().boot()
    callers = [Caller(listening.getsockname()[1], tool=number % 2 == 0) for number in range(CALLERS)]
    try:
        for _ in range(restarts):
            await_answers(callers, CALLS_BETWEEN)
            daemon.restart()
        await_answers(callers, CALLS_BETWEEN)
    finally:
        finish(callers)
    assert [loss for caller in callers for loss in caller.losses] == []
    assert min(caller.longest_seconds for caller in callers) > 0.1, "no caller met a daemon that was down"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """Be the systemd that is notified."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(20)
        yield notified


def heard_until(systemd: socket.socket, last: str) -> list[str]:
    """Return what is said, without pings, up to this message."""
    messages: list[str] = []
    while last not in messages:
        messages.append(systemd.recv(4096).decode())
    return [message.partition("\nMONOTONIC_USEC=")[0] for message in messages if message != "WATCHDOG=1"]


def test_systemd_is_told_how_the_daemon_is(make_activated: MakeActivated, systemd: socket.socket) -> None:
    """From READY over what runs and a reload to STOPPING, and the watchdog all the time."""
    outer = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "100000"}
    daemon = make_activated(setting=Setting(outer_environment=outer))
    process = daemon.spawn()
    assert heard_until(systemd, "READY=1") == ["STATUS=0 running, 0 loose ends", "READY=1"]
    daemon.start("a", held("go"))
    assert heard_until(systemd, "STATUS=1 running, 0 loose ends")
    daemon.open_gate("go")
    assert heard_until(systemd, "STATUS=0 running, 1 loose end")
    process.send_signal(signal.SIGHUP)
    assert heard_until(systemd, "READY=1") == ["RELOADING=1", "READY=1"]
    assert heard_until(systemd, "WATCHDOG=1") == []
    process.send_signal(signal.SIGTERM)
    assert heard_until(systemd, "STOPPING=1") == ["STOPPING=1"]
    assert daemon.ends() == 0


def test_no_child_hears_of_sockets_notifications_or_the_watchdog(
    make_activated: MakeActivated, systemd: socket.socket, claude_program: Path, tmp_path: Path
) -> None:
    """Neither a turn nor claude when it is asked for its version; and no socket is inherited."""
    claude = tmp_path / "claude-that-tells"
    seen = tmp_path / "seen"
    lines = ["#!/bin/sh", f'[ "$1" != --version ] || {{ env; ls -l /proc/self/fd; }} > {seen}']
    claude.write_text("\n".join([*lines, f'exec {claude_program} "$@"']) + "\n")
    claude.chmod(0o755)
    outer = OF_SYSTEMD | {"NOTIFY_SOCKET": systemd.getsockname()}
    daemon = make_activated(setting=Setting(outer_environment=outer), claude=claude).boot()
    daemon.play("a", [dump("a.dump"), *success()])
    turn = daemon.seen("a.dump")
    assert [name for name in turn["environment"] if name.startswith(WITHHELD)] == []
    assert [file["target"] for file in turn["files"].values() if file["target"].startswith("socket:")] == []
    eventually(lambda: "claude is" in daemon.log, what="claude's version")
    asked = seen.read_text()
    assert [line for line in asked.splitlines() if line.startswith(WITHHELD)] == []
    assert ("HOME=" in asked, "socket:" in asked) == (True, False)
