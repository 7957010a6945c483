"""`[auth]`: the token's file and the uids that may call."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config import effective
from hive_subagent_daemon.config_values import Auth
from tests.unit.config_loading import load, refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_without_it_nobody_else_may_call(tmp_path: Path) -> None:
    assert load(tmp_path).auth == Auth(None, ())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/run/token", "/run/token"),
        ("~/token", "{}/home/token"),
        ("token", "{}/token"),
        ("$CREDENTIALS_DIRECTORY/token", "$CREDENTIALS_DIRECTORY/token"),
    ],
)
def test_the_file_of_the_token_is_a_path_or_a_credential(tmp_path: Path, text: str, path: str) -> None:
    loaded = load(tmp_path, f'auth.token_file = "{text}"')
    assert str(loaded.auth.token_file) == path.format(tmp_path)
    assert load(tmp_path, effective(loaded)) == loaded


@pytest.mark.parametrize("text", ["$HOME/t", "$CREDENTIALS_DIRECTORY", "$CREDENTIALS_DIRECTORY/../t", "$X"])
def test_no_other_variable_is_known(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, f'auth.token_file = "{text}"') == (
        f'DIR/config.toml: auth.token_file: "{text}": of all variables only $CREDENTIALS_DIRECTORY/NAME '
        "is known"
    )


def test_uids_are_kept_in_order_and_once(tmp_path: Path) -> None:
    loaded = load(tmp_path, "auth.allow_uids = [1001, 0, 1001, 4294967294]")
    assert loaded.auth.allow_uids == (1001, 0, 4294967294)
    assert tomllib.loads(effective(loaded))["auth"] == {"allow_uids": [1001, 0, 4294967294]}


@pytest.mark.parametrize("text", ['["alice"]', "[-1]", "[4294967295]", "[true]", "[1.0]", "1001", "[[1]]"])
def test_what_is_no_uid_is_refused(tmp_path: Path, text: str) -> None:
    said = refusal(tmp_path, f"auth.allow_uids = {text}")
    assert said.startswith(
        "DIR/config.toml: auth.allow_uids: must be a list of numeric uids, from 0 to 4294967294"
    )
