"""What all commands have in common: the options that name a daemon, and help for names with a dash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from hive_subagent_daemon.cli.addresses import OPTIONS, address_options, check_one_address, endpoint_of
from hive_subagent_daemon.client import call_tool
from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.names import is_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    _TextType = click.ParamType[str]
else:
    _TextType = click.ParamType  # no generic class before 8.5

PROGRAM: Final = "hive-subagent"
COMPLETION_SECONDS: Final = 1.0
ADDRESS_OPTIONS: Final = tuple(address_options())


class DaemonCommand(click.Command):
    """A command that talks to a daemon: its function gets the `endpoint` beside its own parameters."""

    @override
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *ADDRESS_OPTIONS, help_option]

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _with_hint(error, self, words) from None
        check_one_address(ctx.params)
        return rest

    @override
    def invoke(self, ctx: click.Context) -> object:
        ctx.params["endpoint"] = endpoint_of(ctx)
        for name in OPTIONS:
            del ctx.params[name]
        return super().invoke(ctx)


def _with_hint(error: click.NoSuchOption, command: click.Command, words: Sequence[str]) -> click.UsageError:
    """Say how to write a name that begins with a dash, when an unknown option could be one."""
    word = next((word for word in words if word.startswith(error.option_name)), error.option_name)
    takes_name = any(isinstance(parameter.type, SubagentName) for parameter in command.params)
    if not (takes_name and is_name(word)):
        return error
    message = (
        f"{error.format_message()} If {word!r} is the name of a subagent, write it after --: "
        f"{PROGRAM} {command.name} -- {word}"
    )
    return click.UsageError(message, error.ctx)


class SubagentName(_TextType):
    """The name of a subagent; the daemon says what is wrong with one, the shell is told which there are."""

    name = "name"

    def __init__(self, *, running: bool = False) -> None:
        """Complete the names of all subagents, or of those that are running."""
        self.running = running

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            answer = call_tool(endpoint_of(ctx), "status", {}, within_seconds=COMPLETION_SECONDS)
        except SubagentError:
            return []  # in the middle of a line that is being typed nothing may be printed
        taken = ctx.params.get(param.name or "") or ()
        return [
            CompletionItem(subagent["name"], help=subagent["state"])
            for subagent in answer.structured["subagents"]
            if subagent["name"].startswith(incomplete) and subagent["name"] not in taken
            if subagent["state"] == "running" or not self.running
        ]


class LooseEndId(_TextType):
    """The id of a loose end; the shell is told which are open."""

    name = "id"

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            endpoint = endpoint_of(ctx)
            answer = call_tool(endpoint, "get_loose_ends", {"limit": 100}, within_seconds=COMPLETION_SECONDS)
        except SubagentError:
            return []
        return [
            CompletionItem(loose_end["id"], help=f"{loose_end['name']}, {loose_end['outcome']}")
            for loose_end in answer.structured["loose_ends"]
            if loose_end["id"].startswith(incomplete)
        ]


def absolute(path: str | None) -> str | None:
    """Make a path absolute: the daemon has another working directory than the person who types it."""
    return str(Path(path).absolute()) if path else path


def given(**arguments: object) -> dict[str, Any]:
    """Return the arguments that were given; the daemon has the defaults."""
    return {name: value for name, value in arguments.items() if value is not None}
