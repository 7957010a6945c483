"""How a turn ended is judged from all that claude left behind, and told in its loose end."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.facts import about
from tests.stub.outcome_cases import COMPLETED, FAILED, KILLED, LIMITS
from tests.stub.steps import (
    api_error,
    assistant,
    exit_with,
    forever,
    init,
    interrupted_result,
    reach,
    result,
    stderr,
    success,
    tool_result,
    tool_use,
)

if TYPE_CHECKING:
    from tests.stub.steps import Step
    from tests.support.daemon_harness import Daemon


@pytest.mark.parametrize("steps", COMPLETED)
def test_a_turn_with_a_last_successful_result_is_completed(
    daemon: Daemon, name: str, steps: list[Step]
) -> None:
    """The result that counts is the last one, whatever was printed around it."""
    end = daemon.play(name, steps)
    assert (end["outcome"], end["error_class"], end["text"]) == ("completed", None, "all done")
    assert (end["cause"], end["signal"], end["error"]) == (None, None, None)


@pytest.mark.parametrize(("steps", "error_class"), FAILED)
def test_a_turn_without_a_usable_result_is_failed_with_the_class_of_its_error(
    daemon: Daemon, name: str, steps: list[Step], error_class: str
) -> None:
    """No error is ever reported as success, and each says what kind it is, in words too."""
    end = daemon.play(name, steps)
    assert (end["outcome"], end["error_class"]) == ("failed", error_class)
    assert end["error"], "a failure without a reason"
    assert daemon.status_of(name)["state"] == "idle"
    assert daemon.status_of(name)["last_turn"]["error_class"] == error_class


@pytest.mark.parametrize(("steps", "signal_name"), KILLED)
def test_a_turn_that_died_by_a_signal_nobody_here_sent_is_killed_for_an_unknown_cause(
    daemon: Daemon, name: str, steps: list[Step], signal_name: str
) -> None:
    """The notice says that it was killed mid-turn, and by what."""
    end = daemon.play(name, steps)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", signal_name, "unknown")
    assert "killed" in end["title"]
    assert daemon.status_of(name)["state"] == "killed"


@pytest.mark.parametrize(
    ("number", "signal_name"),
    [
        pytest.param(signal.SIGTERM, "SIGTERM", id="facts-3-sigterm-from-outside"),
        pytest.param(signal.SIGHUP, "SIGHUP", id="facts-3-sighup-from-outside"),
        pytest.param(signal.SIGKILL, "SIGKILL", id="facts-3-sigkill-from-outside"),
    ],
)
def test_a_signal_from_outside_is_told_by_name(
    daemon: Daemon, name: str, number: int, signal_name: str
) -> None:
    """A person who kills the process by hand is seen as what it is."""
    pid = daemon.start(name, [init(), assistant("half"), reach(f"{name}.up"), forever()]).content["pid"]
    daemon.reached(f"{name}.up")
    os.kill(pid, number)
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", signal_name, "unknown")
    assert end["text"] == "half", "case F5: the text so far is carried"


@about("facts-2-interrupted")
def test_an_interrupt_from_outside_is_no_success(daemon: Daemon, name: str) -> None:
    """An aborted result with exit code 0 is never called completed."""
    end = daemon.play(name, [init(), interrupted_result(), exit_with(0)])
    assert end["outcome"] in {"failed", "killed"}


@about("case-J2", "case-J3")
@pytest.mark.parametrize(("steps", "until"), LIMITS)
def test_a_usage_limit_says_until_when_and_nothing_starts_by_itself(
    daemon: Daemon, name: str, steps: list[Step], until: str
) -> None:
    """The parent learns when to come back; the daemon never resumes on its own."""
    end = daemon.play(name, steps)
    assert (end["outcome"], end["error_class"]) == ("failed", "limit")
    assert until in str(end["limited_until"])
    assert daemon.status_of(name)["state"] == "idle"
    assert len(daemon.loose_ends(name)) == 1


@about("case-H2", "facts-8-401")
def test_an_auth_failure_carries_a_hint(daemon: Daemon, name: str) -> None:
    """Claude's own words stand in the error."""
    end = daemon.play(name, [init(), *api_error(401, "Invalid API key · Fix external API key")])
    assert "Invalid API key" in end["error"]


@about("case-D5", "facts-12-background-mode")
def test_a_session_held_by_claudes_own_background_daemon_fails_with_its_words(
    daemon: Daemon, name: str
) -> None:
    """The refusal is reported once, and nothing is tried again."""
    words = "Error: Session abc is currently running as a background agent. Use `claude agents` to attach."
    daemon.play(name, success(), [stderr(words), exit_with(1)])
    end = daemon.resume(name)
    assert end["outcome"] == "failed"
    assert "background agent" in end["error"]
    assert daemon.status_of(name)["state"] == "idle"
    assert len(daemon.loose_ends(name)) == 2


@about("case-A4")
def test_the_text_of_a_turn_without_a_result_is_what_the_model_said_last(daemon: Daemon, name: str) -> None:
    """Nothing that was said is lost."""
    steps = [init(), assistant("first"), tool_use("Read"), tool_result(), assistant("the last words")]
    assert daemon.play(name, steps)["text"] == "the last words"


@about("facts-5-local-command-results", "case-G5")
def test_a_success_without_rounds_and_text_is_completed_with_a_warning(daemon: Daemon, name: str) -> None:
    """An empty answer is flagged."""
    end = daemon.play(name, [init(), result("", num_turns=0)])
    assert end["outcome"] == "completed"
    assert end["warnings"], "an empty success needs a warning"


def test_the_numbers_of_a_turn_are_claudes_own(daemon: Daemon, name: str) -> None:
    """Cost, rounds, model and session are those of the last result and init."""
    fields: dict[str, Any] = {"total_cost_usd": 0.5, "num_turns": 7}
    end = daemon.play(name, [init(model="claude-opus-x"), result(**fields)])
    assert (end["cost_usd"], end["rounds"], end["model"]) == (0.5, 7, "claude-opus-x")
    assert end["duration_seconds"] >= 0
    assert end["started_at"] <= end["ended_at"]
