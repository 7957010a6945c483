"""Configuration: unknown keys, keys of a later version, and how everything wrong is told together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config import Flags
from tests.unit.config_loading import refusal

if TYPE_CHECKING:
    from pathlib import Path


MANAGERS = '"auto" or "user" or "system" or "off"'


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('agnet = "x"', "agnet: unknown key (did you mean agent?)"),
        ("work-dir = 1", "work-dir: unknown key (did you mean work_dir?)"),
        ("[limit]\na = 1", "limit: unknown key (did you mean limits?)"),
        ("max_running = 1", "max_running: unknown key (did you mean limits.max_running?)"),
        ("limits.max_runing = 1", "limits.max_runing: unknown key (did you mean limits.max_running?)"),
        ("retention.x = 1", "retention.x: unknown key; allowed here: closed_days, idle_days"),
        ("loose_ends.x = 1", "loose_ends.x: unknown key"),
        ('"a\\nb" = 1', '"a\\nb": unknown key; allowed here: agent, claude, '),
        ('"limits.max_running" = 1', '"limits.max_running": unknown key (did you mean limits.max_running?)'),
        ("limits = 3", "limits: must be a table, not 3"),
        ("[[limits]]", "limits: must be a table, not an array"),
        ('scopes = "off"', 'scopes: must be a table, not "off"'),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(tmp_path: Path, toml: str, message: str) -> None:
    assert refusal(tmp_path, toml).startswith(f"DIR/config.toml: {message}")


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("idle_exit_seconds = 0", "idle_exit_seconds"),
    ],
)
def test_a_key_of_a_later_version_is_told_from_an_unknown_one(tmp_path: Path, toml: str, key: str) -> None:
    assert refusal(tmp_path, toml) == f"DIR/config.toml: {key}: not available in this version"


def test_a_wrong_word_is_told_with_the_right_ones(tmp_path: Path) -> None:
    toml = 'on_restart = "adapt"\nscopes.manager = "sytem"'
    assert refusal(tmp_path, toml).splitlines() == [
        'DIR/config.toml: on_restart: must be "stop" or "adopt", not "adapt" (did you mean "adopt"?)',
        f'DIR/config.toml: scopes.manager: must be {MANAGERS}, not "sytem" (did you mean "system"?)',
    ]
    assert refusal(tmp_path, flags=Flags(scopes="root", on_restart="keep")).splitlines() == [
        '--on-restart: must be "stop" or "adopt", not "keep"',
        f'--scopes: must be {MANAGERS}, not "root"',
    ]


def test_everything_wrong_is_reported_at_once_a_line_each(tmp_path: Path) -> None:
    toml = 'umask = 22\nagnet = "x"\n[limits]\nmax_running = true\n[environment]\nA = 1\nB = "b"\nC = []'
    lines = refusal(tmp_path, toml, flags=Flags(log_level="inf")).splitlines()
    assert lines == [
        "DIR/config.toml: agnet: unknown key (did you mean agent?)",
        'DIR/config.toml: umask: must be octal digits in a string, from "0000" to "0777", not 22',
        '--log-level: must be "debug" or "info" or "warning" or "error", not "inf" (did you mean "info"?)',
        'DIR/config.toml: environment.A: must be a string or { file = "PATH" }, not a number',
        'DIR/config.toml: environment.C: must be a string or { file = "PATH" }, not an array',
        "DIR/config.toml: limits.max_running: must be a whole number of at least 1, not true",
    ]


def test_a_flood_of_faults_is_cut(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "\n".join(f"x{number} = 1" for number in range(100))).splitlines()
    assert (len(lines), lines[-1]) == (21, "and 80 more")


def test_a_wrong_default_is_explained_by_where_it_comes_from(tmp_path: Path) -> None:
    assert refusal(tmp_path, user_name="a/b") == (
        "agent (by default the user's name): must be 1 to 63 printable characters without '/', not \"a/b\""
    )
    assert refusal(tmp_path, environ={"STATE_DIRECTORY": "/a\udcff"}) == (
        "$STATE_DIRECTORY: must be a path, in UTF-8"
    )
