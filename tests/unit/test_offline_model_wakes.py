"""The offline model as a parent that hooks wake: which steps it takes, and which loose ends it knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.offline_model_conversation import read_conversation
from tests.support.offline_model_replies import TextReply, ToolReply
from tests.support.offline_model_script import choose_step, program

if TYPE_CHECKING:
    from tests.support.offline_model_replies import Json, Reply

# As 2.1.197 gives them to the model: where it waits for input, and in plain print mode.
WAKE = (
    "<task-notification>\n<summary>Stop hook feedback</summary>\n</task-notification>\n<system-reminder>\n"
    'Stop hook blocking error from command "Stop": worker: completed (id {})\n</system-reminder>'
)
PRINTED_WAKE = "Stop hook feedback:\n[a command]: worker: completed (id {})\n"
IDS = ["20261130_101502_118_9f3a", "20261130_101503_007_00ab"]


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def said(text: str) -> Json:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def called(told: str) -> list[Json]:
    """Build a call of a tool, and its result with what a hook said meanwhile."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "true"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
    return [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, {"type": "text", "text": told}]},
    ]


def answer(*messages: Json, system: str = "") -> Reply:
    """Return what the model answers to this conversation."""
    body = {"messages": list(messages), "system": system, "tools": [{"name": "Bash"}]}
    conversation = read_conversation(body)
    steps = program(conversation)
    return choose_step(conversation, steps, [0] * len(steps))[1].reply(conversation)


def test_each_wake_has_steps_of_its_own_and_the_last_ones_hold_for_all_further_wakes() -> None:
    conversation = [user("[[say: begun]] [[woken]] [[say: first]] [[woken]] [[say: last]]"), said("begun")]
    for wake, expected in ((WAKE, "first"), (PRINTED_WAKE, "last"), (WAKE, "last")):
        conversation.append(user(wake.format(IDS[0])))
        assert answer(*conversation) == TextReply(expected)
        conversation.append(said(expected))
    assert answer(*conversation, user("[[say: new]]")) == TextReply("new")


def test_steps_for_wakes_can_stand_in_the_system_prompt() -> None:
    system = "[[say: begun]] [[woken]] [[say: woken]]"
    assert answer(user("go"), system=system) == TextReply("begun")
    assert answer(user("go"), said("begun"), user(WAKE), system=system) == TextReply("woken")


def test_a_wake_that_no_script_expects_is_noted() -> None:
    assert answer(user("[[say: begun]]"), said("begun"), user(WAKE)) == TextReply("Noted.")


def test_a_call_can_name_the_loose_ends_that_hooks_told_of_also_in_the_middle_of_a_turn() -> None:
    prompt = '[[say: begun]] [[woken]] [[bash: true]] [[tool: close {"ids": "$told"}]]'
    begun = [user(prompt), said("begun"), user(WAKE.format(IDS[0]))]
    assert answer(*begun, *called(PRINTED_WAKE.format(IDS[1]))) == ToolReply("close", {"ids": IDS})
