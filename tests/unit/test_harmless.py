"""Texts of others: nothing in them acts on a display, and ordinary text in any script stays as it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.harmless import cut, harmless

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"


@given(st.text(st.characters(), max_size=200) | st.text(BIDI + "\x1b[0m\x9b\ud800\r\n"))
def test_no_control_no_change_of_direction_and_no_half_character_is_left(text: str) -> None:
    shown = harmless(text)
    shown.encode("utf-8")
    assert not set(shown) & set(BIDI)
    assert {one for one in shown if unicodedata.category(one) in ("Cc", "Cs")} <= {"\n", "\t"}


@pytest.mark.parametrize(
    "text", ["", "two\nlines\tand a tab", "שלום", "مرحبا", "日本語", "👩‍👩‍👧", "e\u0301", "<b>&amp;"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b", "[U+001B]"),
        ("evil\u202egpj.exe", "evil[U+202E]gpj.exe"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("nul\0", "nul[U+0000]"),
        ("half \ud83d", "half \ufffd"),
        ("hidden \U000e0041", "hidden \ufffd"),
    ],
)
def test_what_would_act_is_taken_out_or_shown(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_a_cut_text_says_how_long_it_was() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("x" * 4000, 3) == "xxx… [4,000 characters in all]"
