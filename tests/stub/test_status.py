"""The tool `status`: what runs, how alive it is, how the last turn ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import (
    Step,
    api_retry,
    assistant,
    event,
    exit_with,
    forever,
    held,
    init,
    reach,
    result,
    stderr,
    success,
    tool_result,
    tool_use,
    wait_for,
)
from tests.support.daemon_harness import Daemon, Setting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon


def test_a_running_subagent_shows_the_agreed_fields(daemon: Daemon, name: str) -> None:
    """Age and time are numbers, and the age is gone when the turn ends."""
    start = daemon.start(name, held(f"{name}.go"), model="opus").content
    now = daemon.status_of(name)
    assert (now["state"], now["turn"], now["dir"]) == ("running", start["turn"], str(daemon.work))
    assert (now["session_id"], now["stalled"]) == (start["session_id"], False)
    assert "opus" in now["model"]
    assert 0 <= now["age_seconds"] <= now["running_seconds"] + 1
    assert {"activity", "memory_bytes", "memory_limit_bytes", "mcp_problems"} <= set(now)
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name)
    then = daemon.status_of(name)
    assert then["state"] == "idle"
    assert then.get("age_seconds") is None
    assert then.get("running_seconds") is None
    assert (then["last_turn"]["outcome"], then["last_turn"]["turn"]) == ("completed", start["turn"])


def test_memory_of_a_running_turn_is_told(daemon: Daemon, name: str) -> None:
    """Cheap and known: it is more than nothing."""
    daemon.start(name, held(f"{name}.go"))
    memory = daemon.status_of(name)["memory_bytes"]
    assert memory > 1_000_000
    daemon.open_gate(f"{name}.go")


@about("case-A6")
def test_the_age_climbs_from_the_spawn_when_nothing_is_ever_printed(daemon: Daemon, name: str) -> None:
    """It is visibly starting, not working."""
    daemon.start(name, [forever()])
    eventually(lambda: daemon.status_of(name)["age_seconds"] > 0.3)
    now = daemon.status_of(name)
    assert now["activity"]["kind"] == "starting"
    assert now["age_seconds"] <= now["running_seconds"] + 0.1


@about("case-A9")
@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(event(type="nobody_knows_this"), id="an-unknown-event"),
        pytest.param(stderr("something"), id="stderr-only"),
        pytest.param({"do": "raw", "to": 1, "bytes": "eA=="}, id="one-byte-without-a-line-end"),
    ],
)
def test_any_byte_makes_the_age_young_again(daemon: Daemon, name: str, noise: Step) -> None:
    """Raw output on stdout and stderr counts, whatever it is."""
    daemon.start(name, [init(), wait_for(f"{name}.go"), noise, reach(f"{name}.did"), forever()])
    old = eventually(lambda: (age := daemon.status_of(name)["age_seconds"]) > 0.5 and age)
    daemon.open_gate(f"{name}.go")
    daemon.reached(f"{name}.did")
    assert daemon.status_of(name)["age_seconds"] < old


ACTIVITIES = [
    pytest.param([], {"kind": "starting"}, id="case-A6-no-init-yet"),
    pytest.param([init()], {"kind": "model"}, id="facts-8-waiting-for-the-model"),
    pytest.param(
        [init(), tool_use("Bash", command="x")], {"kind": "tool", "tool": "Bash"}, id="case-A5-A8-a-tool"
    ),
    pytest.param(
        [init(), tool_use("mcp__x__slow")], {"kind": "tool", "tool": "mcp__x__slow"}, id="facts-9-an-mcp-tool"
    ),
    pytest.param([init(), tool_use("Bash"), tool_result()], {"kind": "model"}, id="a-tool-that-answered"),
    pytest.param(
        [init(), api_retry(7)],
        {"kind": "retry", "attempt": 7, "max_attempts": 10},
        id="facts-8-api-retry",
    ),
    pytest.param(
        [init(), api_retry(7), assistant("x", stop_reason=None)], {"kind": "model"}, id="a-retry-that-helped"
    ),
]


@pytest.mark.parametrize(("steps", "expected"), ACTIVITIES)
def test_what_a_running_turn_is_doing_is_told(
    daemon: Daemon, name: str, steps: list[Step], expected: dict[str, object]
) -> None:
    """Working, waiting and wedged look different."""
    daemon.start(name, [*steps, reach(f"{name}.up"), forever()])
    daemon.reached(f"{name}.up")

    def shown() -> bool:
        activity = daemon.status_of(name)["activity"]
        return activity is not None and {key: activity[key] for key in expected} == expected

    eventually(shown, what=f"activity {expected}")
    activity = daemon.status_of(name)["activity"]
    assert {"kind", "tool", "since_seconds", "attempt", "max_attempts", "error"} <= set(activity)
    assert activity["since_seconds"] >= 0
    assert ("overloaded" in str(activity["error"])) == (expected["kind"] == "retry")


@about("case-A5", "case-A8", "decision-11", "facts-8-silent-for-300-s")
def test_a_quiet_tool_is_never_killed_only_marked_as_stalled(make_daemon: MakeDaemon) -> None:
    """Liveness is reported, not acted on; `interrupt` and `continue` work."""
    daemon = make_daemon(Setting(limits={"stall_after_seconds": 0.5})).boot()
    quiet = [init(), tool_use("Bash"), wait_for("go"), tool_result(), *success()[1:]]
    daemon.start("a", quiet, success("after"))
    eventually(lambda: daemon.status_of("a")["stalled"])
    answer = daemon.ok("status", name="a").content
    assert answer["subagents"][0]["state"] == "running"
    assert any("a" in warning for warning in answer["warnings"])
    eventually(lambda: daemon.status_of("a")["age_seconds"] > 1.2)
    daemon.open_gate("go")
    assert daemon.loose_end("a")["outcome"] == "completed"
    assert daemon.resume("a")["text"] == "after"


@about("case-A5", "facts-9-hung-after-the-server-died")
def test_a_wedged_tool_can_be_interrupted_and_continued(daemon: Daemon, name: str) -> None:
    """As after a failed MCP call that never returns."""
    daemon.start(name, [init(), tool_use("mcp__x__y"), reach(f"{name}.up"), forever()], success("better"))
    daemon.reached(f"{name}.up")
    daemon.ok("interrupt", name=name)
    daemon.loose_end(name)
    assert daemon.resume(name)["text"] == "better"


def test_an_unknown_name_is_listed_as_unknown(daemon: Daemon, name: str) -> None:
    """A question is not an error; `continue` may still find a session on disk."""
    assert daemon.status_of(name)["state"] == "unknown"


def test_launcher_and_version_are_told(daemon: Daemon, name: str) -> None:
    """Without scopes it is a process group, which the log says too."""
    daemon.play(name, success())
    content = daemon.ok("status").content
    assert content["launcher"] == "process group"
    assert str(content["claude_version"]).startswith("2.1.197")
    assert isinstance(content["more"], int)
    assert isinstance(content["undelivered"], int | list | dict)
    assert isinstance(content["warnings"], list)
    assert "process group" in daemon.log


def test_running_ones_come_first_then_the_most_recent_at_most_fifty(make_daemon: MakeDaemon) -> None:
    """The rest is counted, and texts of earlier turns are cut to 200 characters."""
    daemon = make_daemon().boot()
    daemon.start("first", held("go"))
    for number in range(52):
        daemon.start(f"idle-{number}", success("y" * 5000))
    for number in range(52):
        daemon.finished(f"idle-{number}", within=30)
    for number in (52, 53):
        daemon.start(f"idle-{number}", success("y" * 5000))
        daemon.finished(f"idle-{number}")
    answer = daemon.ok("status")
    names = [one["name"] for one in answer.content["subagents"]]
    assert names[:3] == ["first", "idle-53", "idle-52"]
    assert 20 <= len(names) <= 50, "at most 50, and as many as a client shows"
    assert len(names) + answer.content["more"] == 55
    texts = [one["last_turn"]["text"] for one in answer.content["subagents"][1:]]
    assert max(len(text) for text in texts) <= 201
    assert answer.content["subagents"][1]["last_turn"]["text_length"] == 5000
    daemon.open_gate("go")


MCP = {"mcp_servers.docs": {"url": "http://127.0.0.1:9/mcp", "available_to_subagents": True}}
PROBLEMS = [
    pytest.param([{"name": "docs", "status": "failed"}], id="facts-9-server-down"),
    pytest.param([{"name": "docs", "status": "pending"}], id="facts-9-pending-case-H8"),
    pytest.param([], id="facts-9-dropped-silently-case-H3"),
    pytest.param(
        [{"name": "docs", "status": "connected"}, {"name": "foreign", "status": "connected"}],
        id="a-server-nobody-declared",
    ),
]


@pytest.fixture(scope="module")
def daemon_with_servers(tmp_path_factory: pytest.TempPathFactory, claude_program: Path) -> Iterator[Daemon]:
    """Run a daemon with one opted-in MCP server."""
    daemon = Daemon(tmp_path_factory.mktemp("servers"), claude_program, Setting(tables=MCP)).boot()
    yield daemon
    daemon.shut()


@pytest.mark.parametrize("servers", PROBLEMS)
def test_servers_that_claude_reports_otherwise_than_declared_are_a_warning(
    daemon_with_servers: Daemon, name: str, servers: list[dict[str, str]]
) -> None:
    """While it runs, and in the loose end."""
    daemon = daemon_with_servers
    steps = [init(mcp_servers=servers), reach(f"{name}.up"), wait_for(f"{name}.go"), result()]
    daemon.start(name, steps)
    daemon.reached(f"{name}.up")
    wrong = "foreign" if len(servers) == 2 else "docs"
    eventually(lambda: wrong in str(daemon.status_of(name)["mcp_problems"]))
    daemon.open_gate(f"{name}.go")
    end = daemon.loose_end(name)
    assert end["outcome"] == "completed"
    assert any(wrong in warning for warning in end["warnings"])


def test_servers_that_are_connected_are_no_problem(daemon_with_servers: Daemon, name: str) -> None:
    """No warning without a reason."""
    assert daemon_with_servers.play(name, success())["warnings"] == []


def test_killed_and_failed_last_turns_are_told_apart(daemon: Daemon, name: str) -> None:
    """`killed` is cut off, `idle` ended on its own; both survive in `last_turn`."""
    daemon.play(name, [init(), exit_with(143)], [init(), exit_with(1)])
    killed = daemon.status_of(name)
    assert (killed["state"], killed["last_turn"]["signal"]) == ("killed", "SIGTERM")
    daemon.resume(name)
    failed = daemon.status_of(name)
    assert (failed["state"], failed["last_turn"]["outcome"]) == ("idle", "failed")
    assert {"id", "title"}.isdisjoint(failed["last_turn"]), "an outcome object has neither id nor title"
