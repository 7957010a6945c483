"""Turns that outlive their daemon (`on_restart = "adopt"`) are followed to the end as if it had lived."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon import procfs
from tests.stub.steps import (
    ask,
    assistant,
    call,
    endless,
    exit_with,
    flood,
    forever,
    held,
    init,
    on_signal,
    reach,
    result,
    spawn,
    success,
    wait_for,
)
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

ADOPT = {"on_restart": "adopt"}


@pytest.fixture
def adopting(make_daemon: MakeDaemon) -> Daemon:
    """Run a daemon that adopts."""
    return make_daemon(Setting(top=ADOPT)).boot()


def only_end(daemon: Daemon, name: str) -> dict[str, Any]:
    """Return the one loose end of this subagent, also after one more start."""
    daemon.loose_end(name)
    [end] = daemon.loose_ends(name)
    return end


def tells_exits() -> bool:
    """Tell whether this kernel tells how a process ended that is not our child (6.15)."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 15)


def leave(daemon: Daemon) -> None:
    """End the daemon as a restart does; what runs is left alone."""
    assert daemon.stop() in {0, -signal.SIGTERM}


def kill(daemon: Daemon) -> None:
    """Kill the daemon."""
    daemon.kill()


@pytest.mark.parametrize("end", [kill, leave])
def test_a_running_turn_does_not_notice_a_restart(adopting: Daemon, end: Callable[[Daemon], None]) -> None:
    """Same process, same turn, its age unbroken, its name taken, and in the end its one loose end."""
    started = adopting.start("a", [init(), assistant("half"), reach("up"), wait_for("go"), result("whole")])
    adopting.reached("up")
    eventually(lambda: adopting.status_of("a")["activity"]["kind"] == "model")
    before = adopting.status_of("a")
    end(adopting)
    assert is_alive(started.content["pid"])
    adopting.boot()
    after = adopting.status_of("a")
    same = ("state", "turn", "session_id", "dir", "parent", "depth", "model", "timeout_seconds")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert after["activity"]["kind"] == "model"
    for age in ("age_seconds", "running_seconds"):
        assert after[age] >= before[age]
    assert adopting.processes() == [started.content["pid"]]
    assert "is running for" in adopting.refused("start", name="a", prompt_file="recipe.md")
    adopting.open_gate("go")
    found = only_end(adopting, "a")
    assert (found["outcome"], found["text"], found["turn"]) == ("completed", "whole", before["turn"])
    assert found["duration_seconds"] >= after["running_seconds"] - 0.1
    assert adopting.turn_folders() == []
    adopting.script("a", success("resumed"))
    assert adopting.resume("a")["text"] == "resumed"


