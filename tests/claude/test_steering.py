"""A running turn is handed further messages, is stopped through its input, and ends when all is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from tests.claude.real_daemon import MakeDaemon, RealDaemon
    from tests.support.offline_model import OfflineModel

WAITS = "touch began; until [ -e go ]; do sleep 0.1; done"
MARKER = "[Request interrupted by user"
LARGE_BYTES = 9_900_000


def begun(daemon: RealDaemon, prompt: str, *, name: str = "worker") -> str:
    """Start a steerable subagent and return the turn."""
    turn: str = daemon.begin(name, prompt, steerable=True)["turn"]
    return turn


def in_command(daemon: RealDaemon) -> None:
    """Wait until the command runs and the daemon has seen it."""
    eventually((daemon.work / "began").exists, within=60, what="the command running")
    daemon.does("worker", "tool", tool="Bash")


def unread(daemon: RealDaemon, name: str = "worker") -> int:
    """Return how many messages claude has not read."""
    count: int = daemon.status_of(name)["unread_messages"]
    return count


def in_transcript(daemon: RealDaemon, end: dict[str, Any], text: str) -> bool:
    """Tell whether a session has a text on disk."""
    return text in daemon.transcript(end["session_id"]).read_text()


def test_a_message_in_the_middle_of_a_command_is_read_with_its_result(
    daemon: RealDaemon, model: OfflineModel, claude_version: tuple[int, ...]
) -> None:
    (daemon.work / "recipe.md").write_text("[[say: done and heard]]\n")
    turn = begun(daemon, f"[[bash: {WAITS}]] [[say: done]]")
    in_command(daemon)
    answer = daemon.ok("steer", name="worker", text="the word is basalt")
    assert answer.seconds < 2
    assert answer.content == {"name": "worker", "turn": turn, "sent": True, "unread_messages": 1}
    assert unread(daemon) == 1
    assert model.requests_about("basalt") == []
    (daemon.work / "go").touch()
    end = daemon.loose_end("worker", turn=turn)
    assert (end["outcome"], end["warnings"]) == ("completed", [])
    assert end["text"].startswith("done")
    assert model.requests_about("basalt") != []
    again = daemon.continued("worker", "[[recall: basalt]]")["text"]
    # 2.1.150 does not keep in its session what it read with the result of a tool.
    assert again.endswith("conversation: yes") or claude_version < (2, 1, 197)


def test_a_message_in_the_middle_of_the_last_answer_begins_a_further_round_of_the_same_turn(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    turn = begun(daemon, "[[hold: report]] [[say: the report]]")
    model.wait_for_request("[[hold: report]]", limit_seconds=60)
    daemon.ok("steer", name="worker", text="one more thing [[say: the addition]]")
    model.release("report")
    end = daemon.loose_end("worker", turn=turn)
    assert end["outcome"] == "completed", end
    assert end["text"] == "the addition\n\nBefore that, in the same turn:\n\nthe report"
    assert end["warnings"] == []


def test_several_messages_are_all_read_in_their_order(daemon: RealDaemon, model: OfflineModel) -> None:
    (daemon.work / "recipe.md").write_text("[[say: heard]]\n")
    turn = begun(daemon, "[[hold: report]] [[say: the report]]")
    model.wait_for_request("[[hold: report]]", limit_seconds=60)
    words = [f"word-{number}" for number in range(5)]
    for number, word in enumerate(words):
        answer = daemon.ok("steer", name="worker", text=f"/{word}\u2028é\n")
        assert answer.content["unread_messages"] == number + 1
    model.release("report")
    assert daemon.loose_end("worker", turn=turn)["warnings"] == []
    read = json.dumps(model.requests_about(words[-1])[-1])
    assert [read.index(f"/{word}") for word in words] == sorted(read.index(f"/{word}") for word in words)


def test_a_message_that_comes_with_the_end_is_answered_or_refused(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    daemon.completed("worker", "[[say: noted]]")
    told = {"answered": 0, "refused": 0}
    for number in range(20):
        prompt = f"[[hold: {number}]] [[say: report {number}]]"
        turn = daemon.ok("continue", name="worker", prompt=prompt, steerable=True).content["turn"]
        model.wait_for_request(f"[[hold: {number}]]", limit_seconds=60)
        model.release(str(number))
        if number % 2:
            daemon.wrote_down(f'"text":"report {number}"')
        answer = daemon.call("steer", name="worker", text=f"message {number} [[say: answer {number}]]")
        end = daemon.loose_end("worker", turn=turn)
        heard = f"answer {number}" in end["text"]
        assert heard is not answer.is_error, (answer.text, end)
        assert (end["outcome"], end["warnings"]) == ("completed", []), end
        assert f"report {number}" in end["text"]
        told["refused" if answer.is_error else "answered"] += 1
    print("messages at the end of a turn:", told)


@pytest.mark.parametrize("prompt", ["[[silent]]", "[[status: 529]]", "[[stall: half an]]"])
def test_a_soft_interrupt_leaves_a_marker_in_the_session(
    daemon: RealDaemon, model: OfflineModel, prompt: str
) -> None:
    names = [f"worker-{number}" for number in range(7)]
    for name in names:
        turn = begun(daemon, f"{name} the word is basalt {prompt}", name=name)
        model.wait_for_request(name, limit_seconds=60)
        daemon.does(name, "retry" if "status" in prompt else "model")
        answer = daemon.ok("interrupt", name=name)
        assert answer.seconds < 5
        assert answer.content["ended"] is True
        end = daemon.loose_end(name, turn=turn)
        assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt"), end
        assert in_transcript(daemon, end, MARKER)
    assert daemon.continued(names[0], "[[recall: basalt]]")["text"].endswith("conversation: yes")


def test_a_message_that_was_not_read_when_the_turn_is_interrupted_is_told_and_not_carried_out(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    turn = begun(daemon, f"[[bash: {WAITS}]] [[say: done]]")
    in_command(daemon)
    daemon.ok("steer", name="worker", text="basalt [[bash: touch carried-out]]")
    daemon.ok("interrupt", name="worker")
    end = daemon.loose_end("worker", turn=turn)
    assert (end["outcome"], end["cause"]) == ("killed", "interrupt")
    assert any("had not been read" in warning for warning in end["warnings"])
    assert in_transcript(daemon, end, MARKER)
    assert model.requests_about("basalt") == []
    assert not (daemon.work / "carried-out").exists()
    assert "nothing runs" in daemon.refused("steer", name="worker", text="too late")


def test_a_prompt_of_almost_ten_megabytes_is_read_whole(daemon: RealDaemon, model: OfflineModel) -> None:
    daemon.completed("worker", "[[say: noted]]")
    filling = "0123456789abcde\n" * (LARGE_BYTES // 16)
    prompt = f"/basalt\n{filling}[[say: read to the end]]"
    turn = daemon.ok("continue", name="worker", prompt=prompt, steerable=True).content["turn"]
    daemon.loose_end("worker", turn=turn)  # newer versions find it too long for the model
    if seen := model.requests_about("basalt"):
        assert "[[say: read to the end]]" in json.dumps(seen[0])


@pytest.mark.parametrize("bound", [{"max_turns": 1}, {"max_budget_usd": 0.000001}])
def test_a_turn_ends_at_its_bounds(daemon: RealDaemon, bound: dict[str, float]) -> None:
    answer = daemon.begin("worker", "[[bash: echo 1]] [[bash: echo 2]]", steerable=True, **bound)
    end = daemon.loose_end("worker", turn=answer["turn"])
    assert (end["outcome"], end["error_class"]) == ("failed", "turns" if "max_turns" in bound else "budget")


def test_a_prompt_that_a_hook_of_the_users_refuses_is_waited_for_by_nobody(
    make_daemon: MakeDaemon, claude_version: tuple[int, ...]
) -> None:
    """2.1.150 ends such a round without a word, so that it takes the grace."""
    says_so = claude_version >= (2, 1, 197)
    daemon = make_daemon(limits={"exit_grace_seconds": 600 if says_so else 1}).boot()
    hook = {"type": "command", "command": "echo not this >&2; exit 2"}
    (daemon.work / ".claude").mkdir()
    settings = {"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}
    (daemon.work / ".claude" / "settings.json").write_text(json.dumps(settings))
    turn = begun(daemon, "the word is basalt")
    assert ("not this" in daemon.loose_end("worker", turn=turn)["text"]) is says_so


def test_the_daemons_death_lets_the_round_finish(daemon: RealDaemon, model: OfflineModel) -> None:
    answer = daemon.begin("worker", "the word is basalt [[hold: end]] [[say: to the end]]", steerable=True)
    model.wait_for_request("[[hold: end]]", limit_seconds=60)
    daemon.ok("steer", name="worker", text="and granite [[say: granite too]]")
    daemon.kill()
    model.release("end")
    eventually(lambda: not is_alive(answer["pid"]), within=60, what="claude ending by itself")
    daemon.boot()
    end = daemon.loose_end("worker", turn=answer["turn"])
    assert end["outcome"] == "completed", end
    assert ("granite too" in end["text"], "to the end" in end["text"]) == (True, True)
    assert end["warnings"] == []
    assert daemon.continued("worker", "[[recall: basalt]]")["text"].endswith("conversation: yes")


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_an_adopted_turn_ends_by_itself_and_takes_no_more_messages(
    make_daemon: MakeDaemon, model: OfflineModel, way: str
) -> None:
    daemon = make_daemon(top={"on_restart": "adopt"}).boot()
    turn = begun(daemon, "[[hold: end]] [[say: to the end]]")
    model.wait_for_request("[[hold: end]]", limit_seconds=60)
    daemon.stop() if way == "stop" else daemon.kill()
    daemon.boot()
    shown = daemon.status_of("worker")
    assert (shown["state"], shown["turn"], shown["steerable"]) == ("running", turn, False)
    assert "a daemon that has ended" in daemon.refused("steer", name="worker", text="hello")
    model.release("end")
    end = daemon.loose_end("worker", turn=turn)
    assert (end["outcome"], end["text"], end["warnings"]) == ("completed", "to the end", [])
