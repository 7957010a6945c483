"""What the documentation tells people to write and to type is accepted."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config import Flags, load_config
from hive_subagent_daemon.errors import ConfigError
from tests.docs.examples import Block, Invocation, blocks, invocations
from tests.packaging.builds import run
from tests.style.texts import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATIONS = list(blocks("toml"))
COMMANDS = list(invocations())
MODULES = {
    "hive-subagent": "hive_subagent_daemon.client_main",
    "hive-subagent-daemon": "hive_subagent_daemon.daemon_main",
}
OF_ANOTHER_MACHINE = "must be an existing directory"


def faults_of(file: Path, home: Path) -> list[str]:
    """Return what is wrong with a configuration wherever it is."""
    try:
        load_config(config_file=file, flags=Flags(), environ={}, cwd=home, user_name="alice", home=home)
    except ConfigError as error:
        return [line for line in str(error).splitlines() if OF_ANOTHER_MACHINE not in line]
    return []


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.document)
def test_every_configuration_that_is_shown_is_accepted(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(block.code)
    assert faults_of(file, tmp_path) == []


@cache
def options_of(program: str, *words: str) -> set[str]:
    """Return the long options that the help of a command names."""
    shown = run(sys.executable, "-m", MODULES[program], *words, "--help", cwd=REPOSITORY)
    return set(re.findall(r"--[a-z][a-z-]+", shown))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: f"{each.document}: {' '.join(each.words)}")
def test_every_option_of_our_programs_that_is_shown_exists(command: Invocation) -> None:
    verb = [word for word in command.words[:1] if not word.startswith("-")]
    assert command.options <= options_of(command.program) | options_of(command.program, *verb)


def test_examples_are_found() -> None:
    assert len(CONFIGURATIONS) > 3
    assert {each.program for each in COMMANDS} == MODULES.keys()
