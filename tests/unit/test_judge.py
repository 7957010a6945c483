"""The verdict on a turn follows from all evidence; the ids name the fact or the decision they stand for."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from hive_subagent_daemon.judge import ERROR_CHARACTERS, judge
from hive_subagent_daemon.skim import Seen
from hive_subagent_daemon.values import (
    Cause,
    ErrorClass,
    Exit,
    Exited,
    ExitUnknown,
    Oom,
    OutcomeKind,
    Signalled,
)
from tests.unit.support_evidence import (
    LOOKED_IN,
    RESULT_END,
    aborted,
    any_evidence,
    error,
    evidence,
    forced,
    interrupted,
    result,
    seen,
)
from tests.unit.support_verdicts import NOT_FOUND, TWO_ROUNDS, VERDICTS, brief, killed

if TYPE_CHECKING:
    from hive_subagent_daemon.evidence import Evidence

UNKNOWN = ExitUnknown()
ENDED_BY_SYSTEMD_OR_KERNEL = (Signalled(9), Signalled(15), Exited(143))


def counted(found: Evidence) -> bool:
    """Tell whether there was a kill for lack of memory that claude is not known to have outlived."""
    return found.oom is not None and found.oom.kills > found.oom_before


@pytest.mark.parametrize(("found", "expected"), VERDICTS)
def test_the_verdict_follows_from_the_evidence(found: Evidence, expected: tuple[object, ...]) -> None:
    assert brief(judge(found)) == expected


@given(any_evidence)
def test_completed_needs_a_result_that_stands_and_says_so(found: Evidence) -> None:
    verdict = judge(found)
    if verdict.kind is OutcomeKind.COMPLETED:
        last = found.seen.result
        assert last is not None
        assert last.is_error is False
        assert last.subtype in ("success", "")
        assert not last.aborted
        assert verdict.text == last.text
        assert not found.sent or found.seen.result_end <= found.sent[0].stdout_bytes


@given(any_evidence)
def test_our_signal_before_any_result_means_killed_by_its_sender(found: Evidence) -> None:
    last = found.seen.result
    stands = last is not None and not last.aborted and not found.seen.round_open
    if found.ran and found.sent and not (stands and found.seen.result_end <= found.sent[0].stdout_bytes):
        number, cause = found.sent[-1].signal, found.sent[-1].cause
        in_between = judge(found).cause is Cause.OOM  # memory ran out while claude was stopping
        ours = killed(cause, signal.Signals(number).name)
        assert brief(judge(found)) == (killed(Cause.OOM, "SIGKILL") if in_between else ours)


@given(any_evidence)
def test_a_result_before_our_signal_wins(found: Evidence) -> None:
    last = found.seen.result
    early = found.sent and found.seen.result_end <= found.sent[0].stdout_bytes
    if found.ran and last is not None and early and not last.aborted and not found.seen.round_open:
        assert judge(found).kind in (OutcomeKind.COMPLETED, OutcomeKind.FAILED)


@given(any_evidence)
def test_an_end_that_nobody_saw_without_a_result_is_never_more_than_lost(found: Evidence) -> None:
    unseen = found.ran and isinstance(found.exit, ExitUnknown) and not found.sent
    if unseen and found.seen.result is None and not counted(found):
        verdict = judge(found)
        assert verdict.kind in (OutcomeKind.LOST, OutcomeKind.FAILED)
        assert verdict.kind is OutcomeKind.LOST or found.stderr


@given(any_evidence)
def test_only_a_kill_that_claude_has_not_outlived_and_that_is_not_ours_is_told_as_oom(
    found: Evidence,
) -> None:
    if judge(found).cause is Cause.OOM:
        assert counted(found)
        assert signal.SIGKILL not in {sent.signal for sent in found.sent}
        assert isinstance(found.exit, ExitUnknown) or found.exit in ENDED_BY_SYSTEMD_OR_KERNEL
        assert found.oom_stops or found.exit in (Signalled(9), ExitUnknown())
        assert found.exit == Signalled(9) or not found.sent


@given(any_evidence)
def test_a_sigkill_of_nobody_else_with_a_new_kill_of_the_kernel_is_oom(found: Evidence) -> None:
    ours = {sent.signal for sent in found.sent} | ({9} if found.stopped_after_result else set())
    if found.ran and found.exit == Signalled(9) and counted(found) and 9 not in ours:
        assert judge(found).cause is (Cause.OOM if judge(found).kind is OutcomeKind.KILLED else None)


@given(any_evidence)
def test_every_verdict_has_the_fields_of_its_kind_and_no_others(found: Evidence) -> None:
    verdict = judge(found)
    kind = verdict.kind
    assert verdict == judge(found)
    assert (verdict.signal is not None) == (kind is OutcomeKind.KILLED)
    assert (verdict.cause is not None) == kind.cut_off
    assert (verdict.error_class is not None) == (kind is OutcomeKind.FAILED)
    assert (verdict.error is not None) == (kind is not OutcomeKind.COMPLETED)
    assert verdict.limited_until is None or verdict.error_class is ErrorClass.LIMIT
    assert all(verdict.warnings)


# What the words say


@pytest.mark.parametrize(
    "found",
    [evidence(Exited(0), sent=interrupted()), evidence(Signalled(9)), evidence(Signalled(9), sent=forced())],
)
def test_a_killed_turn_is_said_to_be_cut_off_and_shows_its_text_so_far(found: Evidence) -> None:
    verdict = judge(found)
    assert verdict.error is not None
    assert "mid-turn" in verdict.error
    assert "incomplete" in verdict.error
    assert verdict.text == "so far"


def test_a_killed_turn_keeps_cost_and_rounds_of_the_result_it_had() -> None:
    verdict = judge(evidence(Exited(0), aborted(cost_usd=1.25, rounds=4), sent=interrupted()))
    assert (verdict.cost_usd, verdict.rounds) == (1.25, 4)


def test_a_turn_is_what_its_result_before_the_signal_says_not_a_later_one() -> None:
    verdict = judge(evidence(Exited(0), of=TWO_ROUNDS, sent=interrupted(at=RESULT_END)))
    assert verdict.text == "first"
    assert judge(evidence(Exited(0), of=TWO_ROUNDS)).text == "second"


def test_a_lost_turn_says_what_is_not_known_and_what_was_seen() -> None:
    verdict = judge(evidence(UNKNOWN, stderr="some words"))
    assert verdict.text is not None
    assert verdict.error is not None
    assert "not known" in verdict.text
    assert "so far" in verdict.text
    assert "some words" in verdict.error


def test_a_session_that_was_not_found_comes_with_where_it_was_looked_for() -> None:
    verdict = judge(evidence(Exited(1), of=Seen(), stderr=NOT_FOUND))
    assert verdict.error is not None
    assert NOT_FOUND in verdict.error
    assert LOOKED_IN in verdict.error


@pytest.mark.parametrize("found", [evidence(Exited(1), error()), evidence(Exited(1)), evidence(Exited(0))])
def test_a_failed_turn_shows_its_text_so_far(found: Evidence) -> None:
    assert judge(found).text == "so far"


def test_a_turn_without_any_text_has_none() -> None:
    for last in (None, error(), aborted()):
        assert judge(evidence(Exited(1), of=seen(last, last_text=""))).text is None


def test_of_a_long_stderr_the_end_is_told_where_the_reason_stands() -> None:
    stderr = f"warning: {'x' * 60_000} the reason"
    for found in (evidence(Exited(1), error(""), stderr=stderr), evidence(Exited(1), stderr=stderr)):
        told = judge(found).error
        assert told is not None
        assert "the reason" in told
        assert len(told) <= ERROR_CHARACTERS


@pytest.mark.parametrize("kind", ["result", "stderr"])
def test_an_error_is_cut_at_its_bound_but_its_hint_stays(kind: str) -> None:
    words = f"Credit balance is too low {'x' * 5_000}"
    found = (
        evidence(Exited(1), error(words))
        if kind == "result"
        else evidence(Exited(1), of=Seen(), stderr=words)
    )
    verdict = judge(found)
    assert verdict.error is not None
    assert len(verdict.error) < ERROR_CHARACTERS + 200
    assert verdict.error.endswith("further starts will fail the same way.")


def test_the_same_words_in_several_places_are_told_once() -> None:
    words = "API Error: 500 boom"
    verdict = judge(evidence(Exited(1), error(words, api_status=500, errors=(words,)), stderr=words))
    assert verdict.error is not None
    assert verdict.error.count("boom") == 1


def test_an_error_without_any_words_is_named_by_its_subtype() -> None:
    verdict = judge(evidence(Exited(1), error("", subtype="error_during_execution")))
    assert verdict.error == "claude reported error_during_execution without further words."


def test_a_result_that_does_not_say_whether_it_is_an_error_says_so() -> None:
    verdict = judge(evidence(Exited(0), result("", is_error=None)))
    assert verdict.error is not None
    assert "does not say" in verdict.error


def test_claudes_own_background_mode_is_named_where_it_holds_the_session() -> None:
    """As in cases D5."""
    words = "This session is currently running as a background agent (bg)."
    verdict = judge(evidence(Exited(1), of=Seen(), stderr=words))
    assert verdict.error is not None
    assert words in verdict.error
    assert "stop it there" in verdict.error
    at_work = judge(evidence(Exited(1), stderr=words)).error
    assert at_work is not None
    assert "stop it there" not in at_work
    other = judge(evidence(Exited(1), of=Seen(), stderr="anything else")).error
    assert other is not None
    assert "stop it there" not in other


def test_a_success_that_did_nothing_is_completed_with_a_warning() -> None:
    """Decision 13; with text it is claude's own: of a command, or of a hook that refused the prompt."""
    for last in (result("", rounds=0), result("x", rounds=0), result("", rounds=None)):
        idle = judge(evidence(Exited(0), last))
        assert idle.kind is OutcomeKind.COMPLETED
        assert any("may have done nothing" in warning for warning in idle.warnings)
    for last in (result("", rounds=1), result("x", rounds=None)):
        assert not judge(evidence(Exited(0), last)).warnings


