"""What may be the name of a subagent, and what is refused with words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.names import checked_name, is_name

ALLOWED = "abcdefghijklmnopqrstuvwxyz0123456789-"
UUID = "0f0e0d0c-0b0a-4908-8706-050403020100"


@pytest.mark.parametrize(
    "name", ["a", "-", "-p", "--help", "0", "review-2", "x" * 63, UUID[:-1], f"{UUID}0", f"-{UUID}"]
)
def test_a_name_of_the_allowed_characters_is_taken_as_it_is(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 64,
        "A",
        "a b",
        "a_b",
        "a.b",
        "../x",
        "a/b",
        "--model=x",
        "ä",
        "a\n",
        "\na",
        "a\0",
        " a",
        "٣",
        "a\u0301",
        "x" * 300,
    ],
)
def test_any_other_name_is_refused_and_told_what_is_allowed(name: str) -> None:
    with pytest.raises(RefusedError, match="1 to 63 characters of a-z, 0-9 and '-'"):
        checked_name(name)


@pytest.mark.parametrize(
    "name", [UUID, "ffffffff-ffff-ffff-ffff-ffffffffffff", "3f0c2a9e-9d5b-4c1e-8a77-5b1d0e6f4c21"]
)
def test_a_name_that_looks_like_a_uuid_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="looks like a UUID"):
        checked_name(name)
    assert not is_name(name)


def test_a_long_wrong_name_is_not_repeated_in_full() -> None:
    with pytest.raises(RefusedError) as refusal:
        checked_name("X" * 100_000)
    assert len(str(refusal.value)) < 250


@given(st.text(st.one_of(st.characters(), st.sampled_from(ALLOWED)), max_size=70))
def test_a_name_is_taken_if_and_only_if_it_keeps_to_the_rule(name: str) -> None:
    allowed = 1 <= len(name) <= 63 and set(name) <= set(ALLOWED)
    try:
        taken = checked_name(name) == name
    except RefusedError:
        taken = False
    assert taken == is_name(name) == allowed
