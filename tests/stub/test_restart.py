"""Stop, crash and restart of the daemon: every turn gives exactly one loose end, and no session is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.facts import about
from tests.stub.steps import (
    assistant,
    endless,
    exit_with,
    forever,
    held,
    init,
    on_signal,
    reach,
    result,
    spawn,
    stderr,
    success,
    wait_for,
)
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon


def only_end(daemon: Daemon, name: str) -> dict[str, Any]:
    """Return the one loose end of this subagent."""
    daemon.loose_end(name)
    [end] = daemon.loose_ends(name)
    return end


def is_up(daemon: Daemon, name: str) -> None:
    """Wait until the daemon has seen claude's first event."""
    eventually(lambda: daemon.status_of(name)["activity"]["kind"] == "model", what=f"{name} being up")


def test_sigterm_stops_what_runs_and_tells_it_after_the_restart(own_daemon: Daemon) -> None:
    """Killed, cause `daemon stopped`, for each; the sessions stay (section 6)."""
    pids = [own_daemon.start(name, endless(), success("back")).content["pid"] for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        is_up(own_daemon, name)
    began = time.monotonic()
    code = own_daemon.stop()
    assert code in {0, -signal.SIGTERM}
    assert time.monotonic() - began < 8
    assert not any(is_alive(pid) for pid in pids)
    own_daemon.boot()
    for name in ("a", "b", "c"):
        end = only_end(own_daemon, name)
        assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "daemon stopped")
        assert end["text"] == "working"
        assert own_daemon.status_of(name)["state"] == "killed"
    previous = own_daemon.ok("continue", name="a", prompt="x").content["previous_turn"]
    assert previous["cause"] == "daemon stopped"
    assert own_daemon.loose_end("a", turn=own_daemon.status_of("a")["turn"])["text"] == "back"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_takes_at_most_15_seconds_whatever_the_turns_do(own_daemon: Daemon, number: int) -> None:
    """Turns that ignore every signal are killed, with their children."""
    stubborn = [on_signal(one) for one in ("SIGINT", "SIGTERM", "SIGHUP")]
    kind = spawn("child", own_session=True, ignores=["SIGINT", "SIGTERM"])
    own_daemon.start("a", [init(), *stubborn, kind, reach("up"), forever()])
    own_daemon.reached("up")
    child = own_daemon.recorded_pid("child")
    assert own_daemon.process is not None
    own_daemon.process.send_signal(number)
    own_daemon.ends(within=15)
    assert own_daemon.processes() == []
    assert not is_alive(child)
    own_daemon.boot()
    end = only_end(own_daemon, "a")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")
    assert end["signal"] in {"SIGINT", "SIGKILL"}


def test_a_result_from_before_the_stop_wins(own_daemon: Daemon) -> None:
    """The turn was done; only its process was still there."""
    own_daemon.start("a", [*success("finished"), reach("up"), wait_for("never")])
    own_daemon.reached("up")
    own_daemon.restart()
    end = only_end(own_daemon, "a")
    assert (end["outcome"], end["text"]) == ("completed", "finished")


@about("decision-6")
def test_a_turn_found_alive_after_a_crash_is_stopped(own_daemon: Daemon) -> None:
    """Killed, `daemon stopped`, once; its children go with it."""
    children = [spawn("child", own_session=True), spawn("scrubbed", own_session=True, scrubbed=True)]
    pid = own_daemon.start("a", [init(), assistant("half"), *children, reach("up"), forever()]).content["pid"]
    own_daemon.reached("up")
    pids = [pid, own_daemon.recorded_pid("child")]
    own_daemon.kill()
    assert is_alive(pid), "a turn does not depend on the daemon"
    own_daemon.boot()
    end = only_end(own_daemon, "a")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")
    assert end["text"] == "half"
    assert not any(is_alive(one) for one in pids)
    assert own_daemon.status_of("a")["state"] == "killed"
    scrubbed = own_daemon.recorded_pid("scrubbed")
    if is_alive(scrubbed):
        os.kill(scrubbed, signal.SIGKILL)
    own_daemon.restart()
    assert len(own_daemon.loose_ends("a")) == 1


ENDED_ALONE = [
    pytest.param(
        [init(), wait_for("go"), result("made it"), exit_with(0)],
        {"outcome": "completed", "text": "made it"},
        id="case-D2-with-a-result",
    ),
    pytest.param(
        [init(), wait_for("go"), result("x", is_error=True, api_error_status=529), exit_with(1)],
        {"outcome": "failed", "error_class": "api"},
        id="case-D2-with-an-error-result",
    ),
    pytest.param(
        [init(), assistant("so far"), wait_for("go"), exit_with(0)],
        {"outcome": "lost", "error_class": None},
        id="decision-6-nothing-tells",
    ),
]