@pytest.mark.parametrize("end", [kill, leave])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([exit_with(3)], {"outcome": "failed", "error_class": "no result", "signal": None}),
        ([result("done"), exit_with(0)], {"outcome": "completed", "text": "done"}),
    ],
    ids=["a-code-without-a-result", "a-result"],
)
def test_the_exit_of_an_adopted_turn_is_told_by_the_kernel(
    adopting: Daemon, end: Callable[[Daemon], None], steps: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    """It is no child of ours; where the kernel is too old, one without a result is lost."""
    adopting.start("a", [init(), reach("up"), wait_for("go"), *steps])
    adopting.reached("up")
    end(adopting)
    adopting.boot()
    adopting.open_gate("go")
    found = only_end(adopting, "a")
    if not tells_exits() and expected["outcome"] == "failed":
        expected = {"outcome": "lost"}
    assert {key: found[key] for key in expected} == expected


def test_an_adopted_turn_that_somebody_kills_is_killed_by_somebody(adopting: Daemon) -> None:
    """Not lost, and not by us."""
    pid = adopting.start("a", [init(), reach("up"), forever()]).content["pid"]
    adopting.reached("up")
    kill(adopting)
    adopting.boot()
    os.kill(pid, signal.SIGKILL)
    found = only_end(adopting, "a")
    expected = ("killed", "SIGKILL", "unknown") if tells_exits() else ("lost", None, "unknown")
    assert (found["outcome"], found["signal"], found["cause"]) == expected


@pytest.mark.parametrize("force", [False, True], ids=["soft", "forced"])
def test_an_adopted_turn_can_be_interrupted(adopting: Daemon, *, force: bool) -> None:
    """As one of its own; what it has started goes with it."""
    pid = adopting.start("a", [init(), spawn("child", own_session=True), reach("up"), forever()]).content[
        "pid"
    ]
    adopting.reached("up")
    child = adopting.recorded_pid("child")
    kill(adopting)
    adopting.boot()
    answer = adopting.ok("interrupt", name="a", force=force).content
    assert answer["signal"] == ("SIGKILL" if force else "SIGINT")
    found = only_end(adopting, "a")
    assert (found["outcome"], found["cause"]) == ("killed", "forced interrupt" if force else "interrupt")
    assert not is_alive(pid)
    assert not is_alive(child)


def test_an_interrupt_just_before_the_crash_is_still_ours(adopting: Daemon) -> None:
    """The daemon is killed between the signal and the end; the next one knows whose signal it was."""
    steps = [init(), on_signal("SIGINT"), reach("up"), wait_for("go"), exit_with(0)]
    adopting.start("a", steps)
    adopting.reached("up")
    adopting.ok("interrupt", name="a")
    kill(adopting)
    adopting.open_gate("go")
    eventually(lambda: not adopting.processes())
    adopting.boot()
    found = only_end(adopting, "a")
    assert (found["outcome"], found["signal"], found["cause"]) == ("killed", "SIGINT", "interrupt")


def test_ctrl_c_stops_for_good(adopting: Daemon) -> None:
    """Without systemd nothing else tells a stop from a restart."""
    adopting.start("a", endless())
    eventually(lambda: adopting.status_of("a")["activity"]["kind"] == "model")
    adopting.stop(signal.SIGINT)
    assert adopting.processes() == []
    adopting.boot()
    found = only_end(adopting, "a")
    assert (found["outcome"], found["cause"]) == ("killed", "daemon stopped")


def test_adopted_turns_count_and_nothing_is_counted_twice(make_daemon: MakeDaemon) -> None:
    """The limit on what runs holds over a restart, and `wait` answers at their end."""
    daemon = make_daemon(Setting(top=ADOPT, limits={"max_running": 2})).boot()
    for name in ("a", "b"):
        daemon.start(name, held(f"go-{name}"))
    kill(daemon)
    daemon.boot()
    assert "max_running is 2" in daemon.refused("start", name="c", prompt_file="recipe.md")
    daemon.open_gate("go-a")
    answer = daemon.ok("wait", names=["a"], timeout_seconds=20).content
    assert "a" in json.dumps(answer)
    assert only_end(daemon, "a")["outcome"] == "completed"
    assert daemon.status_of("b")["state"] == "running"
    assert daemon.play("c", success("room"))["text"] == "room"


def test_the_time_of_a_turn_runs_on_over_the_restart(adopting: Daemon) -> None:
    """A turn whose time is over while no daemon runs is ended by the next one, as timed out."""
    adopting.start("a", [init(), reach("up"), forever()], timeout_seconds=2)
    adopting.reached("up")
    kill(adopting)
    adopting.boot()
    found = only_end(adopting, "a")
    assert (found["outcome"], found["cause"]) == ("killed", "timeout")
    assert 2 <= found["duration_seconds"] < 12


def test_what_a_long_output_told_is_not_lost_with_its_beginning(adopting: Daemon) -> None:
    """Its beginning was given back to the disk; the model and the session stay known."""
    steps = [
        init(model="claude-told-once"),
        flood(30_000_000),
        reach("flooded"),
        wait_for("go"),
        result("dry"),
    ]
    turn = adopting.start("a", steps).content["turn"]
    adopting.reached("flooded", within=30)
    kept = adopting.turn_folder(turn) / "progress.json"
    eventually(kept.exists, within=20, what="what was read being stored")
    kill(adopting)
    with (kept.parent / "stdout").open("r+b") as stdout:
        stdout.write(bytes(1_000_000))  # as a hole reads; not every file system makes holes
    adopting.boot()
    adopting.open_gate("go")
    adopting.loose_end("a", within=30)
    found = only_end(adopting, "a")
    assert (found["outcome"], found["text"], found["model"]) == ("completed", "dry", "claude-told-once")


def test_a_record_of_an_older_version_is_adopted(adopting: Daemon) -> None:
    """It does not tell when the turn began, nor of any signal: its process does, by its start time."""
    turn = adopting.start("a", held("go")).content["turn"]
    kill(adopting)
    path = adopting.turn_folder(turn) / "record.json"
    record = json.loads(path.read_text())
    for later in ("began", "sent", "stopped_after_result", "timed_out"):
        del record[later]
    path.write_text(json.dumps(record))
    adopting.boot()
    assert adopting.status_of("a")["state"] == "running"
    adopting.open_gate("go")
    assert only_end(adopting, "a")["outcome"] == "completed"


def test_a_pid_that_another_process_has_now_is_never_adopted(adopting: Daemon) -> None:
    """The start time tells them apart."""
    started = adopting.start("a", endless()).content
    kill(adopting)
    os.kill(started["pid"], signal.SIGKILL)
    eventually(lambda: not is_alive(started["pid"]))
    path = adopting.turn_folder(started["turn"]) / "record.json"
    path.write_text(path.read_text().replace(f'"pid":{started["pid"]}', f'"pid":{os.getpid()}'))
    adopting.boot()
    assert only_end(adopting, "a")["outcome"] == "lost"
    assert is_alive(os.getpid())


def test_a_process_of_this_boot_is_never_taken_for_one_of_another(adopting: Daemon) -> None:
    """After a reboot even pid and start time may be those of somebody else."""
    started = adopting.start("a", endless()).content
    kill(adopting)
    os.kill(started["pid"], signal.SIGKILL)
    eventually(lambda: not is_alive(started["pid"]))
    own = procfs.process(os.getpid())
    assert own is not None
    path = adopting.turn_folder(started["turn"]) / "record.json"
    of_another_boot = {"pid": own.pid, "pid_start": own.start, "boot_id": "of-another-boot", "began": 0.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | of_another_boot))
    adopting.boot()
    found = only_end(adopting, "a")
    assert found["outcome"] == "lost"
    assert found["duration_seconds"] < 600


