"""What must be found about ended turns: rows of an id that names the reason, evidence, and verdict."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.skim import EarlierResult, Seen
from hive_subagent_daemon.values import Cause, ErrorClass, Exited, ExitUnknown, Oom, OutcomeKind, Signalled
from tests.unit.support_evidence import (
    RESULT_END,
    aborted,
    error,
    evidence,
    forced,
    interrupted,
    result,
    seen,
    sent,
    stopped,
)

if TYPE_CHECKING:
    from hive_subagent_daemon.events import Result
    from hive_subagent_daemon.evidence import Evidence
    from hive_subagent_daemon.values import Verdict

Brief = tuple[object, ...]
UNKNOWN = ExitUnknown()
NOT_FOUND = "No conversation found with session ID: U"


def brief(verdict: Verdict) -> Brief:
    """Return kind, cause, signal and error class, without what is None."""
    found = (verdict.kind, verdict.cause, verdict.signal, verdict.error_class)
    return tuple(part for part in found if part is not None)


def failed(error_class: ErrorClass) -> Brief:
    """Return the brief verdict on a failure."""
    return (OutcomeKind.FAILED, error_class)


def killed(cause: Cause, name: str) -> Brief:
    """Return the brief verdict on a kill."""
    return (OutcomeKind.KILLED, cause, name)


def row(name: str, found: Evidence, expected: Brief) -> object:
    """Return one row."""
    return pytest.param(found, expected, id=name)


COMPLETED = (OutcomeKind.COMPLETED,)
NEVER_RAN = (OutcomeKind.COULD_NOT_START,)
LOST = (OutcomeKind.LOST, Cause.UNKNOWN)
AUTH, LIMIT, API = failed(ErrorClass.AUTH), failed(ErrorClass.LIMIT), failed(ErrorClass.API)
BUDGET, TURNS, REFUSAL = failed(ErrorClass.BUDGET), failed(ErrorClass.TURNS), failed(ErrorClass.REFUSAL)
NO_SESSION, NO_RESULT = failed(ErrorClass.SESSION_NOT_FOUND), failed(ErrorClass.NO_RESULT)
SETUP, OTHER = failed(ErrorClass.SETUP), failed(ErrorClass.OTHER)
KILL, TERM, HUP, INT, SEGV, SIG40 = (
    killed(Cause.UNKNOWN, name) for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGSEGV", "SIG40")
)
OOM = killed(Cause.OOM, "SIGKILL")
INTERRUPTED, TIMED_OUT = killed(Cause.INTERRUPT, "SIGINT"), killed(Cause.TIMEOUT, "SIGINT")
FORCED = killed(Cause.FORCED_INTERRUPT, "SIGKILL")
STOPPED, STOPPED_HARD = (killed(Cause.DAEMON_STOPPED, name) for name in ("SIGINT", "SIGKILL"))

BOOM = error("API Error: 500 boom", api_status=500)
MAX_TURNS, MAX_BUDGET = {"subtype": "error_max_turns"}, {"subtype": "error_max_budget_usd"}
IN_A_FURTHER_ROUND = seen(result(), round_open=True)
FOLLOWED_AT = RESULT_END + 100


def two_rounds(first: Result, **fields: object) -> Seen:
    """Return what was seen of a turn whose first result was followed by a further round with a result."""
    kept = EarlierResult(first, RESULT_END, len(first.text), FOLLOWED_AT)
    return seen(result("second"), result_end=FOLLOWED_AT + 100, earlier=(kept,), **fields)


TWO_ROUNDS, TWO_ROUNDS_OPEN = two_rounds(result("first")), two_rounds(result("first"), round_open=True)
ERROR_THEN_ROUND, ABORTED_THEN_ROUND = two_rounds(BOOM), two_rounds(aborted())
STOPPED_TWICE = (*stopped(), sent(signal.SIGKILL, Cause.DAEMON_STOPPED))
TIMEOUT = (sent(signal.SIGINT, Cause.TIMEOUT),)

BY_RESULT = [
    row("facts-2-a-result-that-is-no-error", evidence(Exited(0), result()), COMPLETED),
    row("facts-2-an-api-error-has-subtype-success", evidence(Exited(1), BOOM), API),
    row("facts-2-rc-0-proves-nothing", evidence(Exited(0), BOOM), API),
    row("facts-2-rc-1-after-a-success", evidence(Exited(1), result()), COMPLETED),
    row("facts-2-max-turns", evidence(Exited(1), error("", terminal_reason="max_turns", **MAX_TURNS)), TURNS),
    row("facts-2-max-turns-without-is-error", evidence(Exited(0), result(**MAX_TURNS)), TURNS),
    row("facts-2-max-budget", evidence(Exited(1), error("", terminal_reason=None, **MAX_BUDGET)), BUDGET),
    row("facts-2-a-status-beside-a-success", evidence(Exited(0), result(api_status=529)), API),
    row("section-4-success-is-never-guessed", evidence(Exited(0), result(is_error=None)), OTHER),
    row("facts-8-refusal", evidence(Exited(1), error("no", stop_reason="refusal")), REFUSAL),
    row("facts-8-refusal-without-is-error",
        evidence(Exited(0), result("no", stop_reason="refusal")), REFUSAL),
    row("facts-6-resume-in-another-directory",
        evidence(Exited(1), error("", subtype="error_during_execution"), stderr=NOT_FOUND), NO_SESSION),
    row("facts-5-a-local-command",
        evidence(Exited(0), result("Unknown command: /x", terminal_reason=None, rounds=0)), COMPLETED),
    row("decision-13-zero-rounds-and-empty-text", evidence(Exited(0), result("", rounds=0)), COMPLETED),
    row("facts-4-a-further-round-had-begun", evidence(Exited(0), of=IN_A_FURTHER_ROUND), COMPLETED),
    row("facts-4-two-rounds-in-one-process", evidence(Exited(0), of=TWO_ROUNDS), COMPLETED),
    row("facts-1-the-last-result-wins-over-an-error", evidence(Exited(0), of=ERROR_THEN_ROUND), COMPLETED),
    row("decision-12-ended-by-us-after-its-result",
        evidence(Exited(143), result(), stopped_after_result=True), COMPLETED),
    row("decision-12-killed-by-us-after-its-result",
        evidence(Signalled(9), result(), stopped_after_result=True), COMPLETED),
    row("decision-12-killed-by-us-after-an-error",
        evidence(Signalled(9), BOOM, stopped_after_result=True), API),
    row("decision-12-ended-by-us-in-a-further-round",
        evidence(Signalled(9), of=IN_A_FURTHER_ROUND, stopped_after_result=True), COMPLETED),
]  # fmt: skip

FROM_OUTSIDE = [
    row("decision-3-sigkill", evidence(Signalled(9)), KILL),
    row("decision-3-sigsegv", evidence(Signalled(11)), SEGV),
    row("decision-3-a-signal-without-a-name", evidence(Signalled(40)), SIG40),
    row("decision-3-facts-3-sigterm-is-143", evidence(Exited(143)), TERM),
    row("decision-3-facts-3-sighup-is-129", evidence(Exited(129)), HUP),
    row("decision-3-facts-3-early-sigint", evidence(Signalled(2), of=Seen()), INT),
    row("decision-3-exit-0-without-a-result", evidence(Exited(0)), NO_RESULT),
    row("decision-3-exit-0-with-words-on-stderr", evidence(Exited(0), stderr="warning: x"), NO_RESULT),
    row("decision-3-exit-1-without-a-word", evidence(Exited(1)), NO_RESULT),
    row("cases-A4-only-a-last-text", evidence(Exited(0), of=seen(last_text="all is done")), NO_RESULT),
    row("facts-3-interrupted-by-somebody-else", evidence(Exited(0), aborted()), INT),
    row("facts-3-interrupted-in-a-tool-by-somebody-else",
        evidence(Exited(1), aborted(terminal_reason="aborted_tools")), INT),
    row("section-4-a-result-before-an-outside-signal", evidence(Signalled(9), result()), COMPLETED),
    row("section-4-an-error-before-an-outside-signal", evidence(Signalled(9), BOOM), API),
    row("section-4-a-result-before-143", evidence(Exited(143), result()), COMPLETED),
    row("decision-3-killed-in-a-further-round", evidence(Signalled(9), of=IN_A_FURTHER_ROUND), KILL),
    row("section-3-oom", evidence(Signalled(9), oom=Oom(2, 7, 9)), OOM),
    row("section-3-no-kill-is-no-oom", evidence(Signalled(9), oom=Oom(0)), KILL),
    row("section-3-an-earlier-oom-does-not-explain-143", evidence(Exited(143), oom=Oom(1)), TERM),
    row("section-13-oom-on-a-completed-turn", evidence(Exited(0), result(), oom=Oom(1)), COMPLETED),
]  # fmt: skip

BY_US = [
    row("decision-4-facts-3-no-result", evidence(Exited(0), sent=interrupted()), INTERRUPTED),
    row("decision-4-facts-3-early", evidence(Signalled(2), of=Seen(), sent=interrupted(at=0)), INTERRUPTED),
    row("decision-4-facts-3-an-aborted-result",
        evidence(Exited(0), aborted(), sent=interrupted()), INTERRUPTED),
    row("decision-4-aborted-before-the-signal",
        evidence(Exited(0), aborted(), sent=interrupted(at=RESULT_END)), INTERRUPTED),
    row("decision-4-success-after-the-signal",
        evidence(Exited(0), result(), sent=interrupted(at=RESULT_END - 1)), INTERRUPTED),
    row("decision-4-error-after-the-signal", evidence(Exited(1), BOOM, sent=interrupted(at=0)), INTERRUPTED),
    row("decision-4-success-before-the-signal",
        evidence(Exited(0), result(), sent=interrupted(at=RESULT_END)), COMPLETED),
    row("decision-4-success-before-the-signal-that-killed",
        evidence(Signalled(2), result(), sent=interrupted(at=RESULT_END + 9)), COMPLETED),
    row("decision-4-error-before-the-signal",
        evidence(Exited(1), BOOM, sent=interrupted(at=RESULT_END)), API),
    row("decision-4-success-before-a-forced-interrupt",
        evidence(Signalled(9), result(), sent=forced(at=RESULT_END)), COMPLETED),
    row("decision-4-soft-then-forced", evidence(Signalled(9), sent=forced()), FORCED),
    row("decision-4-success-between-soft-and-forced",
        evidence(Signalled(9), result(), sent=forced(at=RESULT_END - 1)), FORCED),
    row("decision-4-stop-of-the-daemon", evidence(Exited(0), sent=stopped()), STOPPED),
    row("decision-4-stop-of-the-daemon-then-kill", evidence(Signalled(9), sent=STOPPED_TWICE), STOPPED_HARD),
    row("decision-4-timeout", evidence(Exited(0), sent=TIMEOUT), TIMED_OUT),
    row("decision-4-the-senders-cause-not-oom", evidence(Signalled(9), sent=forced(), oom=Oom(3)), FORCED),
    row("decision-4-143-after-our-signal", evidence(Exited(143), sent=interrupted()), INTERRUPTED),
    row("decision-4-success-before-a-signal-that-began-a-round",
        evidence(Exited(0), of=TWO_ROUNDS, sent=interrupted(at=RESULT_END)), COMPLETED),
    row("decision-4-success-before-a-signal-that-began-an-unfinished-round",
        evidence(Exited(0), of=TWO_ROUNDS_OPEN, sent=interrupted(at=RESULT_END)), COMPLETED),
    row("decision-4-error-before-a-signal-that-began-a-round",
        evidence(Exited(0), of=ERROR_THEN_ROUND, sent=interrupted(at=RESULT_END)), API),
    row("decision-4-aborted-before-a-signal-that-began-a-round",
        evidence(Exited(0), of=ABORTED_THEN_ROUND, sent=interrupted(at=RESULT_END)), INTERRUPTED),
    row("decision-4-interrupted-while-a-second-round-ran",
        evidence(Exited(0), of=TWO_ROUNDS, sent=interrupted(at=FOLLOWED_AT)), INTERRUPTED),
    row("decision-4-interrupted-in-a-further-round",
        evidence(Exited(0), of=IN_A_FURTHER_ROUND, sent=interrupted(at=RESULT_END + 9)), INTERRUPTED),
]  # fmt: skip

NOT_OBSERVED = [
    row("decision-6-found-alive-and-stopped", evidence(UNKNOWN, sent=stopped()), STOPPED),
    row("decision-6-a-result-in-its-output", evidence(UNKNOWN, result()), COMPLETED),
    row("decision-6-an-error-in-its-output", evidence(UNKNOWN, error("x", api_status=401)), AUTH),
    row("decision-6-a-result-before-it-was-stopped",
        evidence(UNKNOWN, result(), sent=stopped(at=RESULT_END)), COMPLETED),
    row("decision-6-a-result-after-it-was-stopped", evidence(UNKNOWN, result(), sent=stopped(at=0)), STOPPED),
    row("decision-6-an-aborted-result-in-its-output", evidence(UNKNOWN, aborted()), INT),
    row("decision-6-nothing-tells", evidence(UNKNOWN), LOST),
    row("decision-6-nothing-tells-and-no-output", evidence(UNKNOWN, of=Seen()), LOST),
    row("decision-6-stderr-tells", evidence(UNKNOWN, of=Seen(), stderr=NOT_FOUND), NO_SESSION),
    row("decision-6-stderr-tells-of-the-start",
        evidence(UNKNOWN, of=Seen(), stderr="error: unknown option '--x'"), SETUP),
    row("decision-6-stderr-of-a-turn-at-work", evidence(UNKNOWN, stderr="rate limit, retrying"), LOST),
    row("decision-6-a-further-round-had-begun", evidence(UNKNOWN, of=IN_A_FURTHER_ROUND), LOST),
    row("decision-7-never-ran", evidence(UNKNOWN, of=Seen(), ran=False), NEVER_RAN),
    row("decision-7-never-ran-whatever-else-there-is", evidence(Exited(0), result(), ran=False), NEVER_RAN),
]  # fmt: skip

VERDICTS = [*BY_RESULT, *FROM_OUTSIDE, *BY_US, *NOT_OBSERVED]
