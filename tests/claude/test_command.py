"""What people see of a real claude: the conversation in its own session file, and what doctor finds."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from hive_subagent_daemon.cli.checks import Verdict, login
from tests.claude.real_daemon import PATH, claude_environment
from tests.support.daemon_harness import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.claude.real_daemon import RealDaemon
    from tests.support.offline_model import OfflineModel

WORK = (
    "Look around.\n[[bash: echo written; echo more]] [[bash: ls /nonexistent]]"
    ' [[tool: Read {"file_path": "/nonexistent"}]] [[say: All is done.]]'
)


def logged(daemon: RealDaemon, *words: str) -> list[str]:
    """Return the lines of `log`, without the times."""
    ended = subprocess.run(
        [sys.executable, "-m", "hive_subagent_daemon.client_main", "log", *words],
        env={
            "PATH": PATH,
            "PYTHONPATH": str(REPOSITORY),
            "HIVE_SUBAGENT_URL": f"http://127.0.0.1:{daemon.port}/mcp",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line if line.startswith("--") else line[9:] for line in ended.stdout.splitlines()]


def test_the_log_tells_prompts_tools_results_errors_and_the_text(daemon: RealDaemon) -> None:
    daemon.completed("worker", WORK)
    lines = logged(daemon, "worker")
    assert lines[0] == "> Look around."
    at = lines.index("* Bash  echo written; echo more")
    assert lines[at + 1 : at + 3] == ["| written", "| more"]
    assert "* Bash  ls /nonexistent" in lines
    assert any(line.startswith("! ") and "Exit code 2" in line for line in lines)
    assert "* Read  /nonexistent" in lines
    assert lines[-2] == "  All is done."
    assert lines[-1].startswith("-- completed, ")


def test_the_log_begins_with_the_last_turn_unless_all_is_wanted(daemon: RealDaemon) -> None:
    daemon.completed("worker", "the first thing [[say: one]]")
    daemon.continued("worker", "the second thing [[say: two]]")
    last = "\n".join(logged(daemon, "worker"))
    assert "the second thing" in last
    assert "the first thing" not in last
    assert "the first thing" in "\n".join(logged(daemon, "worker", "--all"))


def test_an_earlier_session_of_the_name_is_not_mixed_in(daemon: RealDaemon) -> None:
    daemon.completed("worker", "an old thing [[say: one]]")
    daemon.completed("worker", "a new thing [[say: two]]")
    assert "an old thing" not in "\n".join(logged(daemon, "worker", "--all"))


def test_claude_tells_whether_it_is_logged_in_without_asking_the_model(
    tmp_path: Path, claude_program: Path, model: OfflineModel
) -> None:

    def told(**more: str) -> str:
        words = [str(claude_program), "auth", "status", "--json"]
        environment = {"PATH": PATH, **claude_environment(tmp_path, model), **more}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=60, check=False
        ).stdout

    assert login(told()).verdict is Verdict.GOOD
    assert login(told(ANTHROPIC_API_KEY="")).verdict is Verdict.BAD
    assert model.requests == []
