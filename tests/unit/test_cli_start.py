"""What a command imports: people wait for it at every call."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.cli.entry import COMMANDS
from tests.support.fake_subagents import FakeSubagents
from tests.support.served_tools import served_on_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER_SIDE = {"mcp", "mcp_types", "pydantic", "anyio", "starlette", "uvicorn", "jeepney", "systemd"}
PROGRAM = """
import json, sys
from hive_subagent_daemon import client_main
code = client_main.main(sys.argv[1:])
print()
print(json.dumps([code, sorted({name.partition('.')[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve a fake service."""
    with served_on_tcp(FakeSubagents()) as address:
        yield address


def imported(*words: str) -> set[str]:
    """Run a command in a pipe and return the packages that it has imported."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=60, check=True
    )
    code, packages = json.loads(ended.stdout.splitlines()[-1])
    assert code == 0, ended.stderr
    return set(packages)


@pytest.mark.parametrize(
    "words", [("status",), ("status", "writer"), ("loose-ends",), ("interrupt", "reviewer")]
)
def test_a_command_in_a_pipe_imports_neither_the_server_nor_what_draws(
    url: str, words: tuple[str, ...]
) -> None:
    packages = imported(*words, "--url", url)
    assert {"click", "http", "hive_subagent_daemon"} <= packages
    assert not packages & {*SERVER_SIDE, "rich", "asyncio", "tomllib", "argparse"}


def test_the_help_imports_all_commands_and_still_not_the_server() -> None:
    packages = imported("--help")
    assert not packages & {*SERVER_SIDE, "rich", "asyncio"}


def test_every_command_has_a_line_in_the_help_and_a_help_of_its_own() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "hive_subagent_daemon.client_main", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    listed = ended.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed if line.startswith("  ")][: len(COMMANDS)] == list(COMMANDS)
    assert "..." not in ended.stdout.partition("Commands:\n")[2], "no line is cut"
