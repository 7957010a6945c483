"""What the offline model answers to one request, decided from the request's content alone.

The program of a turn stands in its prompt as directives `[[name: value]]`, or, when the prompt has
none, in the system prompt (so that the appended prompt file of a subagent can hold it). Without any,
the model makes one Bash call and then gives a text. The steps, one for each request of a turn:

    [[say: TEXT]]          text, the end of the turn
    [[echo]]               text: the prompt, word for word
    [[recall: TEXT]]       text: whether TEXT stands in the system prompt and in the conversation
    [[fill: N]]            text of N characters
    [[refuse]]             stop reason `refusal`
    [[bash: COMMAND]]      a call of Bash (COMMAND may not hold two closing brackets)
    [[background: COMMAND]]    the same with `run_in_background`
    [[tool: NAME JSON]]    a call of any tool; "$told" in JSON: the ids of loose ends that hooks told of
    [[status: N]]          an API error with this status
    [[error: NAME]]        one of: prompt too long, credit, model, invalid, overloaded
    [[stall: TEXT]]        TEXT is streamed, then nothing more comes
    [[drop: TEXT]]         TEXT is streamed, then the connection is cut
    [[silent]]             no answer at all

The last five fail for as long as claude tries; ` xN` at the end of the value (`[[status: 529 x2]]`)
lets them fail N times and then goes on to the next step. Before a step can stand:

    [[delay: SECONDS]]     the answer waits that long
    [[hold: NAME]]         the answer waits until OfflineModel.release(NAME)
    [[retry-after: SECONDS]]   a header of the error that follows

`[[woken]]` divides a prompt: what follows are the steps of the turn that begins when a hook wakes claude,
after the second `[[woken]]` those of the second such turn, and so on; all further ones are like the last.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.offline_model_conversation import NOTIFICATION, Conversation
from tests.support.offline_model_replies import BrokenReply, ErrorReply, Reply, TextReply, ToolReply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIRECTIVE = re.compile(r"\[\[([a-z][a-z-]*)(?::[ \t]*([^\n]*?))?[ \t]*\]\]")
REPEATS = re.compile(r"(?:^|\s+)x([0-9]+)$")
NEXT_TURN = "[[woken]]"
DEFAULT_COMMAND = "echo 'the offline model ran this command'"
COMPACTION = "<summary> block"  # stands in the prompt by which claude compacts a conversation
BEFORE_A_STEP = ("delay", "hold", "retry-after")
FAILURES = ("status", "error", "stall", "drop", "silent")
ANSWERS = ("say", "echo", "recall", "fill", "refuse", "bash", "background", "tool")
DIRECTIVES = (*BEFORE_A_STEP, *FAILURES, *ANSWERS)
ERRORS = {
    "prompt too long": (400, "prompt is too long: 250000 tokens > 200000 maximum"),
    "credit": (400, "Your credit balance is too low to access the Anthropic API."),
    "model": (404, "model: no such model"),
    "invalid": (400, "messages.0: this request is not valid"),
    "overloaded": (529, "Overloaded"),
}
MESSAGES = {
    401: "invalid x-api-key",
    403: "no permission",
    404: "not found",
    429: "This request would exceed the rate limit",
    500: "Internal server error",
    529: "Overloaded",
}


class ScriptError(Exception):
    """A directive that cannot be understood; shown to claude as an error of the API."""


@dataclass(frozen=True)
class Step:
    """One answer of a script, with what comes before it; `repeats` limits how often a failure occurs."""

    reply: Callable[[Conversation], Reply]
    repeats: int | None = None
    fails: bool = False
    delay_seconds: float = 0.0
    hold: str | None = None


def _recall(conversation: Conversation, wanted: str) -> TextReply:
    """Say where a text was found, without counting the directive that asks for it."""
    others = [text.replace(f"[[recall: {wanted}]]", "") for text in conversation.texts]
    places = {
        "system prompt": wanted in conversation.system,
        "conversation": any(wanted in t for t in others),
    }
    return TextReply(", ".join(f"{place}: {'yes' if found else 'no'}" for place, found in places.items()))


def _final_text(conversation: Conversation) -> TextReply:
    result = conversation.last_tool_result.strip()
    return TextReply(f"The offline model is done. The last command printed: {result[:2000]}")


def _bash(command: str, *, in_background: bool = False) -> ToolReply:
    more = {"run_in_background": True} if in_background else {}
    return ToolReply("Bash", {"command": command, "description": "Run the scripted command", **more})


def _tool(value: str, told: Sequence[str]) -> ToolReply:
    name, _, arguments = value.partition(" ")
    arguments = arguments.replace('"$told"', json.dumps(list(told)))
    try:
        return ToolReply(name, json.loads(arguments or "{}"))
    except ValueError as error:
        problem = f"[[tool: {value}]]: the arguments are not JSON: {error}"
        raise ScriptError(problem) from error


def _error(value: str, before: dict[str, str]) -> ErrorReply:
    if value not in ERRORS:
        problem = f"[[error: {value}]]: not one of {', '.join(ERRORS)}"
        raise ScriptError(problem)
    status, message = ERRORS[value]
    return ErrorReply(status, message, before.get("retry-after"))


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        problem = f"[[{name}: {value}]]: not a number"
        raise ScriptError(problem) from error


def _status(value: str, before: dict[str, str]) -> ErrorReply:
    status = int(_number("status", value))
    return ErrorReply(status, MESSAGES.get(status, "scripted error"), before.get("retry-after"))


def _failure(name: str, value: str, before: dict[str, str]) -> Reply | None:
    """Return the reply of a directive that fails, or None for the others."""
    match name:
        case "status":
            return _status(value, before)
        case "error":
            return _error(value, before)
        case "stall" | "drop":
            return BrokenReply(value or "partial text", stays_open=name == "stall")
        case "silent":
            return BrokenReply(None, stays_open=True)
    return None


def _answer(name: str, value: str) -> Callable[[Conversation], Reply]:
    """Return what gives the reply of a directive that does not fail."""
    answers: dict[str, Callable[[Conversation], Reply]] = {
        "say": lambda _: TextReply(value),
        "echo": lambda conversation: TextReply(conversation.prompt),
        "recall": lambda conversation: _recall(conversation, value),
        "fill": lambda _: TextReply("x" * int(_number(name, value))),
        "refuse": lambda _: TextReply("", stop_reason="refusal"),
        "bash": lambda _: _bash(value),
        "background": lambda _: _bash(value, in_background=True),
        "tool": lambda conversation: _tool(value, conversation.told),
    }
    return answers[name]


def _step(name: str, value: str, before: dict[str, str]) -> Step:
    if name not in DIRECTIVES:
        problem = f"[[{name}]] is not a directive of the offline model"
        raise ScriptError(problem)
    delay, hold = _number("delay", before.get("delay", "0")), before.get("hold")
    repeats = REPEATS.search(value)
    reply = _failure(name, REPEATS.sub("", value), before)
    if reply is None:
        return Step(_answer(name, value), delay_seconds=delay, hold=hold)
    times = int(repeats[1]) if repeats else None
    return Step(lambda _: reply, repeats=times, fails=True, delay_seconds=delay, hold=hold)


def read_steps(text: str, *, lenient: bool = False) -> tuple[Step, ...]:
    """Return the steps that the directives in a text make; what stands before none waits before a last text.

    A directive with an unknown name is an error, or is passed over (`lenient`) in a text not only ours.
    """
    steps: list[Step] = []
    before: dict[str, str] = {}
    for found in DIRECTIVE.finditer(text):
        name, value = found[1], found[2] or ""
        if lenient and name not in DIRECTIVES:
            continue
        if name in BEFORE_A_STEP:
            before[name] = value
            continue
        steps.append(_step(name, value, before))
        before = {}
    if before:
        steps.append(
            Step(_final_text, delay_seconds=float(before.get("delay", "0")), hold=before.get("hold"))
        )
    return tuple(steps)


def program(conversation: Conversation) -> tuple[Step, ...]:
    """Return the steps of the turn that a request belongs to."""
    if not conversation.has_tools or NOTIFICATION in conversation.prompt:
        return (Step(lambda _: TextReply("Noted.")),)
    if COMPACTION in conversation.prompt:
        return (Step(lambda _: TextReply("<summary>A scripted conversation.</summary>")),)
    is_prompt = DIRECTIVE.search(conversation.prompt) is not None
    begun, *turns = (conversation.prompt if is_prompt else conversation.system).split(NEXT_TURN)
    if conversation.woken:
        begun = turns[min(conversation.woken, len(turns)) - 1] if turns else "[[say: Noted.]]"
    steps = read_steps(begun, lenient=not is_prompt)
    return steps or (Step(lambda _: _bash(DEFAULT_COMMAND)),)


def choose_step(conversation: Conversation, steps: Sequence[Step], failed: Sequence[int]) -> tuple[int, Step]:
    """Return the step to take now, with its index; `failed` tells how often each has failed already."""
    answered = conversation.rounds
    for index, step in enumerate(steps):
        if step.repeats is not None:
            if failed[index] < step.repeats:
                return index, step
        elif answered == 0 or step.fails:
            return index, step
        else:
            answered -= 1
    return len(steps), Step(_final_text)
