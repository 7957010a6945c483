"""A prompt reaches the model as the text that it is, whatever it begins with and however large it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.claude.real_daemon import RealDaemon
    from tests.support.offline_model import OfflineModel

LARGE_BYTES = 9_900_000
COMMANDS = ("/clear", "/compact", "/nosuch of this name")
ODD = (
    *("/help", "/tmp/folder is a path", "\ufeff/context", "\n/usage", "-x --help", "--version"),
    *("! ls", "#memory", "quit", "@/etc/hostname", "NUL \0 é\r\nand more"),
)


def prompts_seen(model: OfflineModel) -> list[str]:
    """Return the texts of all messages of users that the model got, stripped."""
    messages = [m for body in model.requests for m in body["messages"] if m["role"] == "user"]
    contents = [m["content"] for m in messages]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    texts = [content for content in contents if isinstance(content, str)]
    return [text.strip() for text in [*texts, *(block.get("text", "") for block in blocks)]]


def answer_anything(daemon: RealDaemon) -> None:
    """Let the model answer every prompt that holds no directive."""
    (daemon.work / "recipe.md").write_text("[[say: read as text]]\n")


@pytest.mark.shows("facts-5-a-leading-slash", "case-G7")
def test_slash_prompts_reach_the_model_and_make_no_second_session(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    answer_anything(daemon)
    daemon.completed("worker", "/init")
    for command in COMMANDS:
        assert daemon.continued("worker", command)["text"] == "read as text"
    seen = prompts_seen(model)
    assert [command for command in ("/init", *COMMANDS) if command not in seen] == []
    assert len(daemon.transcripts()) == 1


@pytest.mark.shows("facts-5-plain-text")
def test_prompts_that_look_like_something_else_reach_the_model(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    answer_anything(daemon)
    turns = {f"worker-{n}": daemon.begin(f"worker-{n}", prompt)["turn"] for n, prompt in enumerate(ODD)}
    ends = [daemon.loose_end(name, turn=turn) for name, turn in turns.items()]
    assert {end["text"] for end in ends} == {"read as text"}
    seen = prompts_seen(model)
    assert [prompt for prompt in ODD if prompt.strip() not in seen] == []


@pytest.mark.shows("facts-5-9.9-MB")
def test_a_prompt_of_almost_ten_megabytes_reaches_the_model_whole(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    daemon.completed("worker", "[[say: noted]]")
    filling = "0123456789abcde\n" * (LARGE_BYTES // 16)
    daemon.continued("worker", f"basalt\n{filling}[[say: read to the end]]")
    # Older versions then compact the conversation by themselves and go on without it.
    body = json.dumps(model.requests_about("basalt")[0])
    assert len(body) > LARGE_BYTES
    assert "[[say: read to the end]]" in body


@pytest.mark.shows("case-F3")
@pytest.mark.parametrize("times", [6, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_a_tiny_answer_can_be_continued_at_once_again_and_again(daemon: RealDaemon, times: int) -> None:
    session = daemon.completed("worker", "[[say: answer 0]]")["session_id"]
    for number in range(1, times + 1):
        end = daemon.continued("worker", f"[[say: answer {number}]]")
        assert (end["text"], end["session_id"]) == (f"answer {number}", session)
        assert daemon.ok("close_loose_ends", ids=[end["id"]]).content["closed"] == [end["id"]]
    end = daemon.continued("worker", "[[recall: answer 1]]")
    assert end["text"].endswith("conversation: yes")
    assert len(daemon.transcripts()) == 1
