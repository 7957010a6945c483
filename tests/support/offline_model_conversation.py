"""What one request to the offline model says: its prompt, what it was told since, how many answers it had."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.offline_model_replies import Json

NOT_A_PROMPT = ("<system-reminder>", "[Request interrupted")
NOTIFICATION = "<task-notification>"  # newer versions of claude put it inside a reminder
WOKEN = "Stop hook feedback"  # stands in whatever form claude gives to the text of a hook that wakes it
TOLD_BY_HOOKS = (WOKEN, "Stop hook blocking error", "hook success: ")
LOOSE_END_ID = re.compile(r"\d{8}_\d{6}_\d{3}_[0-9a-f]{4}")


@dataclass(frozen=True)
class Conversation:
    """What one request says, as far as a script needs it.

    `woken` counts how often a hook has begun a turn since the prompt; `rounds` the answers since then. `told`
    are the ids of loose ends that hooks have told of.
    """

    model: str
    system: str
    texts: tuple[str, ...]
    prompt: str
    woken: int
    rounds: int
    last_tool_result: str
    told: tuple[str, ...]
    has_tools: bool


def _blocks(content: object) -> list[Json]:
    """Return the blocks of a content, which is a string or a list of blocks, or missing."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _block_texts(content: object) -> list[str]:
    return [block["text"] for block in _blocks(content) if block.get("type") == "text"]


def _tool_results(content: object) -> list[str]:
    results = [block for block in _blocks(content) if block.get("type") == "tool_result"]
    return ["\n".join(_block_texts(block.get("content"))) for block in results]


def _is_prompt(text: str) -> bool:
    return WOKEN not in text and (NOTIFICATION in text or not text.startswith(NOT_A_PROMPT))


def _wakes(content: object) -> bool:
    """Tell whether a hook begins a turn here; what it says while one goes on comes with a tool's result."""
    return any(WOKEN in text for text in _block_texts(content)) and not _tool_results(content)


def _told(texts: tuple[str, ...]) -> tuple[str, ...]:
    by_hooks = [text for text in texts if any(mark in text for mark in TOLD_BY_HOOKS)]
    return tuple(dict.fromkeys(found for text in by_hooks for found in LOOSE_END_ID.findall(text)))


def wakes(body: Json) -> list[str]:
    """Return what hooks said by which they woke claude, in the order of the conversation."""
    texts = [text for message in body.get("messages", []) for text in _block_texts(message["content"])]
    return [text for text in texts if WOKEN in text]


def read_conversation(body: Json) -> Conversation:
    """Take from a request its prompt, and how many answers the prompt has had already."""
    messages = body.get("messages", [])
    system = [*_block_texts(body.get("system"))]
    system += [text for m in messages if m["role"] == "system" for text in _block_texts(m["content"])]
    prompt, woken, rounds, result = "", 0, 0, ""
    for message in messages:
        content = message["content"]
        if message["role"] == "user":
            result = "\n".join(_tool_results(content)) or result
            prompts = [text for text in _block_texts(content) if _is_prompt(text)]
            if prompts:
                prompt, woken, rounds = prompts[-1], 0, 0
            elif _wakes(content):
                woken, rounds = woken + 1, 0
        rounds += message["role"] == "assistant"
    texts = tuple(text for m in messages for text in _block_texts(m["content"]))
    return Conversation(
        model=str(body.get("model", "")),
        system="\n".join(system),
        texts=texts,
        prompt=prompt,
        woken=woken,
        rounds=rounds,
        last_tool_result=result,
        told=_told(texts),
        has_tools=any(tool.get("name") == "Bash" for tool in body.get("tools", ())),
    )
