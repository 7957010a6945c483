"""The command `hive-subagent mcp`: what it takes, and what it does not load."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import client_main
from hive_subagent_daemon.bridge_main import main
from tests.support.bridge_process import bridge_environment
from tests.support.daemon_stand_in import http_reply, stand_in_for_a_daemon

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {"mcp", "mcp_types", "pydantic", "anyio", "asyncio", "uvicorn", "click", "rich"}
CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "start"}}\n'
TOKEN = "a-token-of-20-letters"


def test_nothing_is_loaded_that_each_parent_would_pay_for() -> None:
    code = "import hive_subagent_daemon.bridge_main, sys; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], env=bridge_environment(), capture_output=True, text=True, check=True
    )
    assert "http.client" in told.stdout.split()
    assert not HEAVY & set(told.stdout.split())


def test_a_wrong_address_is_a_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "ftp://x"]) == 2
    assert capsys.readouterr().err.startswith("hive-subagent mcp: 'ftp://x' cannot be used")


@pytest.mark.parametrize("words", [["--url", "http://x", "--socket", "y"], ["--tok", "x"], ["x"]])
def test_a_wrong_option_is_a_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


def test_the_help_of_the_whole_command_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert client_main.main(["--help"]) == 0
    assert "connect an mcp client" in capsys.readouterr().out.lower()


@pytest.mark.parametrize("options_first", [False, True])
def test_options_may_stand_before_and_after_its_name(tmp_path: Path, options_first: bool) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with stand_in_for_a_daemon(http_reply(403, "Refused: no.\n")) as daemon:
        options = ["--url", f"http://127.0.0.1:{daemon.port}", "--token-file", str(file)]
        words = [*options, "mcp"] if options_first else ["mcp", *options]
        process = subprocess.Popen(
            [sys.executable, "-m", "hive_subagent_daemon.client_main", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=bridge_environment(),
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(CALL)
            process.stdin.flush()
            assert b"Refused: no." in process.stdout.readline()
    assert f"Authorization: Bearer {TOKEN}\r\n".encode() in daemon.requests[0]
