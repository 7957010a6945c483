"""Each failure is told apart by claude's own words, as they were measured; ids name their section."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import classify
from hive_subagent_daemon.values import ErrorClass
from tests.unit.support_evidence import error, result

if TYPE_CHECKING:
    from hive_subagent_daemon.events import Result

AUTH, LIMIT, API, CONTEXT = ErrorClass.AUTH, ErrorClass.LIMIT, ErrorClass.API, ErrorClass.CONTEXT
BUDGET, TURNS, REFUSAL, MODEL = ErrorClass.BUDGET, ErrorClass.TURNS, ErrorClass.REFUSAL, ErrorClass.MODEL
NO_SESSION, SETUP, OTHER = ErrorClass.SESSION_NOT_FOUND, ErrorClass.SETUP, ErrorClass.OTHER

NO_MODEL = (
    "There's an issue with the selected model (nomodel-xyz). "
    "It may not exist or you may not have access to it."
)

RESULTS = [
    (
        "facts-8-401",
        error("Invalid API key · Fix external API key", api_status=401), "authentication_failed", AUTH,
    ),
    (
        "facts-8-403",
        error("Failed to authenticate. API Error: 403 no permission", api_status=403), None, AUTH,
    ),
    ("facts-8-no-key", error("Not logged in · Please run /login"), "authentication_failed", AUTH),
    ("facts-8-no-key-text-only", error("Not logged in · Please run /login"), None, AUTH),
    ("cases-H2-token-expired", error("OAuth token has expired. Please obtain a new token"), None, AUTH),
    (
        "facts-8-400-prompt-too-long",
        error("Prompt is too long", api_status=400, terminal_reason="prompt_too_long"), "invalid_request",
        CONTEXT,
    ),
    ("facts-8-400-prompt-too-long-text-only", error("Prompt is too long", api_status=400), None, CONTEXT),
    ("facts-8-400-other", error("API Error: 400 messages.0: bad", api_status=400), "invalid_request", OTHER),
    ("facts-8-400-credit", error("Credit balance is too low", api_status=400), "billing_error", BUDGET),
    ("facts-8-400-credit-text-only", error("Credit balance is too low", api_status=400), None, BUDGET),
    (
        "facts-8-429",
        error("API Error: Request rejected (429) · slow down", api_status=429), "rate_limit", LIMIT,
    ),
    ("facts-8-429-text-only", error("API Error: Request rejected (429) · slow down"), None, LIMIT),
    ("facts-8-500", error("API Error: 500 boom", api_status=500), "server_error", API),
    ("facts-8-529", error("API Error: 529 Overloaded", api_status=529), "overloaded", API),
    ("facts-8-529-text-only", error("API Error: 529 Overloaded"), None, API),
    ("facts-8-refused", error("API Error: Unable to connect to API (ConnectionRefused)"), "unknown", API),
    ("facts-8-dns", error("API Error: Unable to connect to API (FailedToOpenSocket)"), "unknown", API),
    ("facts-8-timed-out", error("Request timed out"), None, API),
    ("facts-8-refusal", error("API Error: refused", stop_reason="refusal", api_status=400), None, REFUSAL),
    (
        "facts-2-max-turns",
        error("", subtype="error_max_turns", errors=("Reached maximum number of turns (1)",),
    ),
     None, TURNS),
    ("facts-2-max-turns-text-only", error("", errors=("Reached maximum number of turns (1)",)), None, TURNS),
    ("facts-2-max-budget", error("", subtype="error_max_budget_usd", terminal_reason=None), None, BUDGET),
    (
        "facts-10-unknown-model",
        error(NO_MODEL, api_status=404), "model_not_found", MODEL,
    ),
    ("facts-10-unknown-model-text-only", error("There's an issue with the selected model (x)."), None, MODEL),
    (
        "facts-6-not-found-by-id",
        error("", errors=("No conversation found with session ID: U",)), None, NO_SESSION,
    ),
    ("facts-2-an-error-without-words", error("", subtype="error_during_execution"), None, OTHER),
    ("facts-6-an-unwritable-home", error("EACCES: permission denied, mkdir '/h/.claude'"), None, SETUP),
    ("cases-J2-limit-with-epoch", error("Claude AI usage limit reached|1764547200"), None, LIMIT),
    ("cases-J2-limit-with-words", error("You've hit your limit · resets 3pm (UTC)"), "rate_limit", LIMIT),
    ("cases-J2-limit-with-words-only", error("You've hit your limit · resets 3pm (UTC)"), None, LIMIT),
    (
        "cases-J2-session-limit",
        error("You've hit your session limit · resets 2am (Europe/Berlin)"), None, LIMIT,
    ),
    ("cases-J2-five-hour-limit", error("5-hour limit reached ∙ resets 1pm"), None, LIMIT),
]  # fmt: skip


@pytest.mark.parametrize(
    ("last", "api_error", "expected"), [pytest.param(*rest, id=name) for name, *rest in RESULTS]
)
def test_an_error_result_has_its_class(last: Result, api_error: str | None, expected: ErrorClass) -> None:
    assert classify.of_result(last, stderr="", api_error=api_error) is expected


def test_what_stands_on_stderr_counts_where_the_result_has_no_words() -> None:
    last = error("", subtype="error_during_execution")
    words = "No conversation found with session ID: U"
    assert classify.of_result(last, stderr=words, api_error=None) is NO_SESSION


@pytest.mark.parametrize("number", [429, 401, 500, 529])
def test_a_number_in_the_words_of_an_error_400_is_no_status(number: int) -> None:
    """A size or an index in its words must not be taken for another status than the API's own."""
    last = error(f"API Error: 400 messages.{number}: content too short", api_status=400)
    assert classify.of_result(last, stderr="", api_error="invalid_request") is OTHER


