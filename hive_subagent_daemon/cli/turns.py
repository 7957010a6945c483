"""`start`, `continue`, `steer` and `interrupt`: the commands that change what runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from hive_subagent_daemon.cli.commands import DaemonCommand, SubagentName, absolute, given
from hive_subagent_daemon.cli.printing import say
from hive_subagent_daemon.client import call_tool
from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hive_subagent_daemon.client import Endpoint

    Command = Callable[..., None]

MAX_PROMPT_BYTES = 10_000_000
"""The daemon takes no more, so nothing beyond is read from stdin."""

_DIRECTORY = click.Path(file_okay=False)  # only for the shell: the daemon checks it


def on_terms(command: Command) -> Command:
    """Add the options for how a turn is to run: what it may take, and whether it can be steered."""
    for option in reversed(_TERMS):
        command = option(command)
    return command


_TERMS = (
    click.option(
        "--timeout",
        "timeout_seconds",
        metavar="SECONDS",
        type=float,
        help="How long the turn may take (default: as configured).",
    ),
    click.option(
        "--max-budget-usd", metavar="USD", type=float, help="What the turn may cost (default: as configured)."
    ),
    click.option(
        "--max-turns", metavar="N", type=int, help="Rounds the turn may take (default: as configured)."
    ),
    click.option(
        "--steerable", is_flag=True, default=None, help="Let `steer` hand it messages while it runs."
    ),
)


@click.command("start", cls=DaemonCommand, short_help="Start a subagent in the background.")
@click.argument("name")
@click.argument("prompt_file", type=click.Path(dir_okay=False))
@click.option("--model", metavar="MODEL", help="Model for claude.")
@click.option("--trigger", metavar="TEXT", help="First prompt, instead of the default one.")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=_DIRECTORY,
    help="Working directory (default: the daemon's work_dir).",
)
@on_terms
def start(
    endpoint: Endpoint,
    *,
    name: str,
    prompt_file: str,
    model: str | None,
    trigger: str | None,
    directory: str | None,
    **terms: float | None,
) -> None:
    """Start subagent NAME in the background, with the instructions in PROMPT_FILE.

    Returns when its process is running. Relative paths start at your own directory.
    """
    arguments = given(
        name=name,
        prompt_file=absolute(prompt_file),
        model=model,
        trigger=trigger,
        dir=absolute(directory),
        **terms,
    )
    say(call_tool(endpoint, "start", arguments).text)


@click.command("continue", cls=DaemonCommand, short_help="Give a subagent another turn.")
@click.argument("name", type=SubagentName())
@click.argument("prompt", default="-", metavar="[PROMPT]")
@click.option("--model", metavar="MODEL", help="Model for claude (default: the remembered one).")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=_DIRECTORY,
    help="Working directory (default: the remembered one).",
)
@on_terms
def continue_turn(
    endpoint: Endpoint,
    *,
    name: str,
    prompt: str,
    model: str | None,
    directory: str | None,
    **terms: float | None,
) -> None:
    """Give subagent NAME another turn in its session.

    PROMPT is the text itself. Without it, or with -, the prompt is read from stdin.
    """
    text = _read_prompt() if prompt == "-" else prompt
    arguments = given(name=name, prompt=text, model=model, dir=absolute(directory), **terms)
    say(call_tool(endpoint, "continue", arguments).text)


@click.command("steer", cls=DaemonCommand, short_help="Hand a message to a running subagent.")
@click.argument("name", type=SubagentName(running=True))
@click.argument("text", default="-", metavar="[TEXT]")
def steer(endpoint: Endpoint, *, name: str, text: str) -> None:
    """Hand a message to subagent NAME, which was started with --steerable and runs.

    It reads the message after its current step. Without TEXT, or with -, the message is read from stdin.
    """
    message = _read_prompt() if text == "-" else text
    say(call_tool(endpoint, "steer", {"name": name, "text": message}).text)


@click.command("interrupt", cls=DaemonCommand, short_help="Stop the running turn of a subagent.")
@click.argument("name", type=SubagentName(running=True))
@click.option("--force", is_flag=True, help="Kill all its processes at once.")
def interrupt(endpoint: Endpoint, *, name: str, force: bool) -> None:
    """Stop the running turn of subagent NAME; `continue` goes on with its session."""
    say(call_tool(endpoint, "interrupt", {"name": name, "force": force}).text)


def _read_prompt() -> str:
    if sys.stdin.isatty():
        sys.stderr.write("Type the prompt, then Ctrl-D:\n")
    prompt = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(prompt) > MAX_PROMPT_BYTES:
        message = f"stdin has more than {MAX_PROMPT_BYTES} bytes: put the material in a file and name that."
        raise RefusedError(message)
    try:
        return prompt.decode()
    except UnicodeDecodeError as error:
        message = f"stdin is not valid UTF-8 at byte {error.start}: convert the prompt first."
        raise RefusedError(message) from None
