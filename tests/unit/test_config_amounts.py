"""Configuration: the limits of a scope, as systemd writes them, and the name of the slice that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config_values import UNLIMITED, Amount, Percent
from hive_subagent_daemon.unit_names import MAX_PARENT_SLICE_BYTES
from tests.unit.config_loading import load, refusal

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 'a number of bytes, or text such as "512M", "2G", "40%" or "infinity"'
COUNT = 'a number, or text such as "10%" or "infinity"'
SLICE = f'the name of a slice such as "agents.slice", at most {MAX_PARENT_SLICE_BYTES} bytes'
SIZE_KEYS = ("memory_max", "memory_high", "memory_swap_max")
LONGEST = f"{'x' * (MAX_PARENT_SLICE_BYTES - len('.slice'))}.slice"
FORM = (
    'letters, digits, ":", "_", "." and "\\", with single dashes between, which nest it in another slice '
    "(see systemd-escape)"
)


@pytest.mark.parametrize("key", SIZE_KEYS)
@pytest.mark.parametrize(
    ("toml", "amount"),
    [
        ("4096", 4096),
        (str(2**63 - 1), 2**63 - 1),
        ('"4096"', 4096),
        ('"1K"', 1024),
        ('"512M"', 512 * 1024**2),
        ('"2G"', 2 * 1024**3),
        ('"3T"', 3 * 1024**4),
        ('"1%"', Percent(1)),
        ('"40%"', Percent(40)),
        ('"100%"', Percent(100)),
        ('"infinity"', UNLIMITED),
    ],
)
def test_an_amount_of_memory_is_bytes_or_a_part_of_all_of_it(
    tmp_path: Path, key: str, toml: str, amount: Amount
) -> None:
    scopes = load(tmp_path, f"scopes.{key} = {toml}").scopes
    assert getattr(scopes, key) == amount
    assert type(getattr(scopes, key)) is type(amount)
    assert [name for name in SIZE_KEYS if getattr(scopes, name) is not None] == [key]


@pytest.mark.parametrize("key", SIZE_KEYS)
@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("-1", "-1"),
        ("1.5", "1.5"),
        ("true", "true"),
        (str(2**63), "a number beyond 64 bits"),
        ("[1]", "an array"),
        ('""', '""'),
        ('"-1"', '"-1"'),
        ('"1.5G"', '"1.5G"'),
        ('"1 G"', '"1 G"'),
        ('"1g"', '"1g"'),
        ('"1P"', '"1P"'),
        ('"1GB"', '"1GB"'),
        ('"1G\\n"', '"1G\\n"'),
        ('"0%"', '"0%"'),
        ('"101%"', '"101%"'),
        ('"40.5%"', '"40.5%"'),
        ('"Infinity"', '"Infinity"'),
        ('"max"', '"max"'),
        ('"\u0661"', '"\u0661"'),
        ('"9000000T"', '"9000000T"'),
        (f'"{"9" * 19}"', f'"{"9" * 19}"'),
    ],
)
def test_what_is_no_amount_of_memory_is_refused(tmp_path: Path, key: str, toml: str, told: str) -> None:
    reported = refusal(tmp_path, f"scopes.{key} = {toml}")
    assert reported == f"DIR/config.toml: scopes.{key}: must be {SIZE}, not {told}"


@pytest.mark.parametrize("zero", ["0", '"0"', '"0M"'])
def test_nothing_is_an_amount_of_swap_only(tmp_path: Path, zero: str) -> None:
    """systemd refuses every other limit below 1, and with it every turn."""
    assert load(tmp_path, f"scopes.memory_swap_max = {zero}").scopes.memory_swap_max == 0
    for key in ("memory_max", "memory_high"):
        assert refusal(tmp_path, f"scopes.{key} = {zero}").startswith(
            f"DIR/config.toml: scopes.{key}: must be"
        )
    assert refusal(tmp_path, "scopes.tasks_max = 0").startswith("DIR/config.toml: scopes.tasks_max: must be")


@pytest.mark.parametrize(
    ("toml", "amount"),
    [("512", 512), ('"512"', 512), ('"10%"', Percent(10)), ('"infinity"', UNLIMITED)],
)
def test_a_number_of_processes_is_a_number_or_a_part_of_all_that_there_may_be(
    tmp_path: Path, toml: str, amount: Amount
) -> None:
    assert load(tmp_path, f"scopes.tasks_max = {toml}").scopes.tasks_max == amount


@pytest.mark.parametrize(
    ("toml", "told"), [("-1", "-1"), ('"1K"', '"1K"'), ('"x"', '"x"'), ("false", "false")]
)
def test_what_is_no_number_of_processes_is_refused(tmp_path: Path, toml: str, told: str) -> None:
    reported = refusal(tmp_path, f"scopes.tasks_max = {toml}")
    assert reported == f"DIR/config.toml: scopes.tasks_max: must be {COUNT}, not {told}"


@pytest.mark.parametrize(("weight", "fits"), [("0", False), ("1", True), ("10000", True), ("10001", False)])
def test_a_weight_is_in_the_range_of_systemd(tmp_path: Path, weight: str, *, fits: bool) -> None:
    toml = f"scopes.cpu_weight = {weight}"
    if fits:
        assert load(tmp_path, toml).scopes.cpu_weight == int(weight)
    else:
        assert refusal(tmp_path, toml).endswith(f"must be a whole number from 1 to 10000, not {weight}")


def test_an_unknown_policy_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    assert refusal(tmp_path, 'scopes.oom_policy = "Kill"') == (
        'DIR/config.toml: scopes.oom_policy: must be "continue" or "stop" or "kill", not "Kill" '
        '(did you mean "kill"?)'
    )


@pytest.mark.parametrize(
    "name",
    ["agents.slice", "a-b-c.slice", "a.b_c:d.slice", "hive\\x2dsubagent-a.slice", "x.slice.slice", LONGEST],
)
def test_a_slice_is_named_as_systemd_names_it(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, f"scopes.slice = '{name}'").scopes.slice == name


@pytest.mark.parametrize(
    "name",
    [
        "-.slice",
        "-a.slice",
        "a-.slice",
        "a--b.slice",
        "a b.slice",
        "a/b.slice",
        "ä.slice",
        ".slice",
        "a@b.slice",
    ],
)
def test_a_slice_that_systemd_would_not_take_is_refused(tmp_path: Path, name: str) -> None:
    reported = refusal(tmp_path, f"scopes.slice = '{name}'")
    assert reported == f"DIR/config.toml: scopes.slice: must be {SLICE}: {FORM}"


@pytest.mark.parametrize("name", ["", "agents", "agents.scope", f"x{LONGEST}"])
def test_what_is_no_slice_or_too_long_is_refused(tmp_path: Path, name: str) -> None:
    told = f"{name[:60]}…" if len(name) > 60 else name
    reported = refusal(tmp_path, f"scopes.slice = '{name}'")
    assert reported == f'DIR/config.toml: scopes.slice: must be {SLICE}, not "{told}"'


def test_a_slice_is_text_without_nul(tmp_path: Path) -> None:
    assert refusal(tmp_path, "scopes.slice = 3") == (
        f"DIR/config.toml: scopes.slice: must be {SLICE}, not a number"
    )
    assert refusal(tmp_path, 'scopes.slice = "a\\u0000.slice"').endswith("without NUL characters")