STARTUP = [
    ("facts-7-no-prompt-file", "Error: Append system prompt file not found: /p/x.md", SETUP),
    (
        "facts-7-folder",
        "Error reading append system prompt file: EISDIR: illegal operation on a directory, read", SETUP,
    ),
    (
        "facts-7-unreadable",
        "Error reading append system prompt file: EACCES: permission denied, open '/p/x.md'", SETUP,
    ),
    (
        "facts-7-both-flags",
        "Error: Cannot use both --append-system-prompt and --append-system-prompt-file.", SETUP,
    ),
    (
        "facts-7-root",
        "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons", SETUP,
    ),
    ("facts-9-mcp-json", "Error: Invalid MCP configuration:\nMCP config is not a valid JSON", SETUP),
    ("facts-9-mcp-file", "Error: Invalid MCP configuration:\nMCP config file not found: /m.json", SETUP),
    ("facts-6-id-in-use", "Error: Session ID 0f0e0d0c-0b0a-4908-8706-050403020100 is already in use.", SETUP),
    ("facts-6-bad-id", "Error: Invalid session ID. Must be a valid UUID.", SETUP),
    (
        "facts-6-id-and-resume",
        "Error: --session-id can only be used with --continue or --resume if --fork-session is specified.",
        SETUP,
    ),
    ("facts-6-directory-gone", "ENOENT: Bun could not find a file, and the code that produces this", SETUP),
    ("facts-6-two-sessions", '--resume "cl" matches 2 sessions', SETUP),
    ("facts-6-not-found-by-id", "No conversation found with session ID: U", NO_SESSION),
    (
        "facts-3-not-found-by-title",
        'Provided value "early600" is not a UUID and does not match any session title.', NO_SESSION,
    ),
    (
        "facts-3-not-found-by-title-with-a-flag",
        'Error: --resume: Provided value "a" is not a UUID and does not match any session title.', NO_SESSION,
    ),
    (
        "facts-5-too-long",
        "Error: piped stdin input exceeds 10MB. Pass large content as a file path in your prompt instead.",
        SETUP,
    ),
    (
        "facts-5-empty",
        "Error: Input must be provided either through stdin or as a prompt argument when using --print",
        SETUP,
    ),
    ("section-13-arguments", "error: unknown option '--nosuch'", SETUP),
    ("section-13-whatever-was-said-before-the-work", "something nobody has seen before", SETUP),
    ("cases-D5-held-by-the-background-mode", "This session is running as a background agent.", SETUP),
]  # fmt: skip


