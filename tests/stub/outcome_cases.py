"""What claude can leave behind at the end of a turn, and how that must be judged; ids name the facts."""

from __future__ import annotations

import pytest

from tests.stub.steps import (
    Step,
    api_error,
    api_retry,
    assistant,
    background_ended,
    background_started,
    die_by,
    event,
    exit_with,
    init,
    raw,
    result,
    result_without,
    stderr,
    success,
    system,
    tool_result,
    tool_use,
)

LONG_LINE_BYTES = 6_002_626
EXTRA = result("", num_turns=0, origin={"kind": "task-notification"}, total_cost_usd=0)
NO_CONTEXT = "Prompt is too long"
UNREACHABLE = "API Error: Unable to connect to API (ConnectionRefused)"
REFUSED_429 = "API Error: Request rejected (429) · rate limited"
NO_MODEL = "There's an issue with the selected model (nomodel-xyz). It may not exist or is not yours."
RETRIES = [api_retry(attempt) for attempt in range(1, 11)]


def failing(*steps: Step, **fields: object) -> list[Step]:
    """Play a turn whose result is an error."""
    return [init(), *steps, result("", **({"is_error": True} | fields)), exit_with(1)]


COMPLETED = [
    pytest.param(success(), id="facts-2-a-success-with-rc-0"),
    pytest.param(
        [init(), result("no", is_error=True, api_error_status=500), *success()],
        id="facts-1-the-last-result-wins-over-an-error",
    ),
    pytest.param(
        [init(), tool_use("Bash"), background_started(), background_ended(), tool_result(), *success()],
        id="facts-2-a-bash-call-over-3-s-is-not-background-work",
    ),
    pytest.param([EXTRA, *success()], id="facts-3-an-extra-result-comes-first-after-a-kill"),
    pytest.param(
        [*success("first"), system("task_updated", task_id="b"), *success()],
        id="facts-4-a-second-round-runs-in-the-same-process",
    ),
    pytest.param(
        [init(), raw(b'{"type":"x","t":"' + b"y" * LONG_LINE_BYTES + b'"}\n'), result()],
        id="facts-5-a-line-of-six-million-bytes",
    ),
    pytest.param(
        [init(), raw(b"\xff\xfe\x00 not json\r\n\n   \n[1]\nnull\n"), result()],
        id="facts-5-noise-that-is-not-json",
    ),
    pytest.param(
        [init(), system("status", status="compacting"), system("compact_boundary"), result()],
        id="facts-8-a-later-overflow-is-compacted-and-goes-on",
    ),
    pytest.param([init(), api_retry(1), api_retry(2), result()], id="facts-8-529-twice-then-ok"),
    pytest.param([init(), result(stop_reason="max_tokens")], id="facts-8-max-tokens-goes-on"),
    pytest.param(
        [init(), event(type="nobody_knows_this", deep=[[]]), result()], id="case-A9-an-event-of-unknown-type"
    ),
    pytest.param(
        [init(), system("model_fallback", trigger="model_not_found"), result()],
        id="facts-10-a-fallback-model-answers",
    ),
]

