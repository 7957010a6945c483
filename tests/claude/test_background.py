"""Work that outlives a round or claude itself: waited for as claude does it, never silently cut off."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import events
from tests.claude.real_daemon import PATH, claude_environment, helper
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

    from tests.claude.real_daemon import RealDaemon
    from tests.support.offline_model import OfflineModel


@pytest.mark.shows("facts-4-a-second-round")
def test_short_background_work_is_waited_for_and_no_warning(daemon: RealDaemon) -> None:
    end = daemon.completed("worker", "[[background: sleep 2; echo written > file]] [[say: begun]]")
    assert (daemon.work / "file").exists()
    assert end["warnings"] == []


@pytest.mark.shows("facts-4-run-in-background", "case-A10", "case-A14")
def test_background_work_is_either_finished_or_named_in_a_warning(daemon: RealDaemon) -> None:
    end = daemon.completed("worker", "[[background: sleep 8; echo written > file]] [[say: begun]]")
    finished = (daemon.work / "file").exists()
    warned = any("background work" in warning for warning in end["warnings"])
    assert warned is not finished, end
    assert daemon.at_home() == []


@pytest.mark.shows("facts-2-a-bash-call-over-3-s-is-not-background-work")
def test_a_long_foreground_command_is_no_background_work(daemon: RealDaemon) -> None:
    end = daemon.completed("worker", "[[bash: sleep 4; echo printed late]]")
    assert end["text"].endswith("printed late")
    assert (end["rounds"], end["warnings"]) == (2, [])


@pytest.mark.shows("facts-4-setsid-nohup")
def test_a_child_that_outlives_claude_is_killed_and_named(daemon: RealDaemon) -> None:
    command = "setsid nohup sleep 300 >/dev/null 2>&1 & echo $! > pid"
    end = daemon.completed("worker", f"[[bash: {command}]] [[say: left one behind]]")
    pid = int((daemon.work / "pid").read_text())
    assert not is_alive(pid)
    [warning] = end["warnings"]
    assert f"sleep ({pid})" in warning


@pytest.mark.shows("facts-3-an-extra-result-comes-first-after-a-kill")
def test_after_a_kill_with_background_work_the_true_result_of_the_next_turn_counts(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    daemon.begin("worker", "[[background: sleep 300]] [[silent]]")
    model.wait_for_request("running in background", limit_seconds=60)
    daemon.wrote_down("running in background")
    daemon.ok("interrupt", name="worker", force=True)
    assert daemon.at_home() == []
    end = daemon.continued("worker", "[[say: the true result]]")
    assert (end["text"], end["rounds"]) == ("the true result", 1)


@pytest.mark.shows("facts-4-background-task")
def test_a_helper_of_its_own_in_the_background_is_waited_for(daemon: RealDaemon) -> None:
    work = helper("[[bash: sleep 1; echo written > file]] [[say: helped]]", run_in_background=True)
    end = daemon.completed("worker", f"{work} [[say: begun]]")
    assert (daemon.work / "file").exists()
    assert end["warnings"] == []


@pytest.mark.shows("facts-4-background-task", "case-F5")
def test_the_words_of_a_helper_are_not_taken_for_those_of_the_subagent(daemon: RealDaemon) -> None:
    words = "x" * 40
    daemon.begin("worker", f"{helper('[[fill: 40]]', run_in_background=True)} [[silent]]")

    def helper_has_spoken() -> bool:
        return any(words in path.read_text() for path in (daemon.home / ".claude").rglob("agent-*.jsonl"))

    eventually(helper_has_spoken, within=60, what="the helper's words in its own transcript")
    daemon.ok("interrupt", name="worker")
    end = daemon.loose_end("worker")
    assert (end["outcome"], end["text"]) == ("killed", None)


@pytest.mark.shows("facts-4-events-of-background-work")
def test_the_events_of_background_work_are_read_for_what_they_are(
    tmp_path: Path, claude_program: Path, model: OfflineModel
) -> None:
    words = ["--print", "--verbose", "--output-format=stream-json", "--dangerously-skip-permissions"]
    environment = {"PATH": PATH, "DISABLE_AUTOUPDATER": "1", **claude_environment(tmp_path / "home", model)}
    told = subprocess.run(
        [claude_program, *words],
        input=b"[[background: sleep 1]] [[bash: sleep 4]] [[say: begun]]",
        env=environment | ({"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}),
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=60,
    )
    lines = told.stdout.splitlines()
    raw = [json.loads(line) for line in lines]
    parsed = [events.parse(line) for line in lines]
    began = [event for event in parsed if isinstance(event, events.BackgroundBegan)]
    ended = [event for event in parsed if isinstance(event, events.BackgroundEnded)]
    tasks = {event["task_id"] for event in raw if event.get("subtype") == "task_started"}
    assert {event.id for event in began} == {event.id for event in ended} == tasks
    assert len(tasks) == 2
    assert all(event.description for event in began)
    results = [event for event in parsed if isinstance(event, events.Result)]
    assert results[-1].is_error is False
