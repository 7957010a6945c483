"""The page and the metrics of a whole daemon: what they show of its turns, and who may look."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import call, forever, held, init, reach, result, success, tool_use
from tests.support.daemon_harness import Setting
from tests.support.looking import Looked, look, metric
from tests.support.processes import eventually
from tests.support.receivers import answer, receiving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

PROMTOOL = shutil.which("promtool")
PATHS = ("/", "/?name=x", "/style.css", "/metrics")


def get(daemon: Daemon, path: str, *, method: str = "GET", **headers: str) -> Looked:
    """Look at a path of a daemon."""
    return look(daemon.port, path, method=method, **headers)


def value(daemon: Daemon, sample: str) -> float:
    """Return one sample of its metrics."""
    return metric(daemon.port, sample)


def ended(outcome: str, *, cause: str = "", error_class: str = "") -> str:
    """Return the sample of turns that ended like this."""
    return f'hive_subagent_turns_total{{cause="{cause}",error_class="{error_class}",outcome="{outcome}"}}'


def test_a_turn_shows_while_it_runs_and_when_it_has_ended(daemon: Daemon, name: str) -> None:
    daemon.start(name, [init(), tool_use("WebSearch"), reach(f"{name}.up"), forever()])
    daemon.reached(f"{name}.up")
    eventually(lambda: "in WebSearch for" in get(daemon, f"/?name={name}").text, what="the tool on the page")
    running = get(daemon, "/").text
    assert f'<a href="/?name={name}">{name}</a>' in running
    daemon.ok("interrupt", name=name, force=True)
    for path in ("/", f"/?name={name}"):
        assert "killed by SIGKILL, cause forced interrupt" in get(daemon, path).text


def test_the_conversation_is_read_from_the_session_file_of_claude(daemon: Daemon, name: str) -> None:
    daemon.play(name, success("all is done"))
    session = daemon.status_of(name)["session_id"]
    [transcript] = [path for path in daemon.transcripts() if path.stem == session]
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": "I looked & saw."}]}}
    with transcript.open("a") as file:
        file.write(json.dumps(said) + "\n")
    shown = get(daemon, f"/?name={name}").text
    assert "I looked &amp; saw." in shown
    assert "all is done" in shown


def test_a_session_file_without_end_is_shown_by_its_end(daemon: Daemon, name: str) -> None:
    """Half a gigabyte of it costs as much as a few lines."""
    daemon.play(name, success())
    [transcript] = [p for p in daemon.transcripts() if p.stem == daemon.status_of(name)["session_id"]]
    last = json.dumps({"type": "user", "message": {"content": "the last words"}})
    with transcript.open("r+b") as file:
        file.truncate(1 << 29)
        file.seek(0, 2)
        file.write(b"\n\xff\n" + last.encode() + b"\n" + b'{"type":"user"')
    shown = get(daemon, f"/?name={name}").text
    assert "the last words" in shown
    assert len(shown) < 50_000


@pytest.mark.parametrize("path", PATHS)
def test_only_reading_is_answered_and_only_by_this_machine(daemon: Daemon, path: str) -> None:
    assert get(daemon, path, method="POST").status == 405
    assert get(daemon, path, method="HEAD").text == ""
    assert get(daemon, path, Host="evil.example").status == 421
    assert get(daemon, path, Origin="https://evil.example").status == 403
    refused = get(daemon, path, Sec_Fetch_Site="cross-site")
    assert (refused.status, refused.text.count(".\n")) == (403, 1)


def test_a_subagent_may_look_at_nothing_of_its_daemon(daemon: Daemon, name: str) -> None:
    steps = [call(daemon.port, f"{name}.{n}", path) for n, path in enumerate(PATHS)]
    daemon.play(name, [init(), *steps, result()])
    for number in range(len(PATHS)):
        assert " 403" in (daemon.scripts / f"{name}.{number}").read_text()


def test_other_paths_say_what_there_is(daemon: Daemon) -> None:
    assert "/mcp, /notices, /, /style.css, /metrics" in get(daemon, "/nothing").text


def test_what_ends_is_counted_once_by_outcome_and_cause(own_daemon: Daemon) -> None:
    own_daemon.play("good", success())
    own_daemon.play("bad", [init(), result("x", is_error=True, api_error_status=401, subtype="success")])
    own_daemon.start("cut", held("never"))
    assert value(own_daemon, "hive_subagent_turns_running") == 1
    own_daemon.ok("interrupt", name="cut", force=True)
    assert value(own_daemon, ended("completed")) == 1
    assert value(own_daemon, ended("failed", error_class="auth")) == 1
    assert value(own_daemon, ended("killed", cause="forced interrupt")) == 1
    assert value(own_daemon, "hive_subagent_loose_ends_open") == 3
    assert value(own_daemon, "hive_subagent_start_duration_seconds_count") == 3
    assert value(own_daemon, "hive_subagent_turn_duration_seconds_count") == 3


def test_after_a_crash_the_next_daemon_counts_what_was_not_and_nothing_twice(own_daemon: Daemon) -> None:
    own_daemon.play("good", success())
    own_daemon.start("cut", held("never"))
    own_daemon.kill()
    own_daemon.boot()
    assert value(own_daemon, ended("completed")) == 0
    assert value(own_daemon, ended("killed", cause="daemon stopped")) == 1
    assert value(own_daemon, "hive_subagent_loose_ends_open") == 2
    own_daemon.restart()
    assert value(own_daemon, ended("killed", cause="daemon stopped")) == 0


def test_a_silent_turn_is_told_as_stalled(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(Setting(limits={"stall_after_seconds": 1})).boot()
    daemon.start("quiet", held("never"))
    eventually(lambda: value(daemon, "hive_subagent_turns_stalled") == 1, what="the turn being stalled")
    assert value(daemon, "hive_subagent_longest_silence_seconds") > 1
    assert '<span class="state stalled">stalled</span>' in get(daemon, "/").text


def test_a_sink_that_takes_nothing_is_told_and_so_is_its_loose_end(make_daemon: MakeDaemon) -> None:
    with receiving(lambda _request: answer(500)) as (_, port):
        sink = {"type": "http", "url": f"http://127.0.0.1:{port}/in", "name": "hook"}
        daemon = make_daemon(Setting(tables={"loose_ends": {"sinks": [sink]}})).boot()
        end = daemon.play("good", success())
        failed = 'hive_subagent_sink_attempts_total{answer="failed",sink="hook"}'
        eventually(lambda: value(daemon, failed) >= 1, what="an attempt")
        assert value(daemon, 'hive_subagent_sink_waiting{sink="hook"}') == 1
        daemon.ok("close_loose_ends", ids=[end["id"]])
        shown = get(daemon, "/").text
    assert "not delivered to 1 sink" in shown
    assert '<span class="tag">closed</span>' in shown


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (of Prometheus) is not installed")
def test_prometheus_finds_no_fault_in_the_metrics_of_a_daemon(
    daemon: Daemon, name: str, tmp_path: Path
) -> None:
    daemon.play(name, success())
    (tmp_path / "metrics").write_text(get(daemon, "/metrics").text)
    with (tmp_path / "metrics").open("rb") as content:
        checked = subprocess.run(
            [str(PROMTOOL), "check", "metrics"], stdin=content, capture_output=True, check=False
        )
    assert (checked.returncode, checked.stderr) == (0, b"")
