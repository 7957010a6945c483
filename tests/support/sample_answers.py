"""An answer of each tool as the contract shows it, for tests of what stands between service and parent."""

from __future__ import annotations

from typing import Any

OUTCOME: dict[str, Any] = {
    "name": "reviewer",
    "turn": "20260101t120000-1",
    "outcome": "completed",
    "cause": None,
    "signal": None,
    "oom": None,
    "error_class": None,
    "error": None,
    "text": "All tests pass.",
    "text_length": 15,
    "warnings": [],
    "limited_until": None,
    "dir": "/srv/project",
    "session_id": "0f0e0d0c-0b0a-0908-0706-050403020100",
    "model": "opus",
    "cost_usd": 0.4321,
    "rounds": 7,
    "duration_seconds": 83.4,
    "parent": None,
    "depth": 1,
    "started_at": "2026-01-01T12:00:00Z",
    "ended_at": "2026-01-01T12:01:23Z",
}

KILLED = OUTCOME | {
    "outcome": "killed",
    "cause": "oom",
    "signal": "SIGKILL",
    "oom": {"kills": 2, "peak_bytes": 210 * 2**20, "limit_bytes": 200 * 2**20},
    "text": "I was just",
    "text_length": 10,
    "cost_usd": None,
    "rounds": None,
}

FAILED = OUTCOME | {
    "outcome": "failed",
    "error_class": "limit",
    "error": "You have reached\nyour limit",
    "limited_until": "2026-01-01T17:00:00Z",
    "text": None,
    "text_length": None,
}

COULD_NOT_START = FAILED | {"outcome": "could not start", "error_class": None, "limited_until": None}

LOST = OUTCOME | {"outcome": "lost", "text": None, "text_length": None, "warnings": ["The daemon was gone."]}


def loose_end(loose_end_id: str, outcome: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the notice of an ended turn."""
    return (outcome or OUTCOME) | {"id": loose_end_id, "title": "'reviewer' completed"}


STARTED: dict[str, Any] = {
    "name": "reviewer",
    "state": "running",
    "turn": "20260101t120000-1",
    "pid": 4711,
    "session_id": "0f0e0d0c-0b0a-0908-0706-050403020100",
    "dir": "/srv/project",
    "scope": None,
}

RUNNING: dict[str, Any] = {
    "name": "reviewer",
    "state": "running",
    "dir": "/srv/project",
    "session_id": "0f0e0d0c-0b0a-0908-0706-050403020100",
    "model": None,
    "parent": None,
    "depth": 1,
    "turn": "20260101t120000-1",
    "running_seconds": 125.2,
    "age_seconds": 3.1,
    "stalled": False,
    "activity": {
        "kind": "tool",
        "tool": "Bash",
        "since_seconds": 61.0,
        "attempt": None,
        "max_attempts": None,
        "error": None,
    },
    "memory_bytes": 250 * 2**20,
    "memory_limit_bytes": None,
    "mcp_problems": [],
    "cost_usd": None,
    "rounds": None,
    "timeout_seconds": 600.0,
    "max_budget_usd": None,
    "max_turns": None,
}

IDLE: dict[str, Any] = {
    "name": "writer",
    "state": "idle",
    "dir": "/srv/project",
    "session_id": None,
    "model": None,
    "parent": None,
    "depth": 1,
    "turn": "20260101t110000-1",
    "last_turn": OUTCOME,
}

UNKNOWN: dict[str, Any] = {
    "name": "nobody",
    "state": "unknown",
    "dir": None,
    "session_id": None,
    "model": None,
    "parent": None,
    "depth": 1,
    "turn": None,
    "last_turn": None,
}

STATUS: dict[str, Any] = {
    "subagents": [RUNNING, IDLE, UNKNOWN],
    "more": 0,
    "launcher": "process group",
    "claude_version": "2.1.197",
    "undelivered": 0,
    "warnings": [],
}

INTERRUPTED: dict[str, Any] = {"name": "reviewer", "signal": "SIGINT", "ended": False, "outcome": None}

ANSWERS: dict[str, dict[str, Any]] = {
    "start": STARTED,
    "continue": STARTED | {"previous_turn": KILLED},
    "interrupt": INTERRUPTED,
    "steer": {"name": "reviewer", "turn": "20260101t120000-1", "sent": True, "unread_messages": 2},
    "status": STATUS,
    "wait": {"ended": ["writer"], "timed_out": False, "subagents": [IDLE, RUNNING], "more": 0},
    "get_loose_ends": {"loose_ends": [loose_end("a-1"), loose_end("a-2", KILLED)], "remaining": 1},
    "close_loose_ends": {"closed": ["a-1"], "unknown": []},
}