def test_turned_off_again_what_runs_is_stopped(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    """The setting of the daemon that starts decides."""
    state = tmp_path / "shared"
    first = make_daemon(Setting(top={**ADOPT, "state_dir": state})).boot()
    pid = first.start("a", endless()).content["pid"]
    kill(first)
    second = make_daemon(Setting(top={"state_dir": state})).boot()
    found = only_end(second, "a")
    assert (found["outcome"], found["cause"]) == ("killed", "daemon stopped")
    assert not is_alive(pid)


def at_a_fixed_port(make_daemon: MakeDaemon, setting: Setting) -> Daemon:
    """Run a daemon that adopts and is found at the same address again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return make_daemon(replace(setting, top={**ADOPT, "listen": [f"127.0.0.1:{port}"]})).boot()


@pytest.mark.parametrize(
    "kind", [{}, {"own_session": True, "double_fork": True}], ids=["a-child", "an-orphan"]
)
def test_whoever_calls_from_inside_an_adopted_turn_is_known(
    make_daemon: MakeDaemon, kind: dict[str, object]
) -> None:
    """Claude and what it has started do not descend from this daemon, and are refused all the same."""
    daemon = at_a_fixed_port(make_daemon, Setting())
    child = spawn("child", calls=daemon.port) | kind
    daemon.start("a", [init(), reach("up"), wait_for("go"), call(daemon.port, "own"), child, result()])
    daemon.reached("up")
    kill(daemon)
    daemon.boot()
    daemon.open_gate("go")
    for answer in ("own", "child.answer"):
        daemon.reached(answer)
        assert " 403" in (daemon.scripts / answer).read_text()


def test_nested_subagents_stay_nested_and_go_with_their_parent(make_daemon: MakeDaemon) -> None:
    """Both are adopted; a forced interrupt of the outer one takes the inner one along."""
    own = {"subagent": {"url": "http://127.0.0.1:7310/mcp", "available_to_subagents": True}}
    setting = Setting(limits={"max_depth": 2}, tables={"mcp_servers": own})
    daemon = at_a_fixed_port(make_daemon, setting)
    recipe = str(daemon.work / "recipe.md")
    daemon.script("inner", endless())
    inner = ask(daemon.port, "begun", "start", name="inner", prompt_file=recipe)
    daemon.start("outer", [init(), inner, reach("up"), forever()])
    daemon.reached("up")
    kill(daemon)
    daemon.boot()
    assert (daemon.status_of("inner")["parent"], daemon.status_of("inner")["depth"]) == ("outer", 2)
    daemon.ok("interrupt", name="outer", force=True)
    for name in ("outer", "inner"):
        assert only_end(daemon, name)["cause"] == "forced interrupt"
    assert daemon.processes() == []