@about("case-D2")
@pytest.mark.parametrize(("steps", "expected"), ENDED_ALONE)
def test_a_turn_that_ended_while_no_daemon_ran_is_judged_by_what_it_left(
    own_daemon: Daemon, steps: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    """Exactly one loose end, also over one more restart; lost is never success."""
    pid = own_daemon.start("a", steps, success("resumed")).content["pid"]
    own_daemon.kill()
    own_daemon.open_gate("go")
    eventually(lambda: not is_alive(pid))
    own_daemon.boot()
    end = only_end(own_daemon, "a")
    assert {key: end[key] for key in expected} == expected
    if end["outcome"] == "lost":
        assert "so far" in end["text"]
        state = own_daemon.status_of("a")
        assert (state["state"], state["last_turn"]["cause"]) == ("killed", "unknown")
        assert own_daemon.ok("continue", name="a", prompt="x").content["previous_turn"]["outcome"] == "lost"
        own_daemon.loose_end("a", turn=own_daemon.status_of("a")["turn"])
    own_daemon.kill()
    own_daemon.boot()
    ends = own_daemon.loose_ends("a")
    assert ends[0]["id"] == end["id"]
    assert len({one["turn"] for one in ends}) == len(ends)


@about("decision-6")
def test_a_start_up_error_while_no_daemon_ran_is_told_by_stderr(own_daemon: Daemon) -> None:
    """What nothing else tells, claude's own words may."""
    words = stderr("Error: Append system prompt file not found: /gone")
    pid = own_daemon.start("a", [wait_for("go"), words, exit_with(1)]).content["pid"]
    own_daemon.kill()
    own_daemon.open_gate("go")
    eventually(lambda: not is_alive(pid))
    own_daemon.boot()
    end = only_end(own_daemon, "a")
    assert end["outcome"] in {"failed", "lost"}
    assert "Append system prompt file not found" in f"{end['error']} {end['text']} {end['warnings']}"


@about("case-E4", "case-D8")
def test_many_crashes_in_a_row_lose_and_double_nothing(own_daemon: Daemon) -> None:
    """One loose end for each of five turns."""
    turns = [own_daemon.start(f"a{number}", held(f"go{number}")).content["turn"] for number in range(5)]
    for number in range(5):
        own_daemon.open_gate(f"go{number}")
        own_daemon.kill()
        own_daemon.boot()
    ends = own_daemon.ok("get_loose_ends", limit=100).content["loose_ends"]
    assert sorted(end["turn"] for end in ends) == sorted(turns)


def test_a_pid_that_another_process_has_now_is_left_alone(own_daemon: Daemon) -> None:
    """A leftover is matched by more than its number."""
    pid = own_daemon.start("a", endless()).content["pid"]
    is_up(own_daemon, "a")
    own_daemon.kill()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid))
    [folder] = own_daemon.turn_folders()
    record = folder / "record.json"
    record.write_text(record.read_text().replace(str(pid), str(os.getpid())))
    own_daemon.boot()
    end = only_end(own_daemon, "a")
    assert end["outcome"] in {"lost", "killed"}


@about("decision-19")
def test_turn_ids_are_unique_over_restarts_and_sort_by_time(own_daemon: Daemon) -> None:
    """Also when the state directory was deleted in between."""
    turns = []
    for _ in range(3):
        turns += [own_daemon.play("a", success())["turn"] for _ in range(2)]
        own_daemon.restart()
    assert turns == sorted(set(turns))


def test_a_second_daemon_on_the_same_state_refuses_to_start(
    own_daemon: Daemon, make_daemon: MakeDaemon
) -> None:
    """It names the directory; the first one goes on."""
    own_daemon.start("a", held("go"))
    second = make_daemon(Setting(top={"state_dir": own_daemon.state}))
    process = second.spawn()
    assert process.wait(15) not in {0, None}
    second.process = None
    assert str(own_daemon.state) in second.log
    own_daemon.open_gate("go")
    assert only_end(own_daemon, "a")["outcome"] == "completed"


def test_an_instance_of_its_own_stays_with_the_state(own_daemon: Daemon) -> None:
    """The random id is the same after a restart."""
    instance = (own_daemon.state / "instance").read_text()
    assert instance.strip()
    own_daemon.restart()
    assert (own_daemon.state / "instance").read_text() == instance


def test_idle_names_stay_known_and_records_of_ended_turns_do_not_pile_up(own_daemon: Daemon) -> None:
    """What is remembered is one small file per name."""
    own_daemon.play("a", *[success()] * 6)
    for _ in range(5):
        own_daemon.resume("a")
    own_daemon.restart()
    assert own_daemon.status_of("a")["state"] == "idle"
    assert len(own_daemon.turn_folders()) <= 1
    [known] = (own_daemon.state / "names").iterdir()
    assert json.loads(known.read_text())
