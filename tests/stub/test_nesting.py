"""Subagents of subagents: known as the turn that they call from, not too deep, and gone with it by force."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import Step, ask, assistant, call, forever, held, init, reach, result, success
from tests.support.daemon_harness import Daemon, Setting
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon

OWN_ENTRY = {"subagent": {"url": "http://127.0.0.1:7310/mcp", "available_to_subagents": True}}


@pytest.fixture
def nesting(make_daemon: MakeDaemon) -> Daemon:
    """Run a daemon whose subagents may start subagents, which may not."""
    return deep(make_daemon, 2)


def deep(make_daemon: MakeDaemon, depth: int) -> Daemon:
    """Run a daemon that lets turns be nested so deep."""
    setting = Setting(limits={"max_depth": depth}, tables={"mcp_servers": OWN_ENTRY})
    return make_daemon(setting).boot()


def starting(daemon: Daemon, name: str, *after: Step) -> list[Step]:
    """Play a turn that starts a subagent of this name, then goes on."""
    begin = ask(
        daemon.port, f"{name}.started", "start", name=name, prompt_file=str(daemon.work / "recipe.md")
    )
    return [init(), assistant("delegating", stop_reason=None), begin, *after]


def said(daemon: Daemon, mark: str) -> dict[str, Any]:
    """Return what a tool answered inside a turn."""
    daemon.reached(mark)
    answer: dict[str, Any] = json.loads((daemon.scripts / mark).read_text())
    return answer


def test_a_nested_subagent_is_known_by_its_parent_and_its_depth(nesting: Daemon) -> None:
    nesting.script("inner", held("inner.go"))
    outer = nesting.start("outer", starting(nesting, "inner", reach("outer.up"), forever())).content
    nesting.reached("outer.up")
    assert said(nesting, "inner.started")["structuredContent"]["state"] == "running"
    inner = nesting.status_of("inner")
    assert (inner["parent"], inner["depth"]) == ("outer", 2)
    assert (nesting.status_of("outer")["parent"], nesting.status_of("outer")["depth"]) == (None, 1)
    status = nesting.ok("status")
    assert [one["name"] for one in status.content["subagents"]] == ["outer", "inner"]
    assert "\n  └ inner: running" in status.text
    nesting.open_gate("inner.go")
    end = nesting.loose_end("inner")
    assert (end["parent"], end["depth"], end["outcome"]) == ("outer", 2, "completed")
    assert nesting.status_of("outer")["turn"] == outer["turn"]


def test_what_would_be_too_deep_is_refused_in_words(nesting: Daemon) -> None:
    nesting.script("third", success())
    nesting.script("inner", starting(nesting, "third", result()))
    nesting.play("outer", starting(nesting, "inner", reach("x"), result()))
    nesting.loose_end("inner")
    refused = said(nesting, "third.started")
    assert refused["isError"] is True
    assert "max_depth is 2, and this subagent is at depth 2" in refused["content"][0]["text"]
    assert nesting.status_of("third")["state"] == "unknown"


def test_by_default_one_that_may_call_may_not_start(make_daemon: MakeDaemon) -> None:
    daemon = deep(make_daemon, 1)
    daemon.play("outer", starting(daemon, "inner", result()))
    assert "max_depth is 1" in said(daemon, "inner.started")["content"][0]["text"]
    warnings = daemon.ok("status").content["warnings"]
    assert [warning for warning in warnings if "set limits.max_depth = 2" in warning]


def test_a_forced_interrupt_takes_the_nested_ones_along(make_daemon: MakeDaemon) -> None:
    daemon = deep(make_daemon, 3)
    daemon.script("third", [init(), reach("third.up"), forever()])
    daemon.script("inner", starting(daemon, "third", forever()))
    daemon.start("other", [init(), forever()])
    daemon.start("outer", starting(daemon, "inner", forever()))
    daemon.reached("third.up")
    pids = daemon.processes()
    assert daemon.ok("interrupt", name="outer", force=True).content["ended"] is True
    for name in ("outer", "inner", "third"):
        end = daemon.loose_end(name)
        assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "forced interrupt", "SIGKILL")
    assert len([pid for pid in pids if is_alive(pid)]) == 1, "only the other one lives"
    assert daemon.status_of("other")["state"] == "running"


def test_a_forced_interrupt_reaches_those_whose_own_parent_has_ended(make_daemon: MakeDaemon) -> None:
    daemon = deep(make_daemon, 3)
    daemon.script("third", [init(), reach("third.up"), forever()])
    daemon.script("inner", starting(daemon, "third", result("started it")))
    daemon.start("outer", starting(daemon, "inner", forever()))
    daemon.reached("third.up")
    daemon.loose_end("inner")
    daemon.finished("inner")
    daemon.ok("interrupt", name="outer", force=True)
    assert daemon.loose_end("third")["cause"] == "forced interrupt"
    eventually(lambda: not daemon.processes(), what="no process left")


def test_a_turn_that_ends_tells_what_it_has_left_running(nesting: Daemon) -> None:
    nesting.script("inner", held("inner.go"))
    end = nesting.play("outer", starting(nesting, "inner", result("done")))
    assert end["outcome"] == "completed"
    assert [warning for warning in end["warnings"] if "run on: inner" in warning]
    assert nesting.status_of("inner")["state"] == "running"
    nesting.open_gate("inner.go")
    assert nesting.loose_end("inner")["outcome"] == "completed"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("interrupt", {"name": "other", "force": True}),
        ("interrupt", {"name": "outer"}),
        ("continue", {"name": "idle", "prompt": "go on"}),
        ("status", {"name": "other"}),
        ("wait", {"names": ["other"]}),
        ("get_loose_ends", {"name": "idle"}),
    ],
)
def test_what_others_have_started_is_not_for_a_subagent(
    nesting: Daemon, tool: str, arguments: dict[str, Any]
) -> None:
    nesting.play("idle", success())
    nesting.start("other", held("other.go"))
    nesting.play("outer", [init(), ask(nesting.port, "answer", tool, **arguments), result()])
    answer = said(nesting, "answer")
    assert answer["isError"] is True
    assert "is not a subagent of yours" in answer["content"][0]["text"]
    assert nesting.status_of("other")["state"] == "running"
    nesting.open_gate("other.go")


def test_a_subagent_reads_and_closes_only_loose_ends_of_its_own(nesting: Daemon) -> None:
    foreign = nesting.play("idle", success())["id"]
    nesting.script("inner", success("inner text"))
    port = nesting.port
    steps = [
        ask(port, "waited", "wait", names=["inner"], timeout_seconds=10),
        ask(port, "read", "get_loose_ends"),
        ask(port, "closed", "close_loose_ends", ids=[foreign]),
        ask(port, "listed", "status"),
        result(),
    ]
    nesting.play("outer", starting(nesting, "inner", *steps))
    assert said(nesting, "waited")["structuredContent"]["ended"] == ["inner"]
    [end] = said(nesting, "read")["structuredContent"]["loose_ends"]
    assert (end["name"], end["text"]) == ("inner", "inner text")
    assert said(nesting, "closed")["structuredContent"] == {"closed": [], "unknown": [foreign]}
    assert [one["name"] for one in said(nesting, "listed")["structuredContent"]["subagents"]] == ["inner"]
    open_ids = {end["id"] for end in nesting.ok("get_loose_ends", limit=100).content["loose_ends"]}
    assert {foreign, end["id"]} <= open_ids, "the parent sees them all"


def test_a_restart_keeps_who_belongs_to_whom(nesting: Daemon) -> None:
    nesting.script("inner", [init(), reach("inner.up"), forever()])
    nesting.start("outer", starting(nesting, "inner", forever()))
    nesting.reached("inner.up")
    nesting.kill()
    nesting.boot()
    end = nesting.loose_end("inner")
    assert (end["parent"], end["depth"], end["cause"]) == ("outer", 2, "daemon stopped")
    eventually(lambda: nesting.status_of("inner")["state"] == "killed")


@pytest.mark.parametrize("path", ["/", "/metrics", "/notices?session=s"])
def test_only_the_tools_are_open_to_turns(nesting: Daemon, path: str) -> None:
    nesting.play("outer", [init(), call(nesting.port, "answer", path), result()])
    nesting.reached("answer")
    assert " 403" in (nesting.scripts / "answer").read_text()


def test_a_subagent_is_let_in_where_that_is_configured(nesting: Daemon) -> None:
    nesting.play("outer", [init(), call(nesting.port, "answer"), result()])
    nesting.reached("answer")
    assert "403" not in (nesting.scripts / "answer").read_text()
