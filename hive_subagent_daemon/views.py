"""Outcomes, loose ends and subagents as the JSON that the tools answer with (the contract's field names)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hive_subagent_daemon.skim import Activity
    from hive_subagent_daemon.values import LooseEnd, Outcome

Json = dict[str, Any]

# A Claude Code parent is shown about 24 KB of one answer; a client may write a character as `\\uXXXX`.
ANSWER_BYTES: Final = 23_000
STATUS_ENTRIES: Final = 50
TEXTS_SHOWN: Final = 10
STATUS_TEXT_CHARACTERS: Final = 200
NOTICE_TEXT_CHARACTERS: Final = 4_000
WHOLE_TEXT_CHARACTERS: Final = 20_000


def outcome_json(outcome: Outcome, *, text_characters: int = NOTICE_TEXT_CHARACTERS) -> Json:
    """Return the outcome object, its text cut."""
    verdict = outcome.verdict
    oom = verdict.oom
    return {
        "name": outcome.name,
        "turn": outcome.turn,
        "outcome": verdict.kind.value,
        "cause": verdict.cause.value if verdict.cause else None,
        "signal": verdict.signal,
        "oom": {"kills": oom.kills, "peak_bytes": oom.peak_bytes, "limit_bytes": oom.limit_bytes}
        if oom
        else None,
        "error_class": verdict.error_class.value if verdict.error_class else None,
        "error": _cut(verdict.error, text_characters),
        "text": _cut(verdict.text, text_characters),
        "text_length": outcome.text_length,
        "warnings": bounded(verdict.warnings),
        "limited_until": verdict.limited_until,
        "dir": outcome.dir,
        "session_id": outcome.session_id,
        "model": outcome.model,
        "cost_usd": verdict.cost_usd,
        "rounds": verdict.rounds,
        "duration_seconds": outcome.duration_seconds,
        "parent": outcome.parentage.name,
        "depth": outcome.parentage.depth,
        "started_at": outcome.started_at,
        "ended_at": outcome.ended_at,
    }


def loose_end_json(loose_end: LooseEnd, *, text_characters: int) -> Json:
    """Return a loose end, its text cut."""
    shown = outcome_json(loose_end.outcome, text_characters=text_characters)
    return {"id": loose_end.id, "title": loose_end.title, **shown, "closed_at": loose_end.closed_at}


def activity_json(activity: Activity | None, *, since_seconds: float) -> Json | None:
    """Return what claude is doing and since when."""
    if activity is None:
        return None
    return {
        "kind": activity.kind,
        "tool": activity.tool,
        "since_seconds": round(since_seconds, 1),
        "attempt": activity.attempt,
        "max_attempts": activity.max_attempts,
        "error": activity.error,
    }


def fitting(entries: Iterable[Json], *, most: int) -> list[Json]:
    """Return the first entries that fit into one answer, at least one of them."""
    chosen: list[Json] = []
    size = 0
    for entry in entries:
        size += len(json.dumps(entry, ensure_ascii=False).encode())
        if len(chosen) == most or (chosen and size > ANSWER_BYTES):
            break
        chosen.append(entry)
    return chosen


def bounded(texts: Sequence[str]) -> list[str]:
    """Return texts for one answer: few and short enough to leave room for the rest."""
    shown = [text if len(text) <= 500 else f"{text[:499]}…" for text in texts[:TEXTS_SHOWN]]
    return shown if len(texts) <= TEXTS_SHOWN else [*shown, f"and {len(texts) - TEXTS_SHOWN} more"]


def _cut(text: str | None, characters: int) -> str | None:
    return text if text is None or len(text) <= characters else text[:characters]
