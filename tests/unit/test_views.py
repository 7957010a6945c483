"""Outcomes and loose ends as JSON: the contract's field names, bounded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import views
from hive_subagent_daemon.skim import Activity
from hive_subagent_daemon.values import Cause, ErrorClass, LooseEnd, OutcomeKind, State, Verdict
from tests.unit.support_records import KILLED_OUTCOME, OUTCOME, TURN

OUTCOME_FIELDS = [
    "name", "turn", "outcome", "cause", "signal", "oom", "error_class", "error", "text", "text_length",
    "warnings", "limited_until", "dir", "session_id", "model", "cost_usd", "rounds", "duration_seconds",
    "parent", "depth", "started_at", "ended_at",
]  # fmt: skip


def test_an_outcome_has_the_fields_of_the_contract() -> None:
    assert list(views.outcome_json(OUTCOME)) == OUTCOME_FIELDS
    assert views.outcome_json(OUTCOME) == dict.fromkeys(OUTCOME_FIELDS) | {
        "name": "reviewer",
        "turn": TURN,
        "outcome": "completed",
        "text": "All done.",
        "depth": 1,
        "text_length": 9,
        "warnings": [],
        "dir": "/srv/project",
        "session_id": OUTCOME.session_id,
        "model": "opus",
        "cost_usd": 0.25,
        "rounds": 3,
        "duration_seconds": 60.5,
        "started_at": "2026-01-31T12:00:00.000Z",
        "ended_at": "2026-01-31T12:01:00.500Z",
    }


def test_what_does_not_apply_is_null_and_what_does_is_told_in_the_contracts_words() -> None:
    shown = views.outcome_json(KILLED_OUTCOME)
    assert (shown["outcome"], shown["cause"], shown["signal"]) == ("killed", "oom", "SIGKILL")
    assert shown["oom"] == {"kills": 2, "peak_bytes": 210, "limit_bytes": 200}
    assert shown["warnings"] == ["one", "two"]
    assert (shown["cost_usd"], shown["rounds"]) == (None, None)


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_every_error_class_is_told_by_its_word(error_class: ErrorClass) -> None:
    verdict = Verdict(OutcomeKind.FAILED, error_class=error_class, error="e")
    shown = views.outcome_json(replace(OUTCOME, verdict=verdict))
    assert json.loads(json.dumps(shown))["error_class"] == error_class.value


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (OutcomeKind.COMPLETED, State.IDLE),
        (OutcomeKind.FAILED, State.IDLE),
        (OutcomeKind.COULD_NOT_START, State.IDLE),
        (OutcomeKind.KILLED, State.KILLED),
        (OutcomeKind.LOST, State.KILLED),
    ],
)
def test_the_state_of_a_name_follows_from_its_last_outcome(kind: OutcomeKind, state: State) -> None:
    """Decisions 6 and 7."""
    assert replace(OUTCOME, verdict=Verdict(kind, cause=Cause.UNKNOWN)).state is state


def test_a_loose_end_has_id_and_title_beside_the_outcome() -> None:
    end = LooseEnd(TURN, "reviewer completed", OUTCOME)
    shown = views.loose_end_json(end, text_characters=100)
    assert {key: shown[key] for key in OUTCOME_FIELDS} == views.outcome_json(OUTCOME)
    assert (shown["id"], shown["title"]) == (TURN, "reviewer completed")


def test_texts_are_cut_and_their_full_length_is_told() -> None:
    verdict = Verdict(OutcomeKind.FAILED, error="e" * 9_000, text="t" * 9_000)
    outcome = replace(OUTCOME, verdict=verdict, text_length=9_000)
    shown = views.outcome_json(outcome, text_characters=200)
    assert (len(shown["error"]), len(shown["text"]), shown["text_length"]) == (200, 200, 9_000)
    assert len(views.outcome_json(outcome)["text"]) == 4_000


def test_an_activity_tells_since_when() -> None:
    shown = views.activity_json(Activity("tool", "Bash"), since_seconds=61.04)
    assert shown == {
        "kind": "tool", "tool": "Bash", "since_seconds": 61.0, "attempt": None, "max_attempts": None,
        "error": None,
    }  # fmt: skip
    assert views.activity_json(None, since_seconds=3) is None


entries = st.lists(
    st.builds(lambda text, n: {"text": text * n}, st.text(max_size=40), st.integers(1, 500)), max_size=30
)


@given(entries, st.integers(1, 12))
def test_as_many_entries_as_fit_are_shown_and_at_least_one(
    given_entries: list[views.Json], most: int
) -> None:
    shown = views.fitting(iter(given_entries), most=most)
    size = len(json.dumps(shown, ensure_ascii=False).encode())
    assert shown == given_entries[: len(shown)]
    assert len(shown) <= most
    assert len(shown) == 1 or size <= 24 * 1024
    if len(shown) < min(most, len(given_entries)):
        further = json.dumps(given_entries[: len(shown) + 1], ensure_ascii=False).encode()
        assert shown
        assert len(further) > views.ANSWER_BYTES


def test_entries_that_do_not_fit_are_not_read() -> None:
    read = []

    def reading() -> views.Json:
        read.append(1)
        return {"text": "x" * 10_000}

    assert len(views.fitting((reading() for _ in range(100)), most=50)) == 2
    assert len(read) == 3
