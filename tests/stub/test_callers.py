"""A call is code execution: who is refused at the door of a real daemon."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import call, forever, held, init, reach, result, spawn

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

KINDS = [
    pytest.param({}, id="a-tool"),
    pytest.param({"own_session": True}, id="a-tool-in-a-session-of-its-own"),
    pytest.param({"own_session": True, "double_fork": True}, id="an-orphan-of-a-tool"),
    pytest.param({"own_session": True, "scrubbed": True}, id="a-tool-with-an-empty-environment"),
]


def status_of(daemon: Daemon, **headers: str) -> int:
    """Send a request with these headers and return the status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    try:
        connection.request("POST", "/mcp", b"{}", {"Content-Type": "application/json"} | headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_claude_itself_may_not_call_the_daemon_that_runs_it(daemon: Daemon, name: str) -> None:
    """A subagent must not start subagents of its own."""
    daemon.play(name, [init(), call(daemon.port, f"{name}.answer"), result()])
    daemon.reached(f"{name}.answer")
    assert " 403" in (daemon.scripts / f"{name}.answer").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_nor_may_anything_that_it_started(daemon: Daemon, name: str, kind: dict[str, object]) -> None:
    """Its tools are part of the turn, however they were started."""
    child = spawn(f"{name}.child", calls=daemon.port) | kind
    daemon.start(name, [init(), child, reach(f"{name}.up"), forever()])
    daemon.reached(f"{name}.up")
    assert " 403" in (daemon.scripts / f"{name}.child.answer").read_text()


def test_foreign_hosts_and_any_origin_are_refused(daemon: Daemon) -> None:
    """A web page must not reach the daemon through a name that leads to loopback (case I3)."""
    assert status_of(daemon, Host="evil.example") == 421
    assert status_of(daemon, Origin="https://evil.example") == 403
    assert status_of(daemon, Origin="null") == 403


def test_the_parent_is_not_taken_for_a_turn(daemon: Daemon, name: str) -> None:
    """While turns run, the caller outside of them is served."""
    daemon.start(name, held(f"{name}.go"))
    assert daemon.status_of(name)["state"] == "running"
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name)
