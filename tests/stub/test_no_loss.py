"""What damage, a full disk and impatient callers must not lose, with the whole daemon."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from tests.stub.steps import endless, held, init, reach, success
from tests.stub.test_bad_state import fill
from tests.support.daemon_harness import Setting
from tests.support.mcp_call import PROTOCOL_VERSION, meta
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

HANG_UPS = 10


def test_a_damaged_loose_end_is_restored_from_what_is_remembered(own_daemon: Daemon) -> None:
    """The last turn of a name is remembered with its outcome; the damaged file is set aside."""
    daemon = own_daemon
    first = daemon.play("a", success("first"), success("second"))
    second = daemon.resume("a")
    daemon.kill()
    stored = {end["id"]: daemon.state / "loose-ends" / f"{end['id']}.json" for end in (first, second)}
    stored[second["id"]].write_text("{")
    for _ in range(2):
        daemon.boot()
        assert daemon.loose_ends("a") == [first, second]
        daemon.kill()
    [aside] = (daemon.state / "set-aside").iterdir()
    assert aside.read_text() == "{"


def test_a_damaged_loose_end_that_cannot_be_restored_is_reported(own_daemon: Daemon) -> None:
    """Where it is now, so that a person can look at it."""
    daemon = own_daemon
    first = daemon.play("a", success("first"), success("second"))
    second = daemon.resume("a")
    daemon.kill()
    (daemon.state / "loose-ends" / f"{first['id']}.json").write_text("{")
    daemon.boot()
    assert daemon.loose_ends("a") == [second]
    [aside] = (daemon.state / "set-aside").iterdir()
    assert any(str(aside) in warning for warning in daemon.ok("status").content["warnings"])


def hang_up(daemon: Daemon, name: str) -> None:
    """Send a `start` and close the connection in the middle of the spawn."""
    arguments = {"name": name, "prompt_file": str(daemon.work / "recipe.md")}
    params = {"name": "start", "arguments": arguments, "_meta": meta()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{daemon.port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {PROTOCOL_VERSION}",
        "Mcp-Method: tools/call",
        "Mcp-Name: start",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", daemon.port)) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
        begun = f".{name}"
        eventually(lambda: any(folder.suffix == begun for folder in daemon.turn_folders()), what="a turn")


def test_callers_that_hang_up_in_the_middle_of_a_spawn_leave_no_unattended_process(
    own_daemon: Daemon,
) -> None:
    """Their turns run on under their names and end with a loose end each."""
    daemon = own_daemon
    names = [f"n{number}" for number in range(HANG_UPS)]
    for name in names:
        daemon.script(name, [init(), reach(f"{name}.up"), *endless()[1:]])
        hang_up(daemon, name)
    for name in names:
        daemon.reached(f"{name}.up")
    states = [one["state"] for one in daemon.ok("status").content["subagents"]]
    assert states == ["running"] * len(names)
    assert len(daemon.processes()) == len(names)
    for name in names:
        daemon.ok("interrupt", name=name, force=True)
        assert daemon.loose_end(name)["cause"] == "forced interrupt"
    assert daemon.processes() == []
    for name in names:
        assert daemon.play(name, success())["outcome"] == "completed"


def test_a_disk_too_full_to_settle_a_crash_is_said_and_loses_nothing(
    make_daemon: MakeDaemon, small_disk: Path
) -> None:
    """Either the daemon says why it cannot start, or it serves and settles later; never a traceback."""
    daemon = make_daemon(Setting(top={"state_dir": small_disk / "state"})).boot()
    turn = daemon.start("a", held("go", "of a")).content["turn"]
    daemon.kill()
    daemon.open_gate("go")
    eventually(lambda: not daemon.processes())
    (daemon.state / "ballast").unlink()
    filler = fill(small_disk, 0)
    offset = len(daemon.log)
    process = daemon.spawn()
    eventually(lambda: process.poll() is not None or "listening on" in daemon.log[offset:], within=15)
    assert "Traceback" not in daemon.log[offset:]
    assert "No space left" in daemon.log[offset:]
    process.kill()
    daemon.ends()
    filler.unlink()
    daemon.boot()
    assert [end["turn"] for end in daemon.loose_ends("a")] == [turn]
    assert daemon.loose_end("a")["text"] == "of a"
