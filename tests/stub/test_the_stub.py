"""The scripted claude itself has claude's manners, or the other tests would prove nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import Step, exit_with, forever, init, reach, result, spawn, success
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = ["--print", "--verbose", "--output-format", "stream-json", "--dangerously-skip-permissions"]


class Bench:
    """A place to run the stub without a daemon."""

    def __init__(self, program: Path, folder: Path) -> None:
        """Take the program and the folder that is its home and its script folder."""
        self.program = program
        self.folder = folder

    def spawn(self, *words: str, stdin: str = "hello", turns: list[list[Step]] | None = None) -> list[str]:
        """Prepare a run and return its command."""
        (self.folder / "default.json").write_text(json.dumps(turns or [success()]))
        (self.folder / "stdin").write_text(stdin)
        return [str(self.program), *FLAGS, *words]

    def environment(self) -> dict[str, str]:
        """Return the environment of a run."""
        names = {"HOME": str(self.folder), "STUB_SCRIPTS": str(self.folder), "IS_SANDBOX": "1"}
        return {"PATH": os.environ["PATH"]} | names

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Start a run with the prepared stdin."""
        with (self.folder / "stdin").open() as stdin, (self.folder / "stdout").open("w") as stdout:
            return subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True,
                env=self.environment(), cwd=self.folder,
            )  # fmt: skip

    def run(
        self, *words: str, stdin: str = "hello", turns: list[list[Step]] | None = None
    ) -> tuple[int, list[Step], str]:
        """Run to the end; return code, events and stderr."""
        with self.start(self.spawn(*words, stdin=stdin, turns=turns)) as process:
            _, stderr = process.communicate(timeout=20)
        lines = (self.folder / "stdout").read_text().splitlines()
        return process.returncode, [json.loads(line) for line in lines], stderr


@pytest.fixture
def bench(claude_program: Path, tmp_path: Path) -> Bench:
    """Return a place to run the stub in."""
    return Bench(claude_program, tmp_path)


def test_a_session_can_be_resumed_by_id_and_by_title(bench: Bench) -> None:
    """In any case of letters, and it keeps its id."""
    session = str(uuid.uuid4())
    code, events, _ = bench.run("--session-id", session, "--name", "cl")
    assert (code, events[0]["session_id"], events[-1]["type"]) == (0, session, "result")
    for wanted in (session, "CL"):
        assert bench.run(f"--resume={wanted}")[1][0]["session_id"] == session


REFUSALS = [
    (["--resume=gone"], "hello", "is not a UUID and does not match any session title"),
    ([f"--resume={uuid.UUID(int=5)}"], "hello", "No conversation found with session ID"),
    (["--append-system-prompt-file", "/gone"], "hello", "Append system prompt file not found"),
    (["--append-system-prompt-file", "/"], "hello", "EISDIR"),
    (["--name", "-p"], "hello", "unknown option"),
    (["--nonsense"], "hello", "unknown option"),
    ([], "", "Input must be provided"),
    ([], "x" * 10_000_001, "exceeds 10MB"),
]


@pytest.mark.parametrize(("words", "stdin", "message"), REFUSALS)
def test_it_refuses_what_claude_refuses(bench: Bench, words: list[str], stdin: str, message: str) -> None:
    """On stderr, with exit code 1."""
    code, _, stderr = bench.run(*words, stdin=stdin)
    assert code == 1
    assert message in stderr


def test_a_leading_slash_is_a_command_and_blanks_are_nothing(bench: Bench) -> None:
    """So that a daemon which passes them on unchanged is found out."""
    assert bench.run(stdin="/nosuch x")[1][-1]["result"] == "Unknown command: /nosuch"
    assert bench.run(stdin=" /nosuch x")[1][-1]["result"] == "all done"
    assert bench.run(stdin=" \n")[:2] == (0, [])


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_it_ends_by_signals_as_claude_does(bench: Bench, number: int, code: int) -> None:
    """With the exit codes that were measured, and out of the registry of live sessions when it can."""
    with bench.start(bench.spawn("--session-id", "s", turns=[[init(), reach("up"), forever()]])) as process:
        eventually((bench.folder / "up").exists)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == code
    registry = bench.folder / ".claude" / "sessions" / f"{process.pid}.json"
    assert registry.exists() == (number == signal.SIGKILL)


def test_its_children_are_as_hard_to_find_as_scripted(bench: Bench) -> None:
    """A scrubbed double fork survives it, in a session of its own."""
    step = spawn("child", own_session=True, double_fork=True, scrubbed=True)
    assert bench.run("--session-id", "s", turns=[[init(), step, result(), exit_with(1)]])[0] == 1
    pid = int((bench.folder / "child").read_text())
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid))
