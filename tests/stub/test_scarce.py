"""A daemon that runs out of something while it works: refusals in words, no turn lost, and it recovers."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import held, init, reach, result, spawn, success, wait_for
from tests.support.daemon_harness import REPOSITORY, Daemon, Setting
from tests.support.mcp_call import HttpError
from tests.support.other_user import needs_root
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.conftest import MakeDaemon

FREE_DESCRIPTORS = range(8)
LONELY_UID = 64_123  # a user with no other process, so that its limit counts this daemon alone
AS_LONELY = ("setpriv", f"--reuid={LONELY_UID}", f"--regid={LONELY_UID}", "--clear-groups")


def limit(daemon: Daemon, which: int, soft: int) -> tuple[int, int]:
    """Set a soft limit of the running daemon; return what both were."""
    assert daemon.process is not None
    old = resource.prlimit(daemon.process.pid, which)
    resource.prlimit(daemon.process.pid, which, (soft, old[1]))
    return old


def limit_with_free(daemon: Daemon, free: int) -> int:
    """Return the limit at which the daemon can open so many descriptors more than it has open now."""
    assert daemon.process is not None
    taken = {int(entry.name) for entry in Path(f"/proc/{daemon.process.pid}/fd").iterdir()}
    return next(itertools.islice((number for number in itertools.count() if number not in taken), free, None))


def refusal_of(daemon: Daemon, tool: str, **arguments: object) -> str:
    """Call a tool that may lack something; return the sentence of its refusal, nothing when it was done."""
    try:
        answer = daemon.call(tool, **arguments)
    except HttpError as error:
        if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return error.body
    assert "Internal error" not in answer.text, answer.text
    return answer.text if answer.is_error else ""


def all_ends(daemon: Daemon) -> list[str]:
    """Return the turns of all open loose ends; none may be there twice."""
    turns = [end["turn"] for end in daemon.ok("get_loose_ends", limit=100).content["loose_ends"]]
    assert len(set(turns)) == len(turns)
    return turns


def test_without_descriptors_nothing_is_lost_and_nothing_stays(own_daemon: Daemon) -> None:
    """Whatever number is left: what ends is stored once there are some, what begins is refused in words."""
    daemon = own_daemon
    daemon.play("warm", success())
    refusals = []
    started = 1
    for left in FREE_DESCRIPTORS:
        name = f"a{left}"
        steps = [init(), spawn(f"child-{left}", own_session=True), wait_for(f"go-{left}"), result(name)]
        daemon.start(name, steps)
        daemon.recorded_pid(f"child-{left}")
        daemon.script(f"b{left}", success())
        old = limit(daemon, resource.RLIMIT_NOFILE, limit_with_free(daemon, left))
        daemon.open_gate(f"go-{left}")
        if left:  # the connection of a call needs one itself
            recipe = str(daemon.work / "recipe.md")
            refusals.append(refusal_of(daemon, "start", name=f"b{left}", prompt_file=recipe))
            refusal_of(daemon, "status")
        else:
            eventually(lambda: "cannot be found out yet" in daemon.log or not daemon.turn_folders())
        limit(daemon, resource.RLIMIT_NOFILE, old[0])
        assert daemon.loose_end(name)["text"] == name
        started += 1
        eventually(lambda: not daemon.processes() and not daemon.turn_folders(), within=10)
    assert any("Too many open files" in refusal for refusal in refusals)
    turns = all_ends(daemon)
    assert len(turns) == started + refusals.count("")
    daemon.restart()
    assert all_ends(daemon) == turns


# A claude without any child process, since none can be had; it waits for a word in the FIFO if there is one.
CHILDLESS_CLAUDE = """\
#!/bin/sh
[ "$1" = --version ] && echo '2.1.197 (Claude Code)' && exit
while read -r line; do :; done
[ -p "$STUB_SCRIPTS/fifo" ] && read -r line <"$STUB_SCRIPTS/fifo"
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done"}'
"""


@pytest.fixture
def lonely_daemon() -> Iterator[Daemon]:
    """Boot a daemon of an ordinary user that nothing else runs as."""
    words = [*AS_LONELY, sys.executable, "-c", "import hive_subagent_daemon"]
    if subprocess.run(words, cwd=REPOSITORY, capture_output=True, check=False).returncode != 0:
        pytest.skip("another user cannot run this Python")
    with tempfile.TemporaryDirectory() as name:  # not below pytest's own folder, which others may not enter
        folder = Path(name)
        claude = folder / "claude"
        claude.write_text(CHILDLESS_CLAUDE)
        claude.chmod(0o755)
        daemon = Daemon(folder, claude, Setting(prefix=AS_LONELY))
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, LONELY_UID, LONELY_UID)
        yield daemon.boot()
        daemon.shut()


def limit_processes(daemon: Daemon, soft: str) -> None:
    """Let the daemon and its user have at most so many threads and processes."""
    assert daemon.process is not None
    words = [*AS_LONELY, "prlimit", "--pid", str(daemon.process.pid), f"--nproc={soft}:"]
    subprocess.run(words, check=True)


@needs_root
def test_when_no_process_can_be_created_starts_are_refused_and_running_turns_end(
    lonely_daemon: Daemon,
) -> None:
    """RLIMIT_NPROC counts threads too, so the daemon has none to spare either."""
    daemon = lonely_daemon
    daemon.play("warm")
    fifo = daemon.scripts / "fifo"
    os.mkfifo(fifo, 0o644)
    daemon.start("a")
    limit_processes(daemon, "1")
    recipe = str(daemon.work / "recipe.md")
    for name in ("b", "c"):
        refusal = refusal_of(daemon, "start", name=name, prompt_file=recipe)
        assert "no process could be created" in refusal or "try again" in refusal, refusal
    assert not refusal_of(daemon, "status")
    fifo.write_text("go\n")
    assert daemon.loose_end("a")["text"] == "done"
    limit_processes(daemon, "1000")
    fifo.unlink()
    assert daemon.play("b")["outcome"] == "completed"
    turns = all_ends(daemon)
    assert len(turns) == 3
    daemon.restart()
    assert all_ends(daemon) == turns


def test_a_state_directory_that_is_removed_refuses_turns_and_is_told(make_daemon: MakeDaemon) -> None:
    """What was in it is gone; what runs is ended at the stop, and a restart serves again."""
    daemon = make_daemon().boot()
    daemon.play("a", success())
    daemon.start("b", [init(), reach("up"), *held("go")])
    daemon.reached("up")
    shutil.rmtree(daemon.state)
    recipe = str(daemon.work / "recipe.md")
    for tool, more in (("start", {"prompt_file": recipe}), ("continue", {"prompt": "x"})):
        assert str(daemon.state) in refusal_of(daemon, tool, name="a", **more)
    daemon.open_gate("go")
    eventually(lambda: not daemon.processes())
    warnings = " ".join(daemon.ok("status").content["warnings"])
    assert str(daemon.state) in warnings
    assert daemon.stop() == 0
    daemon.boot()
    assert daemon.status_of("b")["state"] == "unknown"
    assert daemon.play("b", success())["outcome"] == "completed"
