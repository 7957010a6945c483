"""Outcomes, loose ends and records as tests of what is stored need them."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

from hypothesis import strategies as st

from hive_subagent_daemon import clock
from hive_subagent_daemon.archive import Rename
from hive_subagent_daemon.records import SubagentRecord, TurnRecord
from hive_subagent_daemon.values import Cause, ErrorClass, LooseEnd, Oom, Outcome, OutcomeKind, Verdict

TURN = "20260131_120000_000_abcd"
SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"


def outcome(verdict: Verdict, *, name: str = "reviewer", turn: str = TURN) -> Outcome:
    """Return the outcome of a turn of one minute."""
    return Outcome(
        name=name,
        turn=turn,
        dir="/srv/project",
        session_id=SESSION,
        model="opus",
        started_at="2026-01-31T12:00:00.000Z",
        ended_at="2026-01-31T12:01:00.500Z",
        duration_seconds=60.5,
        text_length=len(verdict.text or ""),
        verdict=verdict,
    )


OUTCOME = outcome(Verdict(OutcomeKind.COMPLETED, text="All done.", cost_usd=0.25, rounds=3))
KILLED_OUTCOME = outcome(
    Verdict(
        OutcomeKind.KILLED,
        cause=Cause.OOM,
        signal="SIGKILL",
        oom=Oom(2, 210, 200),
        error="Killed mid-turn",
        text="so far",
        warnings=("one", "two"),
    )
)


def loose_end(turn: str = TURN, *, name: str = "reviewer", closed_at: str | None = None) -> LooseEnd:
    """Return the notice of a completed turn."""
    ended = outcome(OUTCOME.verdict, name=name, turn=turn)
    return LooseEnd(turn, f"{name} completed its turn", ended, closed_at)


def turn_record(turn: str = TURN, *, name: str = "reviewer") -> TurnRecord:
    """Return the record of a turn that is about to be spawned."""
    return TurnRecord(
        turn=turn,
        name=name,
        resumes=False,
        dir="/srv/project",
        session_id=SESSION,
        model=None,
        prompt_copy="/state/prompts/reviewer",
        started_at="2026-01-31T12:00:00.000Z",
        boot_id="b",
        archived=(Rename(Path("/c/x.jsonl"), Path("/c/x.jsonl.archived")),),
    )


def subagent_record(name: str = "reviewer", *, prompt_copy: str | None = None) -> SubagentRecord:
    """Return what is remembered of a name."""
    return SubagentRecord(
        name, "/srv/project", SESSION, "opus", prompt_copy, outcome(OUTCOME.verdict, name=name)
    )


_texts = st.text(st.characters(codec="utf-8"), max_size=30)
_some = st.one_of(st.none(), _texts)
_numbers = st.floats(0, 10**9, allow_nan=False)
_paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
_moments = st.datetimes(timezones=st.just(UTC)).map(clock.as_text)

any_verdict = st.builds(
    Verdict,
    kind=st.sampled_from(OutcomeKind),
    cause=st.one_of(st.none(), st.sampled_from(Cause)),
    signal=_some,
    oom=st.one_of(st.none(), st.builds(Oom, st.integers(0, 9), st.none(), st.integers(0, 2**60))),
    error_class=st.one_of(st.none(), st.sampled_from(ErrorClass)),
    error=_some,
    text=_some,
    warnings=st.lists(_texts, max_size=3).map(tuple),
    limited_until=_some,
    cost_usd=st.one_of(st.none(), _numbers),
    rounds=st.one_of(st.none(), st.integers(0, 2**53)),
)
any_outcome = st.builds(
    Outcome,
    name=st.just("reviewer"),
    turn=st.just(TURN),
    dir=_paths,
    session_id=_some,
    model=_some,
    started_at=_moments,
    ended_at=_moments,
    duration_seconds=_numbers,
    text_length=st.integers(0, 2**53),
    verdict=any_verdict,
)
any_turn_record = st.builds(
    TurnRecord,
    turn=st.just(TURN),
    name=st.just("reviewer"),
    resumes=st.booleans(),
    dir=_paths,
    session_id=_some,
    model=_some,
    prompt_copy=st.none() | _paths,
    started_at=_moments,
    boot_id=_texts,
    mcp_servers=st.lists(_texts, max_size=3).map(tuple),
    archived=st.lists(
        st.builds(lambda n: Rename(Path(f"/a/{n}"), Path(f"/a/{n}.archived")), st.integers(0, 9)), max_size=2
    ).map(tuple),
    pid=st.one_of(st.none(), st.integers(0, 2**22)),
    pid_start=st.one_of(st.none(), st.integers(0, 2**60)),
    scope=st.none() | st.from_regex(r"[a-z0-9\\x.-]{1,50}\.scope", fullmatch=True),
    cgroup=_some,
    memory_limit_bytes=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    oom_outlived=st.integers(0, 2**31),
)
