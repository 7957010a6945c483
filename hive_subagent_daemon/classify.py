"""What kind of failure claude's own words tell of (texts as measured on claude 2.1.197)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.clock import as_text
from hive_subagent_daemon.values import ErrorClass

if TYPE_CHECKING:
    from hive_subagent_daemon.events import Result

_BY_STATUS: Final = {
    401: ErrorClass.AUTH,
    403: ErrorClass.AUTH,
    404: ErrorClass.MODEL,
    408: ErrorClass.API,
    413: ErrorClass.CONTEXT,
    429: ErrorClass.LIMIT,
}
# A number is a status only behind a word that says so: `API Error: Request rejected (429)`.
_STATUS: Final = r"(?:api error:?|http|status(?: code)?:?|rejected|error) \(?"
# Looked for in this order; the first that is found decides.
_BY_TEXT: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), error_class)
    for pattern, error_class in (
        (r"no conversation found|does not match any session title", ErrorClass.SESSION_NOT_FOUND),
        (r"credit balance|billing|budget", ErrorClass.BUDGET),
        (r"prompt is too long|context (?:window|length|limit)|too many tokens", ErrorClass.CONTEXT),
        (r"selected model|model_not_found|model not found", ErrorClass.MODEL),
        (r"usage limit|limit reached|hit your .*limit|rate.?limit|too many requests", ErrorClass.LIMIT),
        (rf"{_STATUS}429", ErrorClass.LIMIT),
        (
            r"not logged in|/login|invalid api key|authenticat|unauthorized|oauth|token .*expired",
            ErrorClass.AUTH,
        ),
        (rf"{_STATUS}40[13]", ErrorClass.AUTH),
        (
            r"unable to connect|overloaded|time[d-]? ?out|connection (?:error|refused|reset)|ECONN",
            ErrorClass.API,
        ),
        (rf"internal server error|server_error|network|fetch failed|{_STATUS}5[0-9][0-9]", ErrorClass.API),
        (r"maximum number of turns", ErrorClass.TURNS),
    )
)
_BY_SUBTYPE: Final = {"error_max_turns": ErrorClass.TURNS, "error_max_budget_usd": ErrorClass.BUDGET}
AT_OWN_BOUND: Final = frozenset(_BY_SUBTYPE)
_SYNTHETIC: Final = {
    "authentication_failed": ErrorClass.AUTH,
    "oauth_org_not_allowed": ErrorClass.AUTH,
    "rate_limit": ErrorClass.LIMIT,
    "billing_error": ErrorClass.BUDGET,
    "model_not_found": ErrorClass.MODEL,
    "server_error": ErrorClass.API,
    "overloaded": ErrorClass.API,
}
_EPOCH: Final = re.compile(r"limit reached\|(\d{10})\b", re.IGNORECASE)
_RESETS: Final = re.compile(r"\bresets?(?: at| on)?:? ([^.\n·|]{2,60})", re.IGNORECASE)
_STARTUP_TEXT: Final = re.compile(
    r"append system prompt|MCP config|root/sudo|session id .* (?:already in use|invalid)|invalid session id"
    r"|unknown option|error: option|--\w|ENOENT|EACCES|exceeds 10MB|input must be provided",
    re.IGNORECASE,
)


def of_result(result: Result, *, stderr: str, api_error: str | None) -> ErrorClass:
    """Return the class of a result that reports an error."""
    text = "\n".join((result.text, *result.errors, stderr))
    if result.subtype in _BY_SUBTYPE:
        return _BY_SUBTYPE[result.subtype]
    if result.stop_reason == "refusal":
        return ErrorClass.REFUSAL
    if result.terminal_reason == "prompt_too_long":
        return ErrorClass.CONTEXT
    if "EACCES" in text and "mkdir" in text:
        return ErrorClass.SETUP  # claude's own folder cannot be made, as with a read-only HOME
    if api_error in _SYNTHETIC:
        return _SYNTHETIC[api_error]
    if result.api_status in _BY_STATUS:
        return _BY_STATUS[result.api_status]
    if result.api_status is not None and result.api_status >= 500:
        return ErrorClass.API
    return _of_text(text) or ErrorClass.OTHER


def of_stderr(stderr: str, *, began: bool) -> ErrorClass | None:
    """Return the class of a process that exited with an error and no result; None when stderr tells nothing.

    `began` says whether it got to its work.
    """
    if not stderr:
        return None
    if not began and _STARTUP_TEXT.search(stderr) and _of_text(stderr) is not ErrorClass.SESSION_NOT_FOUND:
        return ErrorClass.SETUP
    return _of_text(stderr) or (ErrorClass.OTHER if began else ErrorClass.SETUP)


def limited_until(text: str) -> str | None:
    """Return until when a usage limit holds, if told: ISO 8601 in UTC, else claude's own words."""
    if (epoch := _EPOCH.search(text)) is not None:
        return epoch_as_text(int(epoch[1]))
    if (resets := _RESETS.search(text)) is not None:
        return resets[1].strip() or None
    return None


def epoch_as_text(seconds: int) -> str | None:
    """Return a time of claude's as ISO 8601 in UTC; None for one that no calendar has."""
    try:
        return as_text(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def _of_text(text: str) -> ErrorClass | None:
    for pattern, error_class in _BY_TEXT:
        if pattern.search(text):
            return error_class
    return None
