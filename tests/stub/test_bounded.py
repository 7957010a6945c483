"""Bounded turns and waiting for them, from outside: time, budget and rounds; the first end answers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import exit_with, forever, held, init, on_signal, reach, result, sleep, success
from tests.support.daemon_harness import Daemon, Setting
from tests.support.mcp_call import Answer, HttpError
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.conftest import MakeDaemon


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Use some threads for calls that wait."""
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_a_turn_over_its_time_is_interrupted_and_says_so(daemon: Daemon, name: str) -> None:
    pid = daemon.start(name, [init(), forever()], success("resumed"), timeout_seconds=1).content["pid"]
    assert daemon.status_of(name)["timeout_seconds"] == 1
    end = daemon.loose_end(name)
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "timeout", "SIGINT")
    assert "it had 1 s" in end["error"]
    assert end["duration_seconds"] >= 1
    assert not is_alive(pid)
    again = daemon.ok("continue", name=name, prompt="go on").content
    assert again["previous_turn"]["cause"] == "timeout"
    assert daemon.loose_end(name, turn=again["turn"])["outcome"] == "completed"


@pytest.mark.timeout(90)
def test_a_turn_that_ignores_its_time_out_is_killed(daemon: Daemon, name: str) -> None:
    """Ten seconds after the interrupt, with all that it has started."""
    stays = on_signal("SIGINT", [sleep(60)])
    daemon.start(name, [init(), stays, reach(f"{name}.up"), forever()], timeout_seconds=0.5)
    end = daemon.loose_end(name, within=30)
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "timeout", "SIGKILL")


def test_a_result_from_before_the_time_out_wins(own_daemon: Daemon) -> None:
    own_daemon.start(
        "late", [init(), result("finished"), on_signal("SIGINT", []), forever()], timeout_seconds=1
    )
    end = own_daemon.loose_end("late")
    assert (end["outcome"], end["text"]) == ("completed", "finished")


def test_configured_bounds_hold_where_none_are_given(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(Setting(limits={"timeout_seconds": 1, "max_turns": 5, "max_budget_usd": 1.5})).boot()
    pid = daemon.start("usual", [init(), forever()]).content["pid"]
    now = daemon.status_of("usual")
    assert (now["timeout_seconds"], now["max_turns"], now["max_budget_usd"]) == (1, 5, 1.5)
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    assert {"--max-turns=5", "--max-budget-usd=1.500000"} <= set(command)
    daemon.start("patient", held("patient.go"), timeout_seconds=600)
    assert daemon.loose_end("usual")["cause"] == "timeout"
    assert daemon.status_of("patient")["state"] == "running"
    daemon.open_gate("patient.go")
    assert daemon.loose_end("patient")["outcome"] == "completed"


@pytest.mark.parametrize(
    ("subtype", "error_class", "told"),
    [
        ("error_max_turns", "turns", "reached its max_turns of 2"),
        ("error_max_budget_usd", "budget", "reached its max_budget_usd of 0.25"),
    ],
)
def test_a_turn_at_its_own_bound_failed_and_is_no_wall_for_others(
    own_daemon: Daemon, subtype: str, error_class: str, told: str
) -> None:
    ended = [init(), result("", is_error=True, subtype=subtype, total_cost_usd=0.26), exit_with(1)]
    for name in ("a", "b"):
        end = own_daemon.play(name, ended, max_turns=2, max_budget_usd=0.25)
        assert (end["outcome"], end["error_class"], end["cost_usd"]) == ("failed", error_class, 0.26)
        assert told in end["error"]
    warnings = own_daemon.ok("status").content["warnings"]
    assert not [warning for warning in warnings if "failed alike" in warning]


# Waiting


def test_a_wait_answers_at_the_first_end_while_other_calls_go_on(
    own_daemon: Daemon, pool: ThreadPoolExecutor
) -> None:
    daemon = own_daemon
    for name in ("a", "b"):
        daemon.start(name, held(f"{name}.go"))
    waiting = pool.submit(daemon.ok, "wait")
    assert daemon.status_of("a")["state"] == "running", "the daemon answers others meanwhile"
    assert not waiting.done()
    daemon.open_gate("b.go")
    answer = waiting.result(20)
    assert (answer.content["ended"], answer.content["timed_out"]) == (["b"], False)
    assert "Ended: b." in answer.text
    assert daemon.ok("wait", names=["a"], timeout_seconds=0.2).content["timed_out"] is True
    daemon.open_gate("a.go")
    assert daemon.ok("wait", names=["a"]).content["ended"] == ["a"]
    assert daemon.ok("wait").content["subagents"] == []


def test_a_wait_for_an_unknown_name_is_refused(daemon: Daemon) -> None:
    assert "no turn of 'nobody'" in daemon.refused("wait", names=["nobody"])


def test_a_stop_does_not_wait_for_those_who_wait(own_daemon: Daemon, pool: ThreadPoolExecutor) -> None:
    """They are told, and the stop takes no longer than it would without them."""
    own_daemon.start("a", [init(), forever()])
    asked = threading.Barrier(9)

    def wait() -> Answer | HttpError:
        """Return the answer, or the refusal of one that came too late."""
        asked.wait(10)
        try:
            return own_daemon.call("wait")
        except HttpError as error:
            return error

    calls = [pool.submit(wait) for _ in range(8)]
    asked.wait(10)
    eventually(lambda: own_daemon.ok("status").content["subagents"][0]["running_seconds"] > 0.5)
    before = time.monotonic()
    assert own_daemon.stop() == 0
    assert time.monotonic() - before < 5
    said = [str(getattr(call.result(10), "text", "")) or str(call.result(10)) for call in calls]
    assert all("stopping" in text for text in said), said
