"""The verdict on an ended turn, by one pure function from all evidence.

Success is never guessed: exit code 0 proves nothing, nor does the subtype `success` (claude reports every API
error with it). The last result and its `is_error` decide (measured on claude 2.1.197).
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import classify, turn_warnings
from hive_subagent_daemon.turn_warnings import signal_name
from hive_subagent_daemon.values import (
    Cause,
    ErrorClass,
    Exited,
    ExitUnknown,
    OutcomeKind,
    Signalled,
    Verdict,
)

if TYPE_CHECKING:
    from hive_subagent_daemon.events import Result
    from hive_subagent_daemon.evidence import Evidence

ERROR_CHARACTERS: Final = 2_000
STDERR_CHARACTERS: Final = 1_500
# claude ends by itself when it gets these two, with the shell's code for them.
_DYING_CODES: Final = {143: signal.SIGTERM, 129: signal.SIGHUP}
_HALF_A_LINE: Final = "Error parsing streaming input line"
_SUPERVISOR_HINT: Final = "background"
_HINTS: Final = {
    ErrorClass.AUTH: "Fix claude's login or key first; further starts will fail the same way.",
    ErrorClass.LIMIT: "A usage or rate limit: wait before starting or continuing more.",
    ErrorClass.API: "The API or the network failed, not the work: continue this one after a while.",
    ErrorClass.CONTEXT: "The conversation no longer fits: start a fresh subagent with a smaller batch.",
    ErrorClass.BUDGET: "No credit or budget is left: further starts will fail the same way.",
}


def judge(evidence: Evidence) -> Verdict:
    """Return how the turn ended."""
    if not evidence.ran:
        error = "The daemon ended before claude was executed; nothing was done. Start it again."
        return Verdict(OutcomeKind.COULD_NOT_START, error=error)
    if (standing := _standing(evidence)) is not None:
        return _by_result(standing, evidence)
    result = evidence.seen.result
    if (killed := _killed(evidence)) is not None:
        return killed
    if result is not None and not isinstance(evidence.exit, ExitUnknown):
        return _by_result(result, evidence)
    return _without_result(evidence)


def _standing(evidence: Evidence) -> Result | None:
    """Return the result that tells how the turn ended, whatever ended the process after it.

    It was the last word when our first signal was sent, or when the process ended. A signal can itself make
    claude begin a further round (measured: it reports on the background work that the signal ended).
    """
    seen = evidence.seen
    written = evidence.sent[0].stdout_bytes if evidence.sent else None
    standing = None if seen.round_open else seen.result
    if written is not None and seen.result_end > written:
        standing = None
    for earlier in seen.earlier:
        if written is not None and earlier.end <= written < earlier.followed_at:
            standing = earlier.result
    return None if standing is None or standing.aborted else standing


def _by_result(result: Result, evidence: Evidence) -> Verdict:
    warnings = turn_warnings.of_ended(evidence)
    if _is_success(result):
        if result.rounds == 0 or not (result.rounds or result.text):
            # With text: a command of claude's own, or a prompt that a hook of the user's has refused.
            warnings += ("claude reported success without a round of the model: it may have done nothing.",)
        return Verdict(
            OutcomeKind.COMPLETED,
            oom=evidence.oom,
            text=_whole_text(result, evidence),
            warnings=warnings,
            cost_usd=result.cost_usd,
            rounds=result.rounds,
        )
    error_class = classify.of_result(result, stderr=evidence.stderr, api_error=evidence.seen.api_error)
    error = _error_of(result, evidence)
    return Verdict(
        OutcomeKind.FAILED,
        oom=evidence.oom,
        error_class=error_class,
        error=_with_hint(error, error_class, evidence),
        text=evidence.seen.last_text or None,
        warnings=warnings,
        limited_until=_limited_until(error, error_class, evidence),
        cost_usd=result.cost_usd,
        rounds=result.rounds,
        at_own_bound=result.subtype in classify.AT_OWN_BOUND,
    )


def _whole_text(result: Result, evidence: Evidence) -> str:
    """Return the text of a result; of a steered turn also those of its earlier rounds, which ended before it.

    A message can come just after the report that the turn was for: the last words then are about that only.
    """
    texts = [earlier.result.text for earlier in evidence.seen.earlier if earlier.result is not result]
    before = [text for text in texts if text] if evidence.steerable else []
    if not before:
        return result.text
    return "\n\n".join((result.text, "Before that, in the same turn:", *before))


def _is_success(result: Result) -> bool:
    return (
        result.is_error is False
        and not result.aborted
        and result.subtype in ("success", "")
        and result.api_status is None
        and result.stop_reason != "refusal"
    )


def _error_of(result: Result, evidence: Evidence) -> str:
    told: list[str] = []
    for part in (result.text, *result.errors, _shown_stderr(evidence)):
        # claude often says the same thing in several places
        if part and not any(part in earlier for earlier in told):
            told.append(part)
    if told:
        return "\n".join(told)
    if result.is_error is None:
        return "claude's result does not say whether it is an error; it is not taken for a success."
    return f"claude reported {result.subtype or 'an error'} without further words."


def _killed(evidence: Evidence) -> Verdict | None:
    """Return the verdict on a turn that was cut off, None when it was not."""
    cut = _cut_by(evidence)
    if cut is None:
        return None
    name, cause = cut
    error = f"Killed mid-turn by {name}{_by_whom(cause, evidence)}: its work may be incomplete."
    result = evidence.seen.result
    return Verdict(
        OutcomeKind.KILLED,
        cause=cause,
        signal=name,
        oom=evidence.oom,
        error=error,
        text=evidence.seen.last_text or None,
        warnings=turn_warnings.of_ended(evidence),
        cost_usd=result.cost_usd if result else None,
        rounds=result.rounds if result else None,
    )


def _by_whom(cause: Cause, evidence: Evidence) -> str:
    if cause is Cause.UNKNOWN:
        return " by somebody outside this daemon"
    if cause is Cause.TIMEOUT and evidence.bounds.timeout_seconds is not None:
        return f" (timeout: it had {evidence.bounds.timeout_seconds:g} s)"
    if cause is not Cause.OOM or evidence.oom is None:
        return f" ({cause})"
    killer = "systemd-oomd" if evidence.by_oomd else "the kernel"
    return f", because memory ran out ({killer}; {turn_warnings.memory_shown(evidence.oom)})"


def _cut_by(evidence: Evidence) -> tuple[str, Cause] | None:
    """Return the signal and the cause that cut the turn off."""
    number = _fatal_signal(evidence)
    if _is_oom(number, evidence):
        return signal_name(number or signal.SIGKILL), Cause.OOM
    if evidence.sent:
        last = evidence.sent[-1]
        return signal.Signals(last.signal).name, last.cause
    return None if number is None else (signal_name(number), Cause.UNKNOWN)


def _is_oom(number: int | None, evidence: Evidence) -> bool:
    """Tell whether claude itself was ended for lack of memory.

    The kernel's counters are of the whole turn: a process run by claude may have been killed long before.
    """
    if evidence.oom is None or evidence.oom.kills <= evidence.oom_before:
        return False
    ours = {sent.signal for sent in evidence.sent}
    if isinstance(evidence.exit, ExitUnknown):
        return not ours
    if number == signal.SIGKILL:
        return signal.SIGKILL not in ours
    return number == signal.SIGTERM and evidence.oom_stops and not ours


def _fatal_signal(evidence: Evidence) -> int | None:
    """Return the signal by which a process died that we did not signal."""
    if evidence.stopped_after_result:
        return None
    match evidence.exit:
        case Signalled(number):
            return number
        case Exited(code) if code in _DYING_CODES:
            return _DYING_CODES[code]
    result = evidence.seen.result
    interrupted = result is not None and result.aborted and not evidence.seen.round_open
    return signal.SIGINT if interrupted else None


def _without_result(evidence: Evidence) -> Verdict:
    text = evidence.seen.last_text or None
    warnings = turn_warnings.of_ended(evidence)
    began = evidence.seen.init is not None
    error_class = classify.of_stderr(evidence.stderr, began=began)
    match evidence.exit:
        case Exited(0):
            error = _told(f"{_nothing_found(evidence)} (exit code 0)", evidence)
            known = ErrorClass.NO_RESULT
        case Exited(code):
            error = _told(f"{_nothing_found(evidence)} (exit code {code})", evidence)
            known = error_class or ErrorClass.NO_RESULT
        case _ if error_class is not None and not began:  # later, stderr may tell of what was overcome
            error = _told("claude ended without a result after its daemon was gone", evidence)
            known = error_class
        case _:
            return _lost(evidence)
    return Verdict(
        OutcomeKind.FAILED,
        oom=evidence.oom,
        error_class=known,
        error=_with_hint(error, known, evidence),
        text=text,
        warnings=warnings,
        limited_until=_limited_until(error, known, evidence),
    )


def _nothing_found(evidence: Evidence) -> str:
    if evidence.unreadable is None:
        return "claude ended without a result"
    return "claude's output could not be read as a whole, and what could be read has no result"


def _lost(evidence: Evidence) -> Verdict:
    error = (
        "How this turn ended is not known: the daemon that had started it was gone, and it left no result. "
        "Its work may be incomplete."
    )
    said = evidence.seen.last_text
    text = f"{error}\n\nThe last text that was seen:\n{said}" if said else error
    return Verdict(
        OutcomeKind.LOST,
        cause=Cause.UNKNOWN,
        oom=evidence.oom,
        error=_told(error, evidence),
        text=text,
        warnings=turn_warnings.of_ended(evidence),
    )


def _told(sentence: str, evidence: Evidence) -> str:
    """Add what claude wrote to stderr."""
    said = _shown_stderr(evidence)
    return f"{sentence.rstrip('.')}: {said}" if said else f"{sentence.rstrip('.')}."


def _shown_stderr(evidence: Evidence) -> str:
    """Return the end of stderr, where the reason stands."""
    said = evidence.stderr
    if _HALF_A_LINE in said:  # what follows in it is the line, which is a prompt
        return "the daemon ended before claude had read its prompt, or a message, to the end"
    return said if len(said) <= STDERR_CHARACTERS else f"…{said[-STDERR_CHARACTERS:]}"


def _limited_until(error: str, error_class: ErrorClass, evidence: Evidence) -> str | None:
    if error_class is not ErrorClass.LIMIT:
        return None
    told = evidence.seen.limited_until
    return classify.limited_until(error) if told is None else classify.epoch_as_text(told)


def _is_own_bound(evidence: Evidence) -> bool:
    result = evidence.seen.result
    return result is not None and result.subtype in classify.AT_OWN_BOUND


def _bound(name: str, given: float | None) -> str:
    """Say that a turn had all that it was given of something."""
    told = "" if given is None else f" of {given:g}"
    return (
        f"The turn reached its {name}{told}, so its work may be incomplete: continue it, where it is worth "
        "that with more, or start smaller batches."
    )


def _with_hint(error: str, error_class: ErrorClass, evidence: Evidence) -> str:
    """Cut an error to its bound and add what to do about it."""
    error = error if len(error) <= ERROR_CHARACTERS else f"{error[: ERROR_CHARACTERS - 1]}…"
    hint = _hint(error, error_class, evidence)
    return error if hint is None else f"{error}\n{hint}"


def _hint(error: str, error_class: ErrorClass, evidence: Evidence) -> str | None:
    if error_class is ErrorClass.SESSION_NOT_FOUND:
        return evidence.looked_in
    if error_class is ErrorClass.TURNS:
        return _bound("max_turns", evidence.bounds.max_turns)
    if error_class is ErrorClass.BUDGET and _is_own_bound(evidence):
        return _bound("max_budget_usd", evidence.bounds.max_budget_usd)
    if error_class not in _HINTS and not evidence.seen.init and _SUPERVISOR_HINT in error.lower():
        return "claude's own background mode may hold this session: stop it there, then continue."
    return _HINTS.get(error_class)