@pytest.mark.parametrize("exit_", [Exited(0), Exited(1), Signalled(9)])
def test_what_the_oom_killer_did_is_told_with_every_outcome(exit_: Exit) -> None:
    oom = Oom(2, 7, 9)
    for last in (None, result(), error("x"), aborted()):
        assert judge(evidence(exit_, last, oom=oom)).oom == oom


def test_a_turn_that_never_ran_says_that_nothing_was_done() -> None:
    verdict = judge(evidence(UNKNOWN, of=Seen(), ran=False))
    assert verdict.error is not None
    assert "nothing was done" in verdict.error


def test_the_failed_part_of_a_limit_is_told_in_full() -> None:
    """Cases J2: limited until, from the text, even when the text is cut."""
    words = f"{'x' * 3_000} Claude AI usage limit reached|1764547200"
    verdict = judge(evidence(Exited(1), error(words)))
    assert (verdict.error_class, verdict.limited_until) == (ErrorClass.LIMIT, "2025-12-01T00:00:00.000Z")


@pytest.mark.parametrize("stderr", ["", "You've hit your limit"])
def test_a_limits_end_that_claude_told_as_a_time_wins_over_its_words(stderr: str) -> None:
    last = None if stderr else error("You've hit your limit · resets 3pm (UTC)")
    found = evidence(Exited(1), of=seen(last, limited_until=1_764_547_200), stderr=stderr)
    assert judge(found).limited_until == "2025-12-01T00:00:00.000Z"


def test_a_limit_that_was_not_the_failure_is_not_told() -> None:
    found = evidence(Exited(1), of=seen(error("API Error: 500", api_status=500), limited_until=1_764_547_200))
    assert judge(found).limited_until is None
