"""The main job: a subagent is started, works, is told about, and is continued where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.claude.real_daemon import MakeDaemon, RealDaemon
    from tests.support.offline_model import OfflineModel

MEGABYTE = 1_000_000


@pytest.mark.shows("facts-2-a-success")
def test_a_turn_with_a_tool_call_is_told_with_text_cost_and_rounds(
    daemon: RealDaemon, claude_version: tuple[int, ...]
) -> None:
    answer = daemon.begin("worker", "[[bash: echo written > file; echo printed by bash]]")
    end = daemon.loose_end("worker")
    assert end["outcome"] == "completed", end
    assert (daemon.work / "file").read_text() == "written\n"
    assert end["text"].endswith("printed by bash")
    assert end["text_length"] == len(end["text"])
    assert (end["rounds"], end["warnings"], end["error"]) == (2, [], None)
    assert end["cost_usd"] > 0
    assert end["duration_seconds"] > 0
    assert end["model"].startswith("claude-")
    assert (end["session_id"], end["dir"]) == (answer["session_id"], str(daemon.work))
    assert daemon.transcript(answer["session_id"]).stat().st_size > 0
    assert daemon.status_of("worker")["state"] == "idle"
    assert daemon.ok("status").content["claude_version"] == ".".join(str(part) for part in claude_version)


def test_status_tells_what_a_running_turn_does(daemon: RealDaemon, model: OfflineModel) -> None:
    daemon.begin("worker", "[[hold: go]] [[bash: until [ -e go ]; do sleep 0.1; done]] [[say: done]]")
    daemon.does("worker", "model")
    model.release("go")
    daemon.does("worker", "tool", tool="Bash")
    shown = daemon.status_of("worker")
    assert shown["state"] == "running"
    assert shown["model"].startswith("claude-")
    assert shown["memory_bytes"] > 50 * MEGABYTE
    assert 0 <= shown["age_seconds"] <= shown["running_seconds"]
    assert shown["mcp_problems"] == []
    (daemon.work / "go").touch()
    assert daemon.loose_end("worker")["text"] == "done"


@pytest.mark.shows("facts-6-resume-by-id")
def test_a_continued_session_knows_what_was_said_before(daemon: RealDaemon) -> None:
    first = daemon.completed("worker", "the word is basalt [[say: noted]]")
    second = daemon.continued("worker", "[[recall: basalt]]")
    assert second["text"] == "system prompt: no, conversation: yes"
    assert second["session_id"] == first["session_id"]
    assert daemon.continued("worker", "[[recall: granite]]")["text"].endswith("conversation: no")
    assert len(daemon.transcripts()) == 1


@pytest.mark.shows("facts-10-not-persisted")
def test_the_instructions_are_there_again_on_continue_though_their_file_is_gone(daemon: RealDaemon) -> None:
    recipe = daemon.work / "instructions.md"
    recipe.write_text("Always mention feldspar.\n")
    daemon.completed("worker", "[[say: noted]]", prompt_file=str(recipe))
    recipe.unlink()
    assert (
        daemon.continued("worker", "[[recall: feldspar]]")["text"] == "system prompt: yes, conversation: no"
    )


@pytest.mark.shows("facts-10-a-megabyte-of-instructions")
def test_instructions_of_a_megabyte_arrive_whole(daemon: RealDaemon) -> None:
    recipe = daemon.work / "instructions.md"
    recipe.write_text(
        "Beginning with feldspar.\n" + "x" * 79 + "\n" + "words " * (MEGABYTE // 6) + "\nquartz"
    )
    end = daemon.completed("worker", "[[recall: quartz]]", prompt_file=str(recipe))
    assert end["text"].startswith("system prompt: yes")
    assert daemon.continued("worker", "[[recall: feldspar]]")["text"].startswith("system prompt: yes")


@pytest.mark.shows("facts-10-a-resume-keeps-the-model-but-loses-its-window")
def test_an_explicit_model_is_used_again_until_another_is_given(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    def asked(mark: str) -> tuple[str, bool]:
        [received] = [r for r in model.received if r.is_turn and mark in str(r.body)][-1:]
        assert received.body is not None
        return received.body["model"], "context-1m" in received.headers.get("anthropic-beta", "")

    daemon.completed("worker", "[[say: one]]", model="sonnet[1m]")
    first = asked("[[say: one]]")
    assert "sonnet" in first[0]
    daemon.continued("worker", "[[say: two]]")
    assert asked("[[say: two]]") == first
    assert "haiku" in daemon.continued("worker", "[[say: three]]", model="haiku")["model"]
    daemon.continued("worker", "[[say: four]]")
    assert "haiku" in asked("[[say: four]]")[0]


@pytest.mark.shows("facts-10-model")
def test_an_empty_model_is_the_default_of_claude(daemon: RealDaemon, model: OfflineModel) -> None:
    end = daemon.completed("worker", "[[say: one]]", model="")
    assert end["model"].startswith("claude-")
    assert model.requests_about("[[say: one]]")[-1]["model"].startswith("claude-")


@pytest.mark.shows("facts-11", "case-F9")
def test_a_daemon_inside_another_claude_still_gives_sessions_that_last(make_daemon: MakeDaemon) -> None:
    marks = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_CHILD_SESSION": "1",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-cli",
        "CLAUDE_CODE_SESSION_ID": "11111111-2222-4333-8444-555555555555",
        "CLAUDE_EFFORT": "low",
        "AI_AGENT": "outer",
        "ANTHROPIC_MODEL": "no-such-model",
    }
    daemon = make_daemon(outer=marks).boot()
    end = daemon.completed(
        "worker", "[[bash: echo agent=$AI_AGENT turn=$HIVE_SUBAGENT_TURN model=$ANTHROPIC_MODEL]]"
    )
    assert "agent=outer" not in end["text"]
    assert f"turn={end['turn']}" in end["text"]
    assert end["text"].endswith("model=")
    assert daemon.continued("worker", "[[recall: HIVE_SUBAGENT_TURN]]")["text"].endswith("conversation: yes")


def test_an_idle_subagent_has_no_process(daemon: RealDaemon) -> None:
    for name in ("one", "two"):
        daemon.completed(name, "[[say: done]]")
    eventually(lambda: not daemon.at_home(), what="no process of an idle subagent")
