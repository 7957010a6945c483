"""Idle exit: a daemon with nothing to do is gone, and nobody notices but the memory."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.stub.conftest import assert_without_fault
from tests.stub.reloads import reload
from tests.stub.steps import sleep, success
from tests.support.activation import ActivatedDaemon
from tests.support.bridge_process import bridge_to
from tests.support.calling import Caller, finish, health
from tests.support.hooks import SILENCE, WAKE, hook
from tests.support.mcp_call import call_tool
from tests.support.processes import eventually
from tests.support.receivers import OK, Request, answer, receiving
from tests.support.scripted_daemon import Setting
from tests.support.socket_unit import SocketUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon

    MakeOnCall = Callable[..., SocketUnit]

IDLE_SECONDS = 0.4
# A turn that takes so long has seen several moments at which an idle daemon would have left.
LONG_SECONDS = 4 * IDLE_SECONDS
SHORT_SECONDS = 0.05
CALLERS = 3


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Hold a listening socket open, as systemd does."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as held:
        yield held


@pytest.fixture
def make_on_call(
    tmp_path: Path, claude_program: Path, listening: socket.socket
) -> Iterator[Callable[..., tuple[ActivatedDaemon, SocketUnit]]]:
    """Return a maker of a daemon that is started by whoever calls, and of what starts it."""
    with contextlib.ExitStack() as made:

        def make(
            seconds: float = IDLE_SECONDS, *, tables: dict[str, dict[str, object]] | None = None, **outer: str
        ) -> tuple[ActivatedDaemon, SocketUnit]:
            setting = Setting(
                top={"idle_exit_seconds": seconds}, tables=tables or {}, outer_environment=outer
            )
            daemon = ActivatedDaemon(tmp_path / "d", claude_program, sockets=[listening], setting=setting)
            made.callback(daemon.shut)
            made.callback(lambda: assert_without_fault(daemon.log))
            return daemon, made.enter_context(SocketUnit(daemon, listening))

        yield make


OnCall = tuple[ActivatedDaemon, SocketUnit]


@pytest.fixture
def on_call(make_on_call: Callable[..., OnCall]) -> OnCall:
    """Return a usual one."""
    return make_on_call()


def test_what_happened_before_an_exit_is_there_after_it(on_call: OnCall) -> None:
    """Open loose ends wait on the disk; a subagent goes on where it was, under another daemon."""
    daemon, unit = on_call
    end = daemon.play("a", success("first"))
    unit.is_gone(1)
    assert daemon.loose_ends("a") == [end]
    unit.is_gone(2)
    daemon.script("a", success("second"))
    assert daemon.resume("a")["text"] == "second"
    unit.is_gone(3)
    assert (unit.starts, unit.codes) == (3, [0, 0, 0])
    assert daemon.log.count("leaving after 0.4 s with nothing to do") == 3


def test_a_turn_keeps_the_daemon(on_call: OnCall) -> None:
    daemon, unit = on_call
    daemon.start("a", [sleep(LONG_SECONDS), *success("slowly")])
    unit.is_gone(1)
    assert_left_after_the_turn(daemon)
    assert daemon.loose_end("a")["text"] == "slowly"


def test_who_waits_keeps_the_daemon(on_call: OnCall) -> None:
    """Both a hook and the tool; and afterwards neither does."""
    daemon, unit = on_call
    daemon.start("a", [sleep(LONG_SECONDS), *success()])
    with hook(daemon.port) as waiting:
        told = daemon.ok("wait", names=["a"], timeout_seconds=60)
        assert told.content["subagents"][0]["state"] == "idle"
        assert waiting.told().code == WAKE
    assert_left_after_the_turn(daemon)
    unit.is_gone(1)
    assert hook(daemon.port).told() == SILENCE
    unit.is_gone(2)


def assert_left_after_the_turn(daemon: ActivatedDaemon) -> None:
    """Check that the daemon which began the turn has seen its end."""
    assert "ended: " in daemon.log.partition("leaving")[0]


def test_a_loose_end_that_a_sink_has_not_taken_keeps_the_daemon(
    make_on_call: Callable[..., OnCall],
) -> None:
    """It is tried again after one second and after two more."""
    answers = iter([answer(503), answer(503)])

    def reply(_request: Request) -> bytes:
        return next(answers, OK)

    with receiving(reply) as (sink, port):
        table = {"type": "http", "url": f"http://127.0.0.1:{port}/in"}
        daemon, unit = make_on_call(tables={"loose_ends": {"sinks": [table]}})
        end = daemon.play("a", success())
        sink.received(3, within=30)
        unit.is_gone(1)
        assert (unit.starts, set(sink.keys)) == (1, {end["id"]})
        assert daemon.ok("status").content["undelivered"] == 0


def test_an_idle_connection_does_not_keep_the_daemon(on_call: OnCall) -> None:
    """A client that keeps its connection sees it closed, and is answered on the next one."""
    daemon, unit = on_call
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as kept:
        health(kept)
        unit.is_gone(1)
        assert kept.sock.recv(1) == b""
        kept.close()
        health(kept)
    assert unit.starts == 2


def test_a_bridge_outlives_the_exits_of_its_daemon(on_call: OnCall) -> None:
    daemon, unit = on_call
    with bridge_to(daemon.port) as bridge:
        for exits in (1, 2, 3):
            assert bridge.result("status")["structuredContent"]["subagents"] == []
            unit.is_gone(exits)


def test_without_a_socket_unit_the_daemon_stays_and_says_so(make_daemon: MakeDaemon) -> None:
    """Nobody could start it again."""
    daemon = make_daemon(Setting(top={"idle_exit_seconds": SHORT_SECONDS})).boot()
    daemon.play("a", [sleep(LONG_SECONDS), *success()])
    [said] = [one for one in daemon.ok("status").content["warnings"] if "idle_exit_seconds" in one]
    assert "idle_exit_seconds = 0.05 is ignored" in said
    assert daemon.log.count("idle_exit_seconds") == 1


def test_a_reload_takes_another_time_over(make_on_call: Callable[..., OnCall]) -> None:
    daemon, unit = make_on_call(0)
    call_tool(daemon.port, "status", {})
    daemon.setting = Setting(top={"idle_exit_seconds": SHORT_SECONDS})
    daemon.write_config()
    reload(daemon)
    unit.is_gone(1)
    assert "leaving after 0.05 s" in daemon.log


def test_systemd_is_told_of_the_exit(make_on_call: Callable[..., OnCall], tmp_path: Path) -> None:
    """So that a stop that is asked for meanwhile is the same stop."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        daemon, unit = make_on_call(NOTIFY_SOCKET=systemd.getsockname())
        call_tool(daemon.port, "status", {})
        heard = []
        while "STOPPING=1" not in heard:
            heard.append(systemd.recv(4096).decode())
        assert heard.index("READY=1") < heard.index("STOPPING=1")
        unit.is_gone(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_during_the_exit_does_no_harm(on_call: OnCall, number: signal.Signals) -> None:
    """Each of these ends counts as clean for systemd; the next call finds a daemon."""
    daemon, unit = on_call
    for exits in (1, 2, 3):
        daemon.ok("status")
        _log_has(daemon, "leaving", exits)
        with contextlib.suppress(ProcessLookupError):
            assert daemon.process is not None
            daemon.process.send_signal(number)
        unit.has_seen(exits)
    assert set(unit.codes) <= {0, -number}


def _log_has(daemon: ActivatedDaemon, word: str, number: int) -> None:
    """Wait until a word has been logged so many times."""
    eventually(lambda: daemon.log.count(word) == number, within=30, what=f"{word} {number}")


@pytest.mark.parametrize(
    "activations", [pytest.param(8, id="few"), pytest.param(80, id="many", marks=pytest.mark.long)]
)
@pytest.mark.timeout(900)
def test_no_call_is_lost_or_refused_over_exits_under_load(
    make_on_call: Callable[..., OnCall], activations: int
) -> None:
    daemon, unit = make_on_call(SHORT_SECONDS)
    pause = 4 * SHORT_SECONDS
    callers = [Caller(daemon.port, tool=bool(each % 2), pause_seconds=pause) for each in range(CALLERS)]
    try:
        eventually(
            lambda: unit.starts > activations or any(caller.losses for caller in callers),
            within=600,
            what="many activations",
        )
    finally:
        finish(callers)
    assert [loss for caller in callers for loss in caller.losses] == []
    assert sum(caller.stopping_answers for caller in callers) == 0
    assert set(unit.codes) == {0}
    assert min(caller.answers for caller in callers) > 1
