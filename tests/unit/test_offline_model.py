"""The offline model itself: what its directives do, and that it ends cleanly."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.claude_versions import REPOSITORY
from tests.support.offline_model import OfflineModel
from tests.support.offline_model_conversation import read_conversation
from tests.support.offline_model_replies import ErrorReply, TextReply, ToolReply
from tests.support.offline_model_script import DEFAULT_COMMAND, ScriptError, read_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.offline_model_replies import Json

LIMIT_SECONDS = 30.0
BASH: Json = {"name": "Bash", "input_schema": {"type": "object"}}


def turn(*messages: Json, system: str = "", stream: bool = False) -> Json:
    """Build the request of a turn."""
    return {
        "model": "claude-test",
        "system": [{"type": "text", "text": system}],
        "tools": [BASH],
        "messages": list(messages),
        "stream": stream,
    }


def user(*texts: str) -> Json:
    """Build a message of texts."""
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def called(command: str, printed: str) -> list[Json]:
    """Build the two messages of a Bash call and its result."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": printed}]}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def post(model: OfflineModel, body: Json, *, path: str = "/v1/messages?beta=true") -> tuple[int, Any]:
    """Send one request; return status and parsed answer, for a stream the list of its events."""
    request = urllib.request.Request(
        model.url + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            raw = answer.read().decode()
            kind = answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
    if kind == "text/event-stream":
        return 200, [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: ")]
    return 200, json.loads(raw)


def text_of(answer: tuple[int, Any]) -> str:
    """Return the text of a whole message."""
    status, message = answer
    assert status == 200
    return str(message["content"][0]["text"])


@pytest.fixture
def model() -> Iterator[OfflineModel]:
    """Serve for one test."""
    with OfflineModel() as served:
        yield served


def test_without_directives_it_calls_bash_once_and_then_gives_a_text(model: OfflineModel) -> None:
    _, first = post(model, turn(user("hello")))
    assert first["stop_reason"] == "tool_use"
    assert first["content"][0]["input"]["command"] == DEFAULT_COMMAND
    assert "forty-two" in text_of(post(model, turn(user("hello"), *called(DEFAULT_COMMAND, "forty-two"))))


def test_each_round_of_a_turn_takes_the_next_step(model: OfflineModel) -> None:
    prompt = user("[[bash: one]] then [[bash: two]] and [[say: the end]]")
    commands = []
    messages: list[Json] = [prompt]
    for _ in range(2):
        _, answer = post(model, turn(*messages))
        commands.append(answer["content"][0]["input"]["command"])
        messages += called(commands[-1], "ok")
    assert commands == ["one", "two"]
    assert text_of(post(model, turn(*messages))) == "the end"


def test_a_second_prompt_starts_its_own_script() -> None:
    body = turn(user("[[say: a]]"), {"role": "assistant", "content": "a"}, user("[[say: b]]"))
    conversation = read_conversation(body)
    assert (conversation.prompt, conversation.rounds) == ("[[say: b]]", 0)


def test_reminders_and_marks_of_an_interruption_are_no_prompts() -> None:
    content = ("[[echo]]", "<system-reminder>today</system-reminder>", "[Request interrupted by user]")
    assert read_conversation(turn(user(*content))).prompt == "[[echo]]"


def test_the_system_prompt_holds_the_script_when_the_prompt_has_none(model: OfflineModel) -> None:
    system = "Memories are linked as [[name]]. [[say: from the system prompt]]"
    assert text_of(post(model, turn(user("go"), system=system))) == "from the system prompt"
    assert text_of(post(model, turn(user("[[say: mine]]"), system=system))) == "mine"


def test_echo_gives_the_prompt_word_for_word(model: OfflineModel) -> None:
    assert text_of(post(model, turn(user(" /clear\n[[echo]] é")))) == " /clear\n[[echo]] é"


def test_recall_tells_the_system_prompt_from_the_conversation(model: OfflineModel) -> None:
    question = user("[[recall: blue]]")
    earlier = [user("my colour is blue"), {"role": "assistant", "content": "ok"}]
    assert text_of(post(model, turn(question))) == "system prompt: no, conversation: no"
    assert text_of(post(model, turn(question, system="blue"))) == "system prompt: yes, conversation: no"
    assert text_of(post(model, turn(*earlier, question))) == "system prompt: no, conversation: yes"


def test_a_streamed_answer_adds_up_to_the_whole_one(model: OfflineModel) -> None:
    _, events = post(model, turn(user("[[fill: 50000]]"), stream=True))
    assert [event["type"] for event in (events[0], events[-1])] == ["message_start", "message_stop"]
    pieces = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert (len(pieces), len("".join(pieces))) == (3, 50_000)


def test_a_streamed_tool_call_carries_its_arguments(model: OfflineModel) -> None:
    _, events = post(model, turn(user('[[tool: Read {"file_path": "x"}]]'), stream=True))
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == {"file_path": "x"}


@pytest.mark.parametrize(
    ("directive", "status", "kind"),
    [
        ("[[status: 401]]", 401, "authentication_error"),
        ("[[status: 403]]", 403, "permission_error"),
        ("[[status: 429]]", 429, "rate_limit_error"),
        ("[[status: 500]]", 500, "api_error"),
        ("[[status: 529]]", 529, "overloaded_error"),
        ("[[error: prompt too long]]", 400, "invalid_request_error"),
        ("[[error: credit]]", 400, "invalid_request_error"),
        ("[[error: model]]", 404, "not_found_error"),
    ],
)
def test_an_error_has_the_form_of_the_api(
    model: OfflineModel, directive: str, status: int, kind: str
) -> None:
    answer = post(model, turn(user(directive)))
    assert (answer[0], answer[1]["error"]["type"]) == (status, kind)
    assert post(model, turn(user(directive)))[0] == status


def test_an_error_can_carry_retry_after() -> None:
    step = read_steps("[[retry-after: 3600]] [[status: 429]]")[0]
    reply = step.reply(read_conversation(turn(user("x"))))
    assert isinstance(reply, ErrorReply)
    assert reply.retry_after == "3600"


def test_a_counted_failure_gives_way_to_the_next_step(model: OfflineModel) -> None:
    body = turn(user("[[status: 529 x2]] [[say: at last]]"))
    assert [post(model, body)[0] for _ in range(2)] == [529, 529]
    assert text_of(post(model, body)) == "at last"


def test_a_refusal_is_a_stop_reason(model: OfflineModel) -> None:
    assert post(model, turn(user("[[refuse]]")))[1]["stop_reason"] == "refusal"


def test_a_mistake_in_a_directive_is_an_error_that_names_it(model: OfflineModel) -> None:
    for directive in ("[[sing]]", "[[status: many]]", "[[error: strange]]", "[[fill: much]]"):
        status, answer = post(model, turn(user(directive)))
        assert status == 400
        assert directive in answer["error"]["message"]


def test_a_held_answer_waits_for_its_release_and_no_other_does(model: OfflineModel) -> None:
    answers: list[str] = []
    waiting = threading.Thread(
        target=lambda: answers.append(text_of(post(model, turn(user("[[hold: gate]] [[say: held]]")))))
    )
    waiting.start()
    model.wait_for_request("held", limit_seconds=LIMIT_SECONDS)
    assert text_of(post(model, turn(user("[[say: free]]")))) == "free"
    assert not answers
    assert post(model, {}, path="/release/gate")[0] == 200
    waiting.join(LIMIT_SECONDS)
    assert answers == ["held"]


def test_a_dropped_stream_ends_in_the_middle(model: OfflineModel) -> None:
    with pytest.raises(http.client.IncompleteRead):
        post(model, turn(user("[[drop: half]]"), stream=True))


def test_closing_ends_answers_that_would_never_come() -> None:
    failures: list[Exception] = []

    def ask(served: OfflineModel, directive: str) -> None:
        try:
            post(served, turn(user(directive), stream=True))
        except (http.client.HTTPException, OSError) as error:
            failures.append(error)

    with OfflineModel() as served:
        threads = [threading.Thread(target=ask, args=(served, d)) for d in ("[[silent]]", "[[stall: half]]")]
        for thread in threads:
            thread.start()
        served.wait_for(lambda seen: len(seen.requests) == 2, limit_seconds=LIMIT_SECONDS)
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert len(failures) == 2


def test_waiting_for_a_request_that_never_comes_is_a_time_out(model: OfflineModel) -> None:
    with pytest.raises(TimeoutError):
        model.wait_for_request("nothing", limit_seconds=0.2)


def test_a_request_to_compact_the_conversation_gets_a_summary(model: OfflineModel) -> None:
    wish = "CRITICAL: Respond with TEXT ONLY, an <analysis> block followed by a <summary> block."
    assert text_of(post(model, turn(user("[[bash: x]]"), user(wish)))).startswith("<summary>")


def test_side_requests_are_answered_but_are_no_turns(model: OfflineModel) -> None:
    title = {"model": "m", "messages": [user("[[status: 500]]")], "system": "write a title"}
    assert text_of(post(model, title)) == "Noted."
    assert post(model, turn(user("x")), path="/v1/messages/count_tokens")[1]["input_tokens"] > 0
    notification = turn(
        user("<system-reminder><task-notification>done</task-notification></system-reminder>")
    )
    assert text_of(post(model, notification)) == "Noted."
    assert len(model.received) == 3
    assert len(model.requests) == 2


@given(st.text(alphabet="[]:x 1bashsayfillholdrefuse{}", max_size=60))
def test_any_prompt_is_read_or_refused_with_a_reason(text: str) -> None:
    conversation = read_conversation(turn(user(text)))
    problem, replies = "", []
    try:
        replies = [step.reply(conversation) for step in read_steps(text) if "fill" not in text]
    except ScriptError as error:
        problem = str(error)
    assert problem.startswith("[[") or all(isinstance(reply, TextReply | ToolReply) for reply in replies)


def test_as_a_program_it_prints_its_address_and_ends_by_sigterm() -> None:
    command = [sys.executable, "-m", "tests.support.offline_model", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY, env={**os.environ}) as program:
        try:
            assert program.stdout is not None
            assert select.select([program.stdout], [], [], LIMIT_SECONDS)[0]
            url = program.stdout.readline().decode().strip()
            with urllib.request.urlopen(url + "/requests", timeout=LIMIT_SECONDS) as answer:
                assert json.loads(answer.read()) == []
            program.send_signal(signal.SIGTERM)
            assert program.wait(LIMIT_SECONDS) == 0
        finally:
            program.kill()
