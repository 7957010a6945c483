"""What each tool answers: the JSON Schemas of the structured content.

The field names are a contract. Further fields may be added, so no schema forbids them, and the SDK's
clients refuse an answer that lacks a required field: only what is always there is required.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

OUTCOMES = ["completed", "failed", "killed", "could not start", "lost"]
CAUSES = ["oom", "interrupt", "forced interrupt", "daemon stopped", "timeout", "unknown"]
STATES = ["running", "idle", "killed", "unknown"]
LAUNCHERS = ["system scope", "user scope", "process group"]
ACTIVITIES = ["starting", "model", "tool", "retry"]
ERROR_CLASSES = [
    "auth",
    "limit",
    "api",
    "context",
    "budget",
    "turns",
    "refusal",
    "session not found",
    "model",
    "setup",
    "no result",
    "other",
]


def _is(kind: str, description: str, **more: object) -> Schema:
    return {"type": kind, "description": description, **more}


def _or_null(kind: str, description: str) -> Schema:
    return {"type": [kind, "null"], "description": description}


def _one_of(values: list[str], description: str) -> Schema:
    return {"type": "string", "enum": values, "description": description}


def _one_of_or_null(values: list[str], description: str) -> Schema:
    return {"type": ["string", "null"], "enum": [*values, None], "description": description}


def _strings(description: str) -> Schema:
    return _is("array", description, items={"type": "string"})


def _object(required: Schema, *, optional: Schema | None = None, description: str = "") -> Schema:
    described = {"description": description} if description else {}
    properties = {**required, **(optional or {})}
    return {"type": "object", **described, "properties": properties, "required": list(required)}


def _object_or_null(schema: Schema) -> Schema:
    return {**schema, "type": ["object", "null"]}


_NAME = _is("string", "Name of the subagent.")
_TURN = _is("string", "Id of the turn.")
_DIR = _or_null("string", "Working directory.")
_SESSION = _or_null("string", "Id of claude's session.")
_MODEL = _or_null("string", "Model, where it is known.")

_PARENT = _or_null("string", "Subagent that started it; null: the agent itself.")
_DEPTH = _or_null("integer", "1 where the agent itself started it, one more for each subagent in between.")

_OOM = _object_or_null(
    _object(
        {
            "kills": _or_null("integer", "Processes that the kernel killed."),
            "peak_bytes": _or_null("integer", "Most memory used."),
            "limit_bytes": _or_null("integer", "Memory limit."),
        },
        description="Processes of the turn that ran out of memory, also of a completed one.",
    )
)

_HOW_IT_ENDED: Schema = {
    "outcome": _one_of(OUTCOMES, "How the turn ended. Only completed means that claude ended it normally."),
    "cause": _one_of_or_null(CAUSES, "Why a killed turn was cut off."),
    "signal": _or_null("string", "The signal of a killed turn, by name."),
    "oom": _OOM,
    "error_class": _one_of_or_null(ERROR_CLASSES, "What kind of failure it was."),
    "error": _or_null("string", "The error of a turn that failed."),
    "text": _or_null(
        "string", "Final text of the subagent, or the text so far of a cut-off turn; may be cut."
    ),
    "text_length": _or_null("integer", "Characters of the whole text."),
    "warnings": _strings("What to know before building on it."),
    "limited_until": _or_null("string", "When a usage limit ends."),
    "dir": _DIR,
    "session_id": _SESSION,
    "model": _MODEL,
    "cost_usd": _or_null("number", "Cost in US dollars, as claude reports it."),
    "rounds": _or_null("integer", "Model exchanges in the turn."),
    "duration_seconds": _or_null("number", "From spawn to end."),
    "parent": _PARENT,
    "depth": _DEPTH,
    "started_at": _or_null("string", "When the turn was spawned."),
    "ended_at": _or_null("string", "When the turn ended."),
}

OUTCOME = _object({"name": _NAME, "turn": _TURN, **_HOW_IT_ENDED}, description="How a turn ended.")

LOOSE_END = _object(
    {
        "id": _is("string", "Pass it to close_loose_ends."),
        "name": _NAME,
        "turn": _TURN,
        "title": _is("string", "One line that says what ended and how."),
        **_HOW_IT_ENDED,
    },
    description="The notice that a turn has ended.",
)

_STARTED: Schema = {
    "name": _NAME,
    "state": _one_of(["running"], "The process is confirmed running."),
    "turn": _TURN,
    "pid": _is("integer", "Process id of claude."),
    "session_id": _SESSION,
    "dir": _is("string", "Working directory."),
    "scope": _or_null("string", "The systemd scope of the turn."),
}

_AHEAD: Schema = {"warnings": _strings("Why this turn will probably fail like those before it.")}

START_ANSWER = _object(_STARTED, optional=_AHEAD)

CONTINUE_ANSWER = _object(
    _STARTED,
    optional={
        **_AHEAD,
        "previous_turn": _object_or_null(
            {
                **OUTCOME,
                "description": "Only when the previous turn was killed or lost: its work was cut off.",
            }
        ),
    },
)

INTERRUPT_ANSWER = _object(
    {
        "name": _NAME,
        "signal": _or_null(
            "string", "The signal that was sent, by name; none when the turn was ending by itself."
        ),
        "ended": _is("boolean", "false: it is still shutting down."),
        "outcome": _object_or_null({**OUTCOME, "description": "How the turn ended, once it has."}),
    },
    optional={
        "stopped_processes": _strings("Processes that were killed."),
        "remaining_processes": _strings("Processes that could not be killed."),
    },
)

_ACTIVITY = _object_or_null(
    _object(
        {"kind": _one_of(ACTIVITIES, "starting: nothing was printed yet. retry: the API is tried again.")},
        optional={
            "tool": _or_null("string", "Tool that is running."),
            "since_seconds": _or_null("number", "Since when."),
            "attempt": _or_null("integer", "Which try of the API it is."),
            "max_attempts": _or_null("integer", "How often claude tries."),
            "error": _or_null("string", "Why the API is tried again."),
        },
        description="What a running subagent is doing, where that is known.",
    )
)

_SUBAGENT = _object(
    {
        "name": _NAME,
        "state": _one_of(STATES, "killed: the last turn was cut off. unknown: no turn of it is on record."),
        "dir": _DIR,
        "session_id": _SESSION,
        "model": _MODEL,
        "turn": _or_null("string", "Id of the running or last turn."),
    },
    optional={
        "parent": _PARENT,
        "depth": _DEPTH,
        "running_seconds": _is("number", "Running: since when."),
        "age_seconds": _is("number", "Running: age of its last output. Seconds mean that it works."),
        "stalled": _is("boolean", "Running: silent for longer than is normal."),
        "activity": _ACTIVITY,
        "memory_bytes": _or_null("integer", "Running: memory in use."),
        "memory_limit_bytes": _or_null("integer", "Running: memory limit."),
        "mcp_problems": _strings("Running: MCP servers that it lacks, and why."),
        "cost_usd": _or_null(
            "number", "Running: cost so far, where claude has told; it does after a result."
        ),
        "rounds": _or_null("integer", "Running: rounds so far, where claude has told."),
        "timeout_seconds": _or_null("number", "Running: how long it may take."),
        "max_budget_usd": _or_null("number", "Running: what it may cost."),
        "max_turns": _or_null("integer", "Running: rounds that it may take."),
        "steerable": _is("boolean", "Running: whether steer can hand it a message now."),
        "unread_messages": _is("integer", "Running: messages of steer that it has not read yet."),
        "last_turn": _object_or_null({**OUTCOME, "description": "Not running: how its last turn ended."}),
    },
)

STEER_ANSWER = _object(
    {
        "name": _NAME,
        "turn": _TURN,
        "sent": _is(
            "boolean", "Always true: it is on its way. A warning in the loose end tells if it was not read."
        ),
        "unread_messages": _is(
            "integer", "Messages, with this one, that it has not read yet: it does between two steps."
        ),
    }
)

STATUS_ANSWER = _object(
    {
        "subagents": _is("array", "Running ones first, then the most recent.", items=_SUBAGENT),
        "more": _is("integer", "Further subagents, not shown."),
        "launcher": _one_of(LAUNCHERS, "What holds the processes of a turn."),
        "claude_version": _or_null("string", "Version of the claude program."),
        "undelivered": _is("integer", "Loose ends that a configured sink has not taken yet."),
        "warnings": _strings("What is wrong with the daemon itself."),
    },
    optional={
        "claude_config_dir": _is(
            "string", "Where claude keeps its sessions; a relative one lies below the working directory."
        ),
    },
)

WAIT_ANSWER = _object(
    {
        "ended": _strings("Those that do not run any more: leave them out of the next call."),
        "timed_out": _is("boolean", "true: the time was over before one of them ended."),
        "subagents": _is("array", "All of them as in status, those that have ended first.", items=_SUBAGENT),
        "more": _is("integer", "Further ones, not shown."),
    }
)

LOOSE_ENDS_ANSWER = _object(
    {
        "loose_ends": _is("array", "Open ones, oldest first.", items=LOOSE_END),
        "remaining": _is("integer", "Further open ones, not shown."),
    }
)

CLOSE_ANSWER = _object(
    {
        "closed": _strings("Ids that are closed now, also those that were before."),
        "unknown": _strings("Ids that no loose end has."),
    }
)
