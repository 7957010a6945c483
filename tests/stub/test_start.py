"""The tool `start`: what it answers, what it gives to claude, and what it refuses."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import assistant, dump, endless, held, init, result, success, wait_for
from tests.support.daemon_harness import Setting
from tests.support.processes import is_alive

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon


def test_start_answers_while_the_turn_still_runs(daemon: Daemon, name: str) -> None:
    """The answer has the agreed shape, comes at once, and the process it names is claude itself."""
    answer = daemon.start(name, [dump(f"{name}.dump"), *held(f"{name}.go")])
    seen = daemon.seen(f"{name}.dump")
    content = answer.content
    assert content["name"] == name
    assert content["state"] == "running"
    assert content["turn"] == seen["environment"]["HIVE_SUBAGENT_TURN"]
    assert content["pid"] == seen["pid"]
    assert is_alive(content["pid"])
    assert content["session_id"] == seen["flags"]["--session-id"] == str(uuid.UUID(content["session_id"]))
    assert content["dir"] == seen["cwd"] == str(daemon.work)
    assert content["scope"] is None
    assert answer.seconds < 2
    assert answer.text.strip()
    daemon.open_gate(f"{name}.go")
    assert daemon.loose_end(name)["outcome"] == "completed"


@about("case-A3", "facts-1-command-line", "case-H7")
def test_the_command_line_is_the_agreed_one(daemon: Daemon, name: str) -> None:
    """Stream-json, no questions, no foreign MCP servers."""
    daemon.play(name, [dump(f"{name}.dump"), *success()], model="opus[1m]")
    seen = daemon.seen(f"{name}.dump")
    flags = seen["flags"]
    fixed = {"--print", "--verbose", "--dangerously-skip-permissions", "--strict-mcp-config"}
    assert fixed <= set(flags)
    assert flags["--output-format"] == "stream-json"
    assert (flags["--name"], flags["--model"]) == (name, "opus[1m]")
    assert "--resume" not in flags
    assert "--mcp-config" not in flags, "case H7: none opted in means no MCP configuration at all"


@about("case-F11", "facts-6-dash")
def test_a_name_that_begins_with_a_dash_reaches_claude_as_a_name(own_daemon: Daemon) -> None:
    """`-p` is a name like any other."""
    own_daemon.play("-p", [dump("dash.dump"), *success()])
    seen = own_daemon.seen("dash.dump")
    assert "--name=-p" in seen["argv"]
    assert own_daemon.resume("-p")["outcome"] == "completed"


@about("case-F11", "facts-6-uuid-title")
@pytest.mark.parametrize(
    "bad",
    ["", "--model=x", "../x", "a" * 64, "A", "a b", "a\n", "é", "a/b", ".", "a_b", str(uuid.UUID(int=7))],
)
@pytest.mark.parametrize("tool", ["start", "continue", "interrupt", "status", "get_loose_ends"])
def test_a_name_that_is_none_is_refused_by_every_tool(daemon: Daemon, tool: str, bad: str) -> None:
    """Nothing is spawned, and the refusal speaks of the name."""
    before = daemon.turn_folders()
    needed = {"start": {"prompt_file": str(daemon.work / "recipe.md")}, "continue": {"prompt": "x"}}
    assert "name" in daemon.refused(tool, name=bad, **needed.get(tool, {}))
    assert daemon.turn_folders() == before


@about("decision-1")
@pytest.mark.parametrize(
    ("tool", "arguments", "argument"),
    [
        ("start", {"prompt_file": "recipe.md"}, "name"),
        ("start", {"name": "x"}, "prompt_file"),
        ("start", {"name": "x", "prompt_file": 7}, "prompt_file"),
        ("start", {"name": "x", "prompt_file": "recipe.md", "modle": "opus"}, "modle"),
        ("start", {"name": "x", "prompt_file": "recipe.md", "model": 4}, "model"),
        ("start", {"name": "x", "prompt_file": "recipe.md", "dir": ["/"]}, "dir"),
        ("continue", {"name": "x"}, "prompt"),
        ("continue", {"name": "x", "prompt": None}, "prompt"),
        ("interrupt", {"name": "x", "force": "yes"}, "force"),
        ("interrupt", {"name": "x", "force": 1}, "force"),
        ("status", {"nam": "x"}, "nam"),
        ("get_loose_ends", {"limit": "10"}, "limit"),
        ("get_loose_ends", {"limit": -1}, "limit"),
        ("get_loose_ends", {"ids": "a"}, "ids"),
        ("close_loose_ends", {}, "ids"),
        ("close_loose_ends", {"ids": [1]}, "ids"),
    ],
)
def test_bad_arguments_are_refused_and_named(
    daemon: Daemon, tool: str, arguments: dict[str, object], argument: str
) -> None:
    """Unknown arguments, wrong types and missing ones are refusals, not protocol errors."""
    before = daemon.turn_folders()
    assert argument in daemon.refused(tool, **arguments)
    assert daemon.turn_folders() == before


@about("case-B6")
def test_a_name_is_refused_while_its_turn_runs(daemon: Daemon, name: str) -> None:
    """The refusal says since when it runs and how old its last output is."""
    first = daemon.start(name, held(f"{name}.go")).content
    text = daemon.refused("start", name=name, prompt_file=str(daemon.work / "recipe.md"))
    assert name in text
    assert "running" in text or "runs" in text
    assert any(unit in text for unit in ("s ago", "second", " s"))
    assert daemon.status_of(name)["turn"] == first["turn"]
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name)
    assert daemon.play(name, success("again"))["text"] == "again"


@about("case-G6", "facts-5-open-stdin-waits")
def test_a_trigger_is_the_first_prompt_word_for_word(daemon: Daemon, name: str) -> None:
    """It goes to stdin, which then ends."""
    text = "  do it:\r\n\u00e9\u4e16 --help ! ls #memory @/etc/hostname \u200b"
    daemon.play(name, [dump(f"{name}.dump"), *success()], trigger=text)
    assert daemon.seen(f"{name}.dump")["stdin"] == text


def test_without_a_trigger_one_generic_sentence_is_the_prompt(daemon: Daemon, name: str) -> None:
    """The subagent is told to carry out its instructions."""
    daemon.play(name, [dump(f"{name}.dump"), *success()])
    prompt = daemon.seen(f"{name}.dump")["stdin"]
    assert "instructions" in prompt
    assert not prompt.startswith("/")


@about("decision-9", "facts-10-resume-loses-1m")
def test_the_model_is_remembered_until_another_or_none_is_given(daemon: Daemon, name: str) -> None:
    """An explicit model is passed again on later turns; an empty one forgets it."""
    turns = [[dump(f"{name}.{number}"), *success()] for number in range(5)]
    daemon.play(name, *turns, model="sonnet[1m]")
    daemon.resume(name)
    daemon.resume(name, model="haiku")
    daemon.resume(name)
    daemon.resume(name, model="")
    models = [daemon.seen(f"{name}.{number}")["flags"].get("--model") for number in range(5)]
    assert models == ["sonnet[1m]", "sonnet[1m]", "haiku", "haiku", None]


def test_a_relative_prompt_file_is_taken_from_the_directory(daemon: Daemon, name: str) -> None:
    """And a relative directory from the configured one."""
    sub = daemon.work / "sub"
    sub.mkdir()
    (sub / "own.md").write_text("own recipe")
    daemon.play(name, [dump(f"{name}.dump"), *success()], prompt_file="own.md", dir="sub")
    seen = daemon.seen(f"{name}.dump")
    assert seen["cwd"] == str(sub)
    assert seen["prompt_file"]["text"] == "own recipe"


@about("facts-10-not-persisted")
def test_the_daemon_keeps_its_own_copy_of_the_prompt_file(daemon: Daemon, name: str) -> None:
    """Claude does not remember it, so it is passed again, as it was at the start."""
    recipe = daemon.work / f"{name}.md"
    recipe.write_text("the first recipe")
    turns = [[dump(f"{name}.{number}"), *success()] for number in range(2)]
    daemon.play(name, *turns, prompt_file=str(recipe))
    recipe.unlink()
    daemon.resume(name)
    seen = [daemon.seen(f"{name}.{number}")["prompt_file"] for number in range(2)]
    assert [one["text"] for one in seen] == ["the first recipe"] * 2
    assert seen[1]["mode"] == "0600"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="facts-10-empty"),
        pytest.param(b"\xff\xfe not utf-8 \x00", id="facts-10-not-utf-8"),
        pytest.param(b"x" * 300 * 1024, id="case-G4-300-KiB"),
        pytest.param(b"x" * 8 * 1024 * 1024, id="case-G4-8-MiB"),
        pytest.param(b"x" * 10_000_000, id="case-G5-exactly-the-limit"),
    ],
)
def test_a_prompt_file_of_any_content_up_to_the_limit_reaches_claude(
    daemon: Daemon, name: str, content: bytes
) -> None:
    """It is a file all the way, so that no argument limit is met."""
    recipe = daemon.work / f"{name}.md"
    recipe.write_bytes(content)
    daemon.play(name, [dump(f"{name}.dump"), *success()], prompt_file=str(recipe))
    assert daemon.seen(f"{name}.dump")["prompt_file"]["bytes"] == len(content)


def test_a_symlink_to_a_prompt_file_is_followed(daemon: Daemon, name: str) -> None:
    """What counts is what it leads to."""
    link = daemon.work / f"{name}.md"
    link.symlink_to(daemon.work / "recipe.md")
    assert daemon.play(name, success(), prompt_file=str(link))["outcome"] == "completed"


@about("decision-17", "case-J1")
def test_max_running_refuses_and_says_what_runs(make_daemon: MakeDaemon) -> None:
    """The cap holds for `start` and `continue`; a free place is used again."""
    capped = make_daemon(Setting(limits={"max_running": 2})).boot()
    capped.play("third", success())
    capped.start("first", endless())
    capped.start("second", held("second.go"))
    recipe = str(capped.work / "recipe.md")
    for text in (
        capped.refused("start", name="third", prompt_file=recipe),
        capped.refused("continue", name="third", prompt="x"),
    ):
        assert "max_running" in text
        assert all(word in text for word in ("2", "first", "second"))
    capped.open_gate("second.go")
    capped.loose_end("second")
    assert capped.resume("third")["outcome"] == "completed"


@about("facts-6-folders")
def test_the_working_directory_is_the_configured_one_by_default(daemon: Daemon, name: str) -> None:
    """Symlinks in `dir` lead to the real place, where claude keeps its sessions."""
    link = daemon.work.parent / f"link-{name}"
    link.symlink_to(daemon.work)
    daemon.play(name, [dump(f"{name}.dump"), *success()], dir=str(link))
    assert Path(daemon.seen(f"{name}.dump")["cwd"]) == daemon.work.resolve()
    assert daemon.resume(name)["outcome"] == "completed"


@about("case-I2")
def test_a_turn_may_outlive_many_answers(daemon: Daemon, name: str) -> None:
    """No tool waits for a turn."""
    daemon.start(name, [init(), assistant("x"), wait_for(f"{name}.go"), result("late")])
    assert max(daemon.ok("status").seconds for _ in range(5)) < 2
    daemon.open_gate(f"{name}.go")
    assert daemon.loose_end(name)["text"] == "late"
