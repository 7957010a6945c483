"""Names of units: as systemd-escape writes them, never too long, and no agent's inside another's."""

from __future__ import annotations

import shutil
import subprocess
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hive_subagent_daemon.unit_names import (
    MAX_BYTES,
    MAX_PARENT_SLICE_BYTES,
    TurnUnits,
    default_slice,
    escape,
    is_slice,
    turn_units,
    units_of_scope,
)
from tests.unit.support_records import TURN

INSTANCE = "0f0e0d0c"
ODD = [
    "a",
    "a-b",
    "-p",
    "-",
    "--",
    ".",
    ".a",
    "a.",
    "Ärger mit Leerzeichen",
    "a\\x2db",
    "a:b_c@d",
    "\U0001f41d",
]
AGENTS = [*ODD, "x" * 63, "-" * 63, "ä" * 63, "\U0001f41d" * 63]
# What an agent may be called, and so short that parts of it often meet parts of another one.
any_agent = st.one_of(
    st.text("ab-.\\x2d_", min_size=1, max_size=12),
    st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/"), min_size=1, max_size=63),
)


def nests_in(inner: str, outer: str) -> bool:
    """Tell whether stopping the one slice stops the other, as systemd.slice(5) says."""
    return inner.startswith(f"{outer.removesuffix('.slice')}-")


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd-escape is not installed")
def test_names_are_escaped_as_systemd_escape_does() -> None:
    """`/` is no part of an agent's name; systemd-escape makes a dash of it."""
    told = subprocess.run(
        ["systemd-escape", "--", *AGENTS], capture_output=True, text=True, check=True, timeout=20
    ).stdout
    assert told.split() == [escape(agent) for agent in AGENTS]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("a-b", "a\\x2db"), (".a.b", "\\x2ea.b"), ("ü", "\\xc3\\xbc"), ("a:_9Z", "a:_9Z"), ("a\\b", "a\\x5cb")],
)
def test_what_means_something_in_a_unit_name_is_escaped(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize("agent", AGENTS)
def test_the_units_of_every_agent_have_valid_names_that_fit(agent: str) -> None:
    parent = default_slice(agent)
    units = turn_units(parent, instance=INSTANCE, turn=TURN)
    assert len(parent.encode()) <= MAX_PARENT_SLICE_BYTES
    for name in (units.slice, units.scope):
        assert len(name.encode()) < MAX_BYTES
        assert name.isascii()
        assert INSTANCE in name
        assert TURN in name
    assert is_slice(parent)
    assert is_slice(units.slice)


def test_the_units_below_the_longest_slice_that_may_be_configured_fit() -> None:
    parent = f"{'x' * (MAX_PARENT_SLICE_BYTES - len('.slice'))}.slice"
    units = turn_units(parent, instance=INSTANCE, turn=TURN)
    assert max(len(units.slice), len(units.scope)) < MAX_BYTES


def test_the_units_of_a_turn_are_those_of_the_contract() -> None:
    assert turn_units("hive\\x2dsubagent-a.slice", instance=INSTANCE, turn=TURN) == TurnUnits(
        f"hive\\x2dsubagent-a-{INSTANCE}\\x2d{TURN}.slice", f"hive\\x2dsubagent-a-{INSTANCE}\\x2d{TURN}.scope"
    )


@given(any_agent)
def test_the_units_of_a_turn_are_found_again_by_its_scope(agent: str) -> None:
    units = turn_units(default_slice(agent), instance=INSTANCE, turn=TURN)
    assert units_of_scope(units.scope) == units
    assert nests_in(units.slice, default_slice(agent))


def test_other_instances_and_other_turns_have_other_units() -> None:
    parent = default_slice("a")
    both = [(INSTANCE, TURN), ("00000000", TURN), (INSTANCE, TURN.replace("abcd", "abce"))]
    units = [turn_units(parent, instance=instance, turn=turn) for instance, turn in both]
    assert len({name for one in units for name in (one.slice, one.scope)}) == 6
    assert not any(nests_in(one.slice, other.slice) for one, other in permutations(units, 2))


def test_the_slices_of_these_agents_are_all_different_and_none_is_inside_another() -> None:
    slices = [default_slice(agent) for agent in AGENTS]
    assert len(set(slices)) == len(slices)
    for one, other in permutations(slices, 2):
        assert not nests_in(one, other)
        assert not nests_in(turn_units(one, instance=INSTANCE, turn=TURN).slice, other)


@given(any_agent, any_agent)
@example("a", "a-b")
@example("-", "--")
@example("x" * 63, "-" * 63)
@example("-" * 62 + "a", "-" * 62 + "b")
def test_stopping_the_slice_of_one_agent_never_stops_another_ones(one: str, other: str) -> None:
    first, second = default_slice(one), default_slice(other)
    if one != other:
        assert first != second
        assert not nests_in(first, second)
        assert not nests_in(turn_units(first, instance=INSTANCE, turn=TURN).slice, second)


@given(any_agent)
@example("-" * 63)
@example("a" + "ä" * 30)
def test_a_name_that_is_cut_never_ends_in_half_an_escape(agent: str) -> None:
    """Or systemd could not tell what it stands for."""
    stem = default_slice(agent).removesuffix(".slice")
    parts = stem.split("\\")[1:]
    assert all(
        part[0] == "x" and len(part) >= 3 and set(part[1:3]) <= set("0123456789abcdef") for part in parts
    )


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a.slice", True),
        ("a-b.slice", True),
        ("a\\x2db.slice", True),
        ("-.slice", False),
        ("a--b.slice", False),
        ("-a.slice", False),
        ("a-.slice", False),
        ("a.scope", False),
        ("a.slice\n", False),
        ("a@.slice", False),
        ("", False),
    ],
)
def test_a_slice_below_the_root_slice_is_told_by_its_name(name: str, *, valid: bool) -> None:
    assert is_slice(name) is valid