@pytest.mark.parametrize(("stderr", "expected"), [pytest.param(*rest, id=name) for name, *rest in STARTUP])
def test_an_error_at_the_start_has_its_class(stderr: str, expected: ErrorClass) -> None:
    assert classify.of_stderr(stderr, began=False) is expected


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("Credit balance is too low", BUDGET),
        ("API Error: 529 Overloaded", API),
        ("read ECONNRESET", API),
        ("You've hit your limit · resets 3pm (UTC)", LIMIT),
        ("a crash that nobody has seen before at --x", OTHER),
        ("ENOENT: no such file", OTHER),
    ],
)
def test_an_error_in_the_middle_of_the_work_is_none_of_the_start(stderr: str, expected: ErrorClass) -> None:
    assert classify.of_stderr(stderr, began=True) is expected


@pytest.mark.parametrize("began", [True, False])
def test_an_empty_stderr_tells_nothing(*, began: bool) -> None:
    assert classify.of_stderr("", began=began) is None


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_any_words_on_stderr_have_a_class(stderr: str, began: object) -> None:
    found = classify.of_stderr(stderr, began=bool(began))
    assert (found is None) == (not stderr)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("Claude AI usage limit reached|1764547200", "2025-12-01T00:00:00.000Z"),
        ("API Error: Claude AI usage limit reached|1764547200 · x", "2025-12-01T00:00:00.000Z"),
        ("You've hit your limit · resets 3pm (UTC)", "3pm (UTC)"),
        ("You've hit your limit · resets 3pm (UTC)\nand more", "3pm (UTC)"),
        ("You've hit your session limit · resets 2am (Europe/Berlin)", "2am (Europe/Berlin)"),
        (
            "You've hit your weekly limit · resets Dec 3, 10:59am (America/New_York)",
            "Dec 3, 10:59am (America/New_York)",
        ),
        ("Your limit will reset at 3pm (UTC).", "3pm (UTC)"),
        ("5-hour limit reached ∙ resets 1pm", "1pm"),
        ("API Error: Request rejected (429) · slow down", None),
        ("limit reached|12345", None),
        ("limit reached|9999999999", "2286-11-20T17:46:39.000Z"),
        ("the connection was reset", None),
        ("", None),
    ],
)  # fmt: skip
def test_until_when_a_limit_holds_is_taken_from_the_words(text: str, until: str | None) -> None:
    assert classify.limited_until(text) == until


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1_764_547_200, "2025-12-01T00:00:00.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (2**53, None),
        (-(2**53), None),
        (10**30, None),
    ],
)
def test_a_time_of_claudes_is_told_unless_no_calendar_has_it(seconds: int, text: str | None) -> None:
    assert classify.epoch_as_text(seconds) == text


@given(st.text(st.characters(codec="utf-8")), st.integers(0, 10**12))
def test_no_words_make_the_reading_of_a_limit_fail(text: str, number: int) -> None:
    for words in (text, f"{text} limit reached|{number}", f"resets {text}"):
        until = classify.limited_until(words)
        assert until is None or until


@pytest.mark.parametrize("status", [None, 200, 400, 404, 429, 500, 599])
def test_every_error_has_a_class_whatever_its_status(status: int | None) -> None:
    assert classify.of_result(result("", api_status=status), stderr="", api_error=None) in ErrorClass