FAILED = [
    pytest.param([init(), *api_error(429, REFUSED_429)], "limit", id="facts-2-api-error-has-subtype-success"),
    pytest.param([init(), *RETRIES, *api_error(429, REFUSED_429)], "limit", id="facts-8-429-after-retries"),
    pytest.param(
        [*success("fine so far"), *api_error(529, "API Error: Overloaded")],
        "api",
        id="facts-1-the-last-result-wins-over-a-success",
    ),
    pytest.param(
        [init(), *api_error(401, "Invalid API key · Fix external API key")[:-1], exit_with(0)],
        "auth",
        id="case-A13-401-with-exit-code-0",
    ),
    pytest.param(
        [init(), *api_error(429, REFUSED_429)[:-1], exit_with(0)], "limit", id="case-A13-429-with-exit-code-0"
    ),
    pytest.param(
        [init(), *api_error(529, "API Error: Overloaded")[:-1], exit_with(0)],
        "api",
        id="case-A13-529-with-exit-code-0",
    ),
    pytest.param(
        [init(), *api_error(401, "Invalid API key · Fix external API key", error="authentication_failed")],
        "auth",
        id="facts-8-401-case-H2",
    ),
    pytest.param(
        [init(), *api_error(403, "Failed to authenticate. API Error: 403 no permission")],
        "auth",
        id="facts-8-403",
    ),
    pytest.param(
        [init(), *api_error(None, "Not logged in · Please run /login", error="authentication_failed")],
        "auth",
        id="facts-8-no-key",
    ),
    pytest.param(
        [init(), *api_error(400, NO_CONTEXT, terminal_reason="prompt_too_long")],
        "context",
        id="facts-8-prompt-too-long-in-the-first-round",
    ),
    pytest.param(
        [init(), *api_error(400, "API Error: 400 messages.0: bad", error="invalid_request")],
        "other",
        id="facts-8-400-other",
    ),
    pytest.param(
        [init(), *api_error(400, "Credit balance is too low", error="billing_error")],
        "budget",
        id="facts-8-400-credit",
    ),
    pytest.param([init(), *api_error(500, "API Error: 500 Internal error")], "api", id="facts-8-500"),
    pytest.param([init(), *api_error(529, "API Error: Overloaded")], "api", id="facts-8-529"),
    pytest.param([init(), *RETRIES, *api_error(None, UNREACHABLE)], "api", id="facts-8-refused-or-dns"),
    pytest.param([init(), *api_error(None, "Request timed out")], "api", id="facts-8-request-timed-out"),
    pytest.param(
        failing(system("model_refusal_no_fallback"), stop_reason="refusal"), "refusal", id="facts-8-refusal"
    ),
    pytest.param(
        failing(
            subtype="error_max_turns",
            terminal_reason="max_turns",
            errors=["Reached maximum number of turns (1)"],
        ),
        "turns",
        id="facts-2-max-turns",
    ),
    pytest.param(
        [init(), result_without("result", "terminal_reason", subtype="error_max_budget_usd", is_error=True)],
        "budget",
        id="facts-2-max-budget-has-no-terminal-reason",
    ),
    pytest.param(
        [init(), result_without("result", subtype="error_during_execution", is_error=True), exit_with(1)],
        "other",
        id="facts-2-error-during-execution",
    ),
    pytest.param(
        [init(), *api_error(404, NO_MODEL, error="model_not_found")], "model", id="facts-10-unknown-model"
    ),
    pytest.param([init(), assistant("that is all")], "no result", id="case-A4-no-result-at-exit-0"),
    pytest.param([], "no result", id="case-A6-exit-0-without-any-output"),
    pytest.param(
        [init(), raw(b'{"type":"result","subtype":"success","is_er')],
        "no result",
        id="facts-5-the-last-line-is-cut",
    ),
    pytest.param([init(), exit_with(3)], "no result", id="facts-2-an-exit-code-of-its-own-without-a-result"),
    pytest.param(
        [stderr("Error: Append system prompt file not found: /gone"), exit_with(1)],
        "setup",
        id="facts-7-prompt-file-not-found",
    ),
    pytest.param(
        [
            stderr("Error reading append system prompt file: EISDIR: illegal operation on a directory"),
            exit_with(1),
        ],
        "setup",
        id="facts-7-prompt-file-is-a-folder",
    ),
    pytest.param(
        [stderr("--dangerously-skip-permissions cannot be used with root/sudo privileges"), exit_with(1)],
        "setup",
        id="facts-7-root-without-sandbox",
    ),
    pytest.param(
        [stderr("Error: Invalid MCP configuration:\nMCP config is not a valid JSON"), exit_with(1)],
        "setup",
        id="facts-9-invalid-mcp-configuration",
    ),
    pytest.param(
        [stderr("error: unknown option '--strict-mcp-config'"), exit_with(1)],
        "setup",
        id="facts-7-arguments-that-claude-does-not-know",
    ),
    pytest.param(
        [stderr("Error: Session ID 1-2 is already in use."), exit_with(1)],
        "setup",
        id="facts-6-session-id-already-in-use",
    ),
]

KILLED = [
    pytest.param([init(), exit_with(143)], "SIGTERM", id="facts-3-sigterm-is-exit-143"),
    pytest.param([init(), exit_with(129)], "SIGHUP", id="facts-3-sighup-is-exit-129"),
    pytest.param([init(), die_by("SIGKILL")], "SIGKILL", id="facts-3-sigkill"),
    pytest.param([die_by("SIGINT")], "SIGINT", id="facts-3-early-sigint-without-a-handler"),
    pytest.param([init(), die_by("SIGSEGV")], "SIGSEGV", id="facts-3-a-crash"),
]

LIMITS = [
    pytest.param(
        [init(), *api_error(429, "You've hit your session limit · resets 3:45pm (UTC)")],
        "45",
        id="case-J2-facts-8-session-limit-with-a-time-of-day",
    ),
    pytest.param(
        [init(), *api_error(429, "Claude AI usage limit reached|1893456000")],
        "2030-01-01",
        id="case-J2-usage-limit-with-an-epoch",
    ),
    pytest.param(
        [
            init(),
            event(type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": 1893456000}),
            *api_error(429, "You've hit your limit"),
        ],
        "2030-01-01",
        id="case-J2-limit-told-by-an-event-of-its-own",
    ),
]
