"""The end of a turn: its outcome, its one loose end, what is remembered of the name, and how it is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.judge import judge
from hive_subagent_daemon.records import SubagentRecord
from hive_subagent_daemon.values import ErrorClass, LooseEnd, Outcome, OutcomeKind, Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from hive_subagent_daemon.evidence import Evidence
    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.records import Records, TurnRecord
    from hive_subagent_daemon.skim import Seen

STORED_TEXT_CHARACTERS: Final = 20_000
_TITLE_CHARACTERS: Final = 120


def outcome_of(
    record: TurnRecord, evidence: Evidence, *, ended_at: datetime, duration_seconds: float
) -> Outcome:
    """Judge a turn and put the verdict together with what identifies the turn."""
    verdict = judge(evidence)
    seen = evidence.seen
    session_id = record.session_id if verdict.kind.ran or record.resumes else None
    if not _met_no_session(verdict):  # then claude tells an id of no session
        for event in (seen.init, seen.result):
            session_id = session_id or (event.session_id if event else None)
    return Outcome(
        name=record.name,
        turn=record.turn,
        dir=record.dir,
        session_id=session_id,
        model=(seen.init.model if seen.init else None) or record.model,
        started_at=record.started_at,
        ended_at=clock.as_text(ended_at),
        duration_seconds=round(max(duration_seconds, 0.0), 3),
        text_length=_text_length(verdict.text, seen),
        verdict=_bounded(verdict),
        parentage=record.parentage,
    )


def _met_no_session(verdict: Verdict) -> bool:
    """Whether the turn had no session of claude's to work in."""
    return not verdict.kind.ran or verdict.error_class is ErrorClass.SESSION_NOT_FOUND


def _text_length(text: str | None, seen: Seen) -> int:
    """Return the full length of a text that may have been cut while it was skimmed."""
    texts = [(earlier.result.text, earlier.length) for earlier in seen.earlier]
    if seen.result is not None:
        texts.append((seen.result.text, seen.result_length))
    texts.append((seen.last_text, seen.text_length))
    return max([length for told, length in texts if told == text], default=len(text or ""))


def _bounded(verdict: Verdict) -> Verdict:
    text = verdict.text
    return verdict if text is None else replace(verdict, text=text[:STORED_TEXT_CHARACTERS])


def loose_end_of(outcome: Outcome) -> LooseEnd:
    """Return the one notice of a turn's end; its id is the turn's, so that it cannot be stored twice."""
    return LooseEnd(id=outcome.turn, title=_title(outcome), outcome=outcome)


def _title(outcome: Outcome) -> str:
    verdict = outcome.verdict
    match verdict.kind:
        case OutcomeKind.KILLED:
            title = f"{outcome.name} was killed mid-turn by {verdict.signal} ({verdict.cause})"
        case OutcomeKind.FAILED:
            first = (verdict.error or "").splitlines()[0] if verdict.error else ""
            title = f"{outcome.name} failed ({verdict.error_class}): {first}"
        case OutcomeKind.COULD_NOT_START:
            title = f"{outcome.name} could not start"
        case OutcomeKind.LOST:
            title = f"{outcome.name} was lost: how its turn ended is not known"
        case _:
            title = f"{outcome.name} completed its turn"
    return title if len(title) <= _TITLE_CHARACTERS else f"{title[: _TITLE_CHARACTERS - 1]}…"


def remembered(record: TurnRecord, outcome: Outcome, before: SubagentRecord | None) -> SubagentRecord:
    """Return what is remembered of a name after a turn.

    A turn that never ran, or did not find its session, leaves everything else as it was: it may have been
    sent to the wrong place. So does the late end of a turn before the last one.
    """
    if before is not None and before.last_turn.turn > outcome.turn:
        return before
    unknown = _met_no_session(outcome.verdict)
    if before is not None and unknown:
        return replace(before, last_turn=outcome)
    return SubagentRecord(
        name=record.name,
        dir=record.dir,
        session_id=None if unknown else outcome.session_id,
        model=record.model,
        prompt_copy=record.prompt_copy if outcome.verdict.kind.ran else None,
        last_turn=outcome,
    )


def store_end(
    records: Records, inbox: Inbox, loose_end: LooseEnd, *, before: SubagentRecord | None, now: SubagentRecord
) -> None:
    """Store the end of a turn durably, in the order that survives a crash at any point. Blocks.

    The loose end is the commit point: with it on disk the turn has ended, and the rest can be done again. The
    folder of the turn goes last, when nothing of its processes and units is left (`Records.end_turn`).
    """
    inbox.store(loose_end)
    records.remember(now)
    if before is not None and before.prompt_copy not in (None, now.prompt_copy):
        records.remove_prompt(before)
