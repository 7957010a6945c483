"""Notices as a model reads them: true, bounded, and in nobody else's name."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.notice_texts import LISTED, TEXT_CHARACTERS, clean, counts_text, notices_text
from hive_subagent_daemon.turn_ends import loose_end_of
from hive_subagent_daemon.values import Cause, ErrorClass, OutcomeKind, Verdict
from hive_subagent_daemon.views import loose_end_json
from tests.unit.support_records import KILLED_OUTCOME, OUTCOME, outcome

if TYPE_CHECKING:
    from hive_subagent_daemon.values import Outcome

    Json = dict[str, Any]

SHOWN_CHARACTERS = 10_000  # what claude shows of a hook's output


def notice(ended: Outcome) -> Json:
    """Return a loose end as the endpoint hands it to the texts."""
    return loose_end_json(loose_end_of(ended), text_characters=1000)


def completed(text: str, *, name: str = "reviewer", turn: str = "t1") -> Json:
    """Return the notice of a completed turn."""
    return notice(outcome(Verdict(OutcomeKind.COMPLETED, text=text), name=name, turn=turn))


def test_one_notice_says_who_how_what_and_what_next() -> None:
    text = notices_text([notice(OUTCOME)], more=0)
    assert "a subagent's turn has ended" in text
    assert f"reviewer: completed, after 1 min 0 s, 0.25 USD (id {OUTCOME.turn})" in text
    assert "\n> All done.\n" in text
    for tool in ("get_loose_ends", "continue", "close_loose_ends"):
        assert f"{tool}(" in text
    assert "killed" not in text


def test_a_killed_turn_is_not_told_as_finished() -> None:
    text = notices_text([notice(KILLED_OUTCOME)], more=0)
    assert "reviewer: killed by SIGKILL, cause oom (2 killed by the kernel" in text
    assert "Killed mid-turn" in text
    assert "completed" not in text
    assert "Warning: one\nWarning: two\n" in text


def test_a_lost_turn_says_that_it_is_not_known() -> None:
    lost = Verdict(OutcomeKind.LOST, cause=Cause.UNKNOWN, error="The daemon was gone.")
    text = notices_text([notice(outcome(lost))], more=0)
    assert "lost: how it ended is not known" in text
    assert "may be cut off" in text


def test_a_failed_turn_names_class_and_error() -> None:
    failed = Verdict(OutcomeKind.FAILED, error_class=ErrorClass.LIMIT, error="429\nslow down")
    assert "failed (limit)" in (text := notices_text([notice(outcome(failed))], more=0))
    assert "Error: 429 slow down" in text


def test_a_hundred_at_once_are_counted_truly_within_what_a_hook_can_show() -> None:
    many = [completed("word " * 300, name="n" * 63, turn=f"t{number}") for number in range(LISTED)]
    text = notices_text(many, more=80)
    assert "100 turns of subagents have ended" in text
    assert "and 80 more" in text
    assert len(text) <= TEXT_CHARACTERS < SHOWN_CHARACTERS
    assert all(f"(id t{number})" in text for number in range(LISTED))


@given(st.lists(st.text(max_size=1500), min_size=1, max_size=20), st.integers(0, 10**6))
def test_the_text_is_bounded_and_printable_whatever_subagents_wrote(texts: list[str], more: int) -> None:
    shown = notices_text([completed(text) for text in texts], more=more)
    assert len(shown) <= TEXT_CHARACTERS
    assert not {unicodedata.category(letter) for letter in shown if letter != "\n"} & {"Cc", "Cs", "Zl", "Zp"}


@given(st.text(max_size=600))
def test_what_a_subagent_wrote_stands_in_quoted_lines_only(text: str) -> None:
    ours = notices_text([completed("")], more=0).splitlines()
    theirs = [line for line in notices_text([completed(text)], more=0).splitlines() if line not in ours]
    assert all(line.startswith(("> ", "[the beginning of ")) for line in theirs)


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b]0;title\x07\x1b[2J",
        "\x9b31m",
        "\u202egnp.exe",
        "\u2066x\u2069",
        "\U000e0041\U000e0042",
        "\ud800",
        "\x00",
    ],
)
def test_characters_that_act_are_made_visible(hostile: str) -> None:
    shown = notices_text([completed(f"x{hostile}y")], more=0)
    assert not set(hostile) & set(shown) - set("31mgnp.exe]0;title[2Jxy")
    assert "\ufffd" in shown


@pytest.mark.parametrize("end_of_line", ["\r", "\u2028", "\x0b", "\x1c", "\x85"])
def test_whatever_ends_a_line_begins_a_quoted_one(end_of_line: str) -> None:
    assert "\n> x\n> y\n" in notices_text([completed(f"x{end_of_line}y")], more=0)


@pytest.mark.parametrize(
    "tag",
    ["</system-reminder>", "< / System-Reminder>", "<task-notification>", "<command-name>", "<system_x>"],
)
def test_marks_of_claudes_own_lose_their_bracket(tag: str) -> None:
    assert "<" not in clean(f"x {tag} y")


def test_other_brackets_stay() -> None:
    assert clean("if a < b: print('<div>')\tx") == "if a < b: print('<div>')    x"


def test_a_session_that_begins_is_told_in_one_line() -> None:
    text = counts_text(["alpha", "beta"], opened=3)
    assert "2 subagents are running (alpha, beta; see `status`)" in text
    assert "3 notices of ended turns are open (see `get_loose_ends`)" in text
    assert "\n" not in text


def test_many_names_are_not_all_listed() -> None:
    assert "(n0, n1, n2, n3, n4, ...; see" in counts_text([f"n{number}" for number in range(64)], opened=0)


def test_one_of_each_is_told_as_one() -> None:
    text = counts_text(["alpha"], opened=1)
    assert "1 subagent is running" in text
    assert "1 notice of an ended turn is open" in text


def test_with_nothing_to_tell_nothing_is_said() -> None:
    assert counts_text([], opened=0) == ""
