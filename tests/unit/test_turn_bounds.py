"""Bounds of a turn: given ones before configured ones, the time-out, and what they say in the end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import turns
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.evidence import Evidence
from hive_subagent_daemon.judge import judge
from hive_subagent_daemon.skim import Seen
from hive_subagent_daemon.values import NO_BOUNDS, Bounds, Cause, ErrorClass, Exited, SentSignal, Signalled
from tests.unit.support_evidence import error, evidence
from tests.unit.support_turns import Parts

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURED = Bounds(600.0, 2.5, 40)


@pytest.mark.parametrize(
    ("given", "hold"),
    [
        (NO_BOUNDS, CONFIGURED),
        (Bounds(timeout_seconds=5.0), Bounds(5.0, 2.5, 40)),
        (Bounds(max_budget_usd=9.0, max_turns=1), Bounds(600.0, 9.0, 1)),
    ],
)
async def test_given_bounds_go_before_configured_ones(tmp_path: Path, given: Bounds, hold: Bounds) -> None:
    parts = Parts(tmp_path, limits=Limits(timeout_seconds=600.0, max_budget_usd=2.5, max_turns=40))
    async with parts.running():
        await parts.start("a", bounds=given)
        assert parts.registry.running["a"].record.bounds == hold
        now = await parts.status_of("a")
        assert {key: now[key] for key in ("timeout_seconds", "max_budget_usd", "max_turns")} == {
            "timeout_seconds": hold.timeout_seconds,
            "max_budget_usd": hold.max_budget_usd,
            "max_turns": hold.max_turns,
        }
        budget = f"--max-budget-usd={hold.max_budget_usd:f}"
        assert {budget, f"--max-turns={hold.max_turns}"} <= set(parts.launcher.specs[-1].argv)


async def test_a_turn_whose_time_is_over_is_interrupted_once(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    async with parts.running():
        turn = (await parts.start("a", bounds=Bounds(timeout_seconds=0.1)))["turn"]
        child = parts.launcher.children[-1]
        end = await parts.ended(turn)
        assert child.signals == [signal.SIGINT]
        assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "timeout", "SIGINT")
        assert "timeout: it had 0.1 s" in end["error"]


async def test_a_turn_that_ignores_its_time_out_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TIME_OUT_SECONDS", 0.05)
    parts = Parts(tmp_path)
    parts.launcher.stubborn = True
    async with parts.running():
        turn = (await parts.start("a", bounds=Bounds(timeout_seconds=0.1)))["turn"]
        end = await parts.ended(turn)
        assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "timeout", "SIGKILL")


def test_a_budget_of_its_own_is_told_from_an_empty_account() -> None:
    bounds = Bounds(max_budget_usd=0.5)
    ended = error("", subtype="error_max_budget_usd")
    verdict = judge(evidence(Exited(1), ended, bounds=bounds))
    assert (verdict.error_class, verdict.at_own_bound) == (ErrorClass.BUDGET, True)
    assert verdict.error is not None
    assert "reached its max_budget_usd of 0.5" in verdict.error
    empty = judge(evidence(Exited(1), error("Credit balance is too low"), bounds=bounds))
    assert (empty.error_class, empty.at_own_bound) == (ErrorClass.BUDGET, False)
    assert "No credit" in (empty.error or "")


def test_rounds_that_are_used_up_are_told_with_their_number() -> None:
    ended = error("", subtype="error_max_turns", terminal_reason="max_turns")
    verdict = judge(evidence(Exited(1), ended, bounds=Bounds(max_turns=3)))
    assert (verdict.error_class, verdict.at_own_bound) == (ErrorClass.TURNS, True)
    assert "reached its max_turns of 3" in (verdict.error or "")


def test_a_time_out_without_a_known_bound_is_told_all_the_same() -> None:
    """As in the record of an older daemon."""
    sent = (SentSignal(signal.SIGINT, Cause.TIMEOUT, 0),)
    verdict = judge(Evidence(exit=Signalled(signal.SIGINT), seen=Seen(), stderr="", sent=sent))
    assert (verdict.cause, verdict.error) == (
        Cause.TIMEOUT,
        "Killed mid-turn by SIGINT (timeout): its work may be incomplete.",
    )
