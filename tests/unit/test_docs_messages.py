"""Every sentence with which the product refuses or reports something is in docs/troubleshooting.md."""

from __future__ import annotations

import ast

import pytest

from tests.docs.messages import DOCUMENT, Message, all_messages, outdated, sentences, unexplained
from tests.docs.ordinary import ORDINARY

MESSAGES = all_messages()
TEXT = DOCUMENT.read_text(encoding="utf-8")


def found(source: str) -> list[str]:
    """Return the sentences of a source."""
    return [text for _, text in sentences(ast.parse(source))]


def test_every_sentence_of_the_product_is_explained() -> None:
    assert not [f"{each.place}: {each.shown}" for each in unexplained(MESSAGES, TEXT)]


def test_no_message_is_explained_that_nobody_says() -> None:
    assert outdated(MESSAGES, TEXT) == []


@pytest.mark.parametrize("text", ORDINARY)
def test_what_counts_as_ordinary_is_still_said(text: str) -> None:
    assert [each for each in MESSAGES if text in each.shown]


@pytest.mark.parametrize(
    "source",
    [
        "raise RefusedError('the moon is too far away')",
        "message = 'the moon is too far away'",
        "def f() -> str:\n    return 'the moon is too far away'",
        "fail('the moon ' 'is too far away')",
        "X = {1: ['the moon is too far away']}",
    ],
)
def test_a_new_sentence_is_found_wherever_it_stands(source: str) -> None:
    assert found(source) == ["the moon is too far away"]


def test_what_differs_is_a_gap() -> None:
    assert found("f'the {moon} is {n} miles too far away'") == ["the … is … miles too far away"]
    assert found("_log.warning('the %s is %04d miles too far away', moon, n)") == [
        "the … is … miles too far away"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "'The moon is too far away.'",
        "_log.info('the moon is too far away')",
        "parser.add_argument('--moon', help='how far the moon may be')",
        "command(help='how far the moon may be')",
        "x = 'much too short'",
    ],
)
def test_docstrings_quiet_logs_helps_and_fragments_are_no_messages(source: str) -> None:
    assert found(source) == []


def test_a_new_refusal_has_to_be_explained() -> None:
    new = Message("package/module.py:1", "the moon … is too far away: come closer.")
    assert unexplained([new], TEXT) == [new]
    assert unexplained([new], "Says `moon … is too far away`.") == []
    assert unexplained([new], "The moon is far away.") == [new]


def test_an_explanation_of_what_nobody_says_any_more_is_found() -> None:
    assert outdated(MESSAGES, "| `the moon is too far away` | come closer |\n") == [
        "the moon is too far away"
    ]
