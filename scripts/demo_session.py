"""What scripts/demo does as an MCP client: one subagent, started, watched and continued once."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client

NAME = "demo"
LOOK_SECONDS = 1.0
COMMAND = "for step in 1 2 3 4; do echo step $step of 4; sleep 1; done"
FIRST_PROMPT = (
    f"Run this with your Bash tool, and then say in one sentence what it printed: `{COMMAND}`",
    f"[[bash: {COMMAND}]]",
)
SECOND_PROMPT = (
    "Without running it again: in one sentence, what did the command print last?",
    "[[recall: step 4 of 4]]",
)
INSTRUCTIONS = (
    "You are the subagent of a demonstration. Do what the prompt asks, no more, and answer briefly.\n"
)


class DemoError(Exception):
    """Something in the demonstration did not go as it should."""


@dataclass(frozen=True)
class Demo:
    """The connection to the daemon, and how the turns are to be."""

    client: Client
    folder: Path
    is_online: bool
    turn_seconds: float

    def prompt(self, parts: tuple[str, str]) -> str:
        """Return a prompt, with the directive for the offline model where that is used."""
        text, directive = parts
        return text if self.is_online else f"{text}\n\n{directive}"

    async def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool and return its structured content; a refusal is a DemoError."""
        result = await self.client.call_tool(tool, dict(arguments))
        text = " ".join(getattr(part, "text", "") for part in result.content)
        if result.is_error or result.structured_content is None:
            problem = f"{tool} was refused: {text}"
            raise DemoError(problem)
        content: dict[str, Any] = result.structured_content
        return content

    async def watch(self) -> None:
        """Show the status until the turn has ended."""
        end = time.monotonic() + self.turn_seconds
        while True:
            subagent = (await self.call("status", name=NAME))["subagents"][0]
            if subagent["state"] != "running":
                return
            show("status", *running_words(subagent))
            if time.monotonic() > end:
                problem = f"the turn has not ended within {self.turn_seconds:.0f} s"
                raise DemoError(problem)
            await anyio.sleep(LOOK_SECONDS)

    async def take_loose_end(self) -> dict[str, Any]:
        """Print the one open loose end and close it."""
        found = (await self.call("get_loose_ends", name=NAME))["loose_ends"]
        if len(found) != 1:
            problem = f"there should be one loose end, there are {len(found)}"
            raise DemoError(problem)
        loose_end: dict[str, Any] = found[0]
        show("get_loose_ends", "one loose end:")
        fields = ("id", "outcome", "error_class", "error", "rounds", "duration_seconds", "warnings", "text")
        for field in fields:
            if loose_end[field] not in (None, []):
                show("", f"  {field}: {json.dumps(loose_end[field], ensure_ascii=False)}")
        closed = (await self.call("close_loose_ends", ids=[loose_end["id"]]))["closed"]
        show("close_loose_ends", f"closed {', '.join(closed)}")
        if loose_end["outcome"] != "completed":
            problem = f"the turn should be completed, it is {loose_end['outcome']}"
            raise DemoError(problem)
        return loose_end


def show(title: str, *words: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{title:18} {' '.join(words)}\n")
    sys.stdout.flush()


def running_words(subagent: dict[str, Any]) -> list[str]:
    """Say in a few words what a running subagent is doing."""
    activity = subagent["activity"] or {}
    doing = " ".join(filter(None, [activity.get("kind"), activity.get("tool")]))
    return [
        f"running for {subagent['running_seconds']:.1f} s,",
        f"last output {subagent['age_seconds']:.1f} s ago,",
        f"now: {doing or 'not known'}",
    ]


async def run(demo: Demo) -> None:
    """Start the subagent, watch it, take its loose end, and continue it once."""
    prompt_file = demo.folder / "instructions.md"
    prompt_file.write_text(INSTRUCTIONS)
    started = await demo.call(
        "start", name=NAME, prompt_file=str(prompt_file), trigger=demo.prompt(FIRST_PROMPT)
    )
    show("start", f"subagent {started['name']!r} runs, pid {started['pid']}, session {started['session_id']}")
    await demo.watch()
    await demo.take_loose_end()
    continued = await demo.call("continue", name=NAME, prompt=demo.prompt(SECOND_PROMPT))
    show("continue", f"the same session {continued['session_id']} has a second turn, pid {continued['pid']}")
    await demo.watch()
    loose_end = await demo.take_loose_end()
    if not demo.is_online:
        if "conversation: yes" not in loose_end["text"]:
            problem = "the second turn does not remember the first"
            raise DemoError(problem)
        show("", "  that is: the second turn was given what the command printed in the first")
    subagent = (await demo.call("status", name=NAME))["subagents"][0]
    show("status", f"{subagent['state']}, last turn {subagent['last_turn']['outcome']}")


async def connect(url: str, *, folder: Path, is_online: bool, turn_seconds: float) -> None:
    """Connect to the daemon and run the demonstration."""
    async with Client(url) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        show("connected", f"to {url}, tools: {', '.join(tools)}")
        await run(Demo(client, folder, is_online, turn_seconds))


def problems(error: BaseException) -> list[str]:
    """Return the messages of an error, of each one in a group."""
    if isinstance(error, BaseExceptionGroup):
        return [text for inner in error.exceptions for text in problems(inner)]
    return [str(error) or type(error).__name__]


def main() -> int:
    """Run the demonstration; exit 1 with the reason on stderr when it fails."""
    parser = argparse.ArgumentParser(description="The MCP client of scripts/demo.")
    parser.add_argument("url", help="address of the daemon, ending in /mcp")
    parser.add_argument("--folder", type=Path, required=True, help="where to put the prompt file")
    parser.add_argument("--online", action="store_true", help="the model is not the offline one")
    parser.add_argument("--turn-seconds", type=float, default=45.0, help="the limit of one turn")
    arguments = parser.parse_args()

    async def session() -> None:
        await connect(
            arguments.url,
            folder=arguments.folder.resolve(),
            is_online=arguments.online,
            turn_seconds=arguments.turn_seconds,
        )

    failures: list[str] = []
    try:
        anyio.run(session)
    except* (DemoError, OSError) as group:
        failures += problems(group)
    for failure in failures:
        sys.stderr.write(f"demo: {failure}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
