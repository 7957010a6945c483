"""Bounds that claude itself keeps to, and the one of the daemon, on turns of the real claude."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.claude.real_daemon import RealDaemon

ROUNDS = "[[bash: echo one]]\n[[bash: echo two]]\n[[bash: echo three]]\n[[say: done]]"


@pytest.mark.shows("facts-2-max-turns")
def test_claude_ends_a_turn_at_its_rounds(daemon: RealDaemon) -> None:
    end = daemon.play("rounds", trigger=ROUNDS, max_turns=2)
    assert (end["outcome"], end["error_class"]) == ("failed", "turns")
    assert "reached its max_turns of 2" in end["error"]
    assert daemon.play("enough", trigger=ROUNDS, max_turns=10)["outcome"] == "completed"


@pytest.mark.shows("facts-2-max-budget-has-no-terminal-reason")
def test_claude_ends_a_turn_at_its_budget(daemon: RealDaemon) -> None:
    end = daemon.play("budget", trigger=ROUNDS, max_budget_usd=0.000001)
    assert (end["outcome"], end["error_class"]) == ("failed", "budget")
    assert "reached its max_budget_usd of 1e-06" in end["error"]
    assert end["cost_usd"] > 0


def test_a_turn_over_its_time_shuts_down_by_itself(daemon: RealDaemon) -> None:
    end = daemon.play("slow", trigger="[[bash: sleep 600]]\n[[say: never]]", timeout_seconds=4)
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "timeout", "SIGINT")
    again = daemon.ok("continue", name="slow", prompt="[[say: I am back]]").content
    assert daemon.loose_end("slow", turn=again["turn"])["text"] == "I am back"
