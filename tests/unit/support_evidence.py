"""Results and evidence of ended turns as the tests of the verdict need them."""

from __future__ import annotations

import signal
from typing import Any

from hypothesis import strategies as st

from hive_subagent_daemon.events import ABORTED, Init, Result
from hive_subagent_daemon.evidence import Evidence
from hive_subagent_daemon.skim import Seen
from hive_subagent_daemon.values import Cause, Exit, Exited, ExitUnknown, Oom, SentSignal, Signalled

INIT = Init("0f0e0d0c-0b0a-4908-8706-050403020100", "m", "2.1.197", {})
RESULT_END = 1_000
LOOKED_IN = "claude looked in /c for a session that was run in /d; pass that directory as `dir`."


def result(text: str = "done", **fields: object) -> Result:
    """Return a successful result, or with further fields another."""
    known: dict[str, Any] = {
        "is_error": False,
        "subtype": "success",
        "text": text,
        "api_status": None,
        "terminal_reason": "completed",
        "stop_reason": "end_turn",
        "errors": (),
        "rounds": 3,
        "cost_usd": 0.25,
        "session_id": INIT.session_id,
    }
    known.update(fields)
    return Result(**known)


def error(text: str = "API Error", **fields: object) -> Result:
    """Return a result that reports an error."""
    return result(text, is_error=True, **fields)


def aborted(**fields: object) -> Result:
    """Return the result of an interrupted round as measured."""
    measured = {"subtype": "error_during_execution", "terminal_reason": "aborted_streaming"}
    return error("", **(measured | fields))


def seen(last: Result | None = None, **fields: object) -> Seen:
    """Return what was seen of a turn whose last result is this one."""
    known: dict[str, Any] = {"init": INIT, "last_text": "so far", "text_length": 6}
    if last is not None:
        known |= {
            "result": last,
            "result_end": RESULT_END,
            "result_length": len(last.text),
            "round_open": False,
        }
    known.update(fields)
    return Seen(**known)


def evidence(
    exit_: Exit, last: Result | None = None, *, of: Seen | None = None, stderr: str = "", **fields: object
) -> Evidence:
    """Return the evidence of a turn."""
    known: dict[str, Any] = {"looked_in": LOOKED_IN}
    known.update(fields)
    return Evidence(exit_, of or seen(last), stderr, **known)


def sent(number: int, cause: Cause, *, at: int = RESULT_END - 1) -> SentSignal:
    """Return a signal of ours, by default one that was sent before the result was written."""
    return SentSignal(number, cause, at)


def interrupted(*, at: int = RESULT_END - 1) -> tuple[SentSignal, ...]:
    """Return a soft interrupt."""
    return (sent(signal.SIGINT, Cause.INTERRUPT, at=at),)


def stopped(*, at: int = RESULT_END - 1) -> tuple[SentSignal, ...]:
    """Return what the stop of the daemon sends."""
    return (sent(signal.SIGINT, Cause.DAEMON_STOPPED, at=at),)


def forced(*, at: int = RESULT_END - 1) -> tuple[SentSignal, ...]:
    """Return a soft and then a forced interrupt."""
    return (*interrupted(at=at), sent(signal.SIGKILL, Cause.FORCED_INTERRUPT, at=at + 50))


_texts = st.one_of(
    st.sampled_from(
        [
            "",
            "No conversation found with session ID: U",
            "usage limit reached|1764547200",
            "x" * 5_000,
            "oauth",
        ]
    ),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
_reasons = st.sampled_from([None, "completed", "max_turns", "prompt_too_long", *ABORTED])
any_exit: st.SearchStrategy[Exit] = st.one_of(
    st.builds(Exited, st.one_of(st.sampled_from([0, 1, 126, 127, 129, 130, 137, 143]), st.integers(0, 255))),
    st.builds(Signalled, st.one_of(st.sampled_from([2, 9, 15]), st.integers(1, 64))),
    st.just(ExitUnknown()),
)
any_result = st.builds(
    Result,
    is_error=st.sampled_from([True, False, None]),
    subtype=st.sampled_from(
        ["success", "", "error_during_execution", "error_max_turns", "error_max_budget_usd"]
    ),
    text=_texts,
    api_status=st.sampled_from([None, 200, 400, 401, 403, 404, 429, 500, 529]),
    terminal_reason=_reasons,
    stop_reason=st.sampled_from([None, "end_turn", "refusal"]),
    errors=st.lists(_texts, max_size=2).map(tuple),
    rounds=st.sampled_from([None, 0, 1, 7]),
    cost_usd=st.sampled_from([None, 0.0, 1.5]),
    session_id=st.none(),
)
any_seen = st.builds(
    lambda last, began, is_open, text, pending, api_error, until: seen(
        last,
        init=INIT if began else None,
        round_open=is_open or last is None,
        last_text=text,
        pending=pending,
        api_error=api_error,
        limited_until=until,
    ),
    st.one_of(st.none(), any_result),
    st.booleans(),
    st.booleans(),
    _texts,
    st.dictionaries(st.sampled_from("ab"), _texts, max_size=2),
    st.sampled_from([None, "rate_limit", "unknown"]),
    st.sampled_from([None, 0, 1_764_547_200, 2**53 - 1, -(2**53)]),
)
_signals = st.builds(
    SentSignal,
    st.sampled_from([signal.SIGINT, signal.SIGKILL]),
    st.sampled_from([Cause.INTERRUPT, Cause.FORCED_INTERRUPT, Cause.DAEMON_STOPPED, Cause.TIMEOUT]),
    st.sampled_from([0, RESULT_END - 1, RESULT_END, RESULT_END + 1]),
)
any_evidence = st.builds(
    Evidence,
    exit=any_exit,
    seen=any_seen,
    stderr=_texts,
    ran=st.sampled_from([True, True, True, False]),
    sent=st.lists(_signals, max_size=2).map(tuple),
    stopped_after_result=st.booleans(),
    oom=st.one_of(st.none(), st.builds(Oom, st.integers(0, 2))),
    oom_before=st.integers(0, 2),
    oom_stops=st.booleans(),
    by_oomd=st.booleans(),
    strayed=st.booleans(),
    killed_leftovers=st.lists(_texts, max_size=7).map(tuple),
    still_alive=st.lists(_texts, max_size=7).map(tuple),
    expected_servers=st.lists(st.sampled_from(["docs", "st"]), max_size=2).map(tuple),
    looked_in=st.just(LOOKED_IN),
)
