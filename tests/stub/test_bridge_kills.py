"""Calls through the bridge while the daemon is killed: each is answered, and none has an effect twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import success
from tests.support.bridge_process import BridgeProcess, bridge_to
from tests.support.daemon_harness import Setting
from tests.support.sockets import free_port

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

AT_ONCE = 6
UNCERTAIN = "may or may not have taken effect"


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """Run a daemon that has the same address at each start."""
    limits = {"max_running": 2 * AT_ONCE}
    return make_daemon(Setting(top={"listen": [f"127.0.0.1:{free_port()}"]}, limits=limits)).boot()


def ask_much(daemon: Daemon, bridge: BridgeProcess, prefix: str) -> dict[int, str]:
    """Start many subagents and ask for the status as often; return the calls by their ids."""
    calls: dict[int, str] = {}
    for number in range(AT_ONCE):
        name = f"{prefix}-{number}"
        daemon.script(name, success())
        calls[bridge.call("start", name=name, prompt_file="recipe.md")] = name
        calls[bridge.call("status")] = ""
    return calls


@pytest.mark.parametrize("answers_before", [0, 1, 3, 6])
def test_a_kill_loses_no_answer_and_repeats_no_start(daemon: Daemon, answers_before: int) -> None:
    with bridge_to(daemon.port) as bridge:
        calls = ask_much(daemon, bridge, f"k{answers_before}")
        messages = [bridge.heard() for _ in range(answers_before)]
        daemon.kill()
        daemon.boot()
        messages += [bridge.heard() for _ in range(len(calls) - answers_before)]
    assert sorted(message["id"] for message in messages) == sorted(calls)
    for message in messages:
        check(daemon, calls[message["id"]], message["result"])


def check(daemon: Daemon, started: str, result: dict[str, Any]) -> None:
    """Compare what the answer to a call says with what has become of the subagent."""
    if not started:
        # Asked for again, and again; only a daemon that takes very long to come back is not waited for.
        assert not result["isError"] or result["content"][0]["text"].startswith("No daemon")
    elif result["isError"]:
        assert UNCERTAIN in result["content"][0]["text"] or not daemon.loose_ends(started)
        assert len(daemon.loose_ends(started)) <= 1
    else:
        assert daemon.loose_end(started)["turn"] == result["structuredContent"]["turn"]
        assert len(daemon.loose_ends(started)) == 1
