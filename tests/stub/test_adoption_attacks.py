"""Adoption under attack: strangers with our pid, a full disk, daemons that die at once, work half done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tests.stub.steps import endless, forever, held, init, on_signal, reach, result, wait_for
from tests.stub.test_adoption import ADOPT, adopting, only_end
from tests.stub.test_bad_state import fill
from tests.stub.test_page import ended, get, value
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

__all__ = ["adopting"]


def test_adopted_turns_count_and_show_as_any_other(make_daemon: MakeDaemon) -> None:
    """Against `max_running`, on the page, in the metrics, to `wait`; nothing of them is left on disk."""
    limits = {"max_running": 2, "stall_after_seconds": 1}
    daemon = make_daemon(Setting(top=ADOPT, limits=limits)).boot()
    for name in ("a", "b"):
        daemon.start(name, held(f"go.{name}"))
    daemon.kill()
    daemon.boot()
    assert "max_running is 2" in daemon.refused("start", name="c", prompt_file="recipe.md")
    assert value(daemon, "hive_subagent_turns_running") == 2
    eventually(lambda: daemon.status_of("a")["stalled"], what="its silence being told")
    daemon.open_gate("go.a")
    told = daemon.ok("wait", names=["a"], timeout_seconds=60).content
    assert told["ended"] == ["a"]
    assert only_end(daemon, "a")["outcome"] == "completed"
    assert value(daemon, "hive_subagent_turns_running") == 1
    assert value(daemon, ended("completed")) == 1
    assert '<a href="/?name=b">b</a>' in get(daemon, "/").text
    daemon.open_gate("go.b")
    daemon.loose_end("b")
    eventually(lambda: daemon.turn_folders() == [], what="the folders being removed")


@contextmanager
def stranger() -> Iterator[tuple[int, int]]:
    """Run a session of somebody else's; give its leader and a member."""
    words = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, text=True) as leader:
        assert leader.stdout is not None
        member = int(leader.stdout.readline())
        try:
            yield leader.pid, member
        finally:
            for pid in (member, leader.pid):
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


def test_a_session_whose_leader_has_the_pid_of_a_turn_is_left_alone(adopting: Daemon) -> None:
    """claude is gone, its pid belongs to the leader of somebody else's session now."""
    started = adopting.start("a", endless()).content
    adopting.kill()
    os.kill(started["pid"], signal.SIGKILL)
    eventually(lambda: not is_alive(started["pid"]))
    path = adopting.turn_folder(started["turn"]) / "record.json"
    with stranger() as (leader, member):
        path.write_text(path.read_text().replace(f'"pid":{started["pid"]}', f'"pid":{leader}'))
        adopting.boot()
        assert only_end(adopting, "a")["outcome"] == "lost"
        assert is_alive(leader)
        assert is_alive(member)


def logs_more(daemon: Daemon, words: str, before: int) -> bool:
    """Tell whether a daemon has logged something once more."""
    return daemon.log.count(words) > before


def test_daemons_that_die_while_they_begin_cost_no_turn(adopting: Daemon) -> None:
    """Killed or asked to stop, before and while they adopt."""
    adopting.start("a", held("go"))
    adopting.kill()
    for number in (signal.SIGTERM, signal.SIGKILL):
        begun = adopting.spawn()
        begun.send_signal(number)
        adopting.ends()
        adopted = adopting.log.count("goes on")
        begun = adopting.spawn()
        eventually(partial(logs_more, adopting, "goes on", adopted), within=60, what="adopting")
        begun.send_signal(number)
        adopting.ends()
    adopting.boot()
    assert adopting.status_of("a")["state"] == "running"
    adopting.open_gate("go")
    assert only_end(adopting, "a")["outcome"] == "completed"


def test_a_full_disk_keeps_no_turn_from_being_adopted(make_daemon: MakeDaemon, small_disk: Path) -> None:
    """It can be interrupted too; its end is stored, in the room of the ballast."""
    daemon = make_daemon(Setting(top={**ADOPT, "state_dir": small_disk / "state"})).boot()
    daemon.start("a", [init(), reach("a.up"), forever()])
    daemon.start("b", [init(), result("done"), reach("b.up"), wait_for("go")])
    for name in ("a", "b"):
        daemon.reached(f"{name}.up")
    daemon.kill()
    fill(small_disk, 0)
    daemon.boot()
    assert [daemon.status_of(name)["state"] for name in ("a", "b")] == ["running", "running"]
    daemon.ok("interrupt", name="a")
    daemon.open_gate("go")
    assert only_end(daemon, "a")["cause"] == "interrupt"
    assert only_end(daemon, "b")["outcome"] == "completed"


def test_a_turn_that_was_being_ended_after_its_result_is_ended(adopting: Daemon) -> None:
    """The daemon dies between its signal and the kill; the result stands."""
    steps = [init(), on_signal("SIGTERM", [reach("asked")]), result("done"), forever()]
    turn = adopting.start("a", steps).content["turn"]
    adopting.reached("asked")
    adopting.kill()
    path = adopting.turn_folder(turn) / "record.json"
    assert json.loads(path.read_text())["stopped_after_result"]
    adopting.boot()
    found = only_end(adopting, "a")
    assert (found["outcome"], found["text"]) == ("completed", "done")
    assert "did not exit" in found["warnings"][0]
    assert adopting.processes() == []
