"""From the words of a command line to an exit code.

Exit codes: 0 done, 1 refused or failed, 2 bad usage, 3 daemon not reachable, 130 interrupted. A command is
imported when it is asked for: what one needs, the others do not pay for.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
from typing_extensions import override

from hive_subagent_daemon import __version__
from hive_subagent_daemon.cli.addresses import address_options, check_one_address
from hive_subagent_daemon.cli.commands import PROGRAM
from hive_subagent_daemon.cli.printing import complain
from hive_subagent_daemon.client import AddressError, UnreachableError
from hive_subagent_daemon.errors import ConfigError, SubagentError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, REFUSED, BAD_USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
COMPLETION_VARIABLE: Final = "_HIVE_SUBAGENT_COMPLETE"

COMMANDS: Final = {
    "start": "turns:start",
    "continue": "turns:continue_turn",
    "steer": "turns:steer",
    "interrupt": "turns:interrupt",
    "status": "status:status",
    "wait": "wait:wait",
    "log": "log:log",
    "loose-ends": "loose_ends:loose_ends",
    "doctor": "doctor:doctor",
    "mcp": "programs:mcp",
    "notices": "programs:notices",
    "completion": "completion:completion",
}
"""Each command with the module of this package that has it, and its name there."""


class Root(click.Group):
    """All commands, in the order in which people meet them."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"hive_subagent_daemon.cli.{module}"), name)
        return command

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        check_one_address(ctx.params)
        return rest


def _version_option() -> click.Option:
    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and its commit, and exit.",
    )


def _show_version(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        # It may ask git, which nothing else here does.
        version = import_module("hive_subagent_daemon.commit").version_text(__version__)
        click.echo(f"{PROGRAM} {version}")
        context.exit()


def _root() -> Root:
    return Root(
        PROGRAM,
        help="Work with the subagents of a daemon.",
        epilog="See hive-subagent(1), or `hive-subagent COMMAND --help`.",
        params=[*address_options(), _version_option()],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


ROOT: Final = _root()


def run(words: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        shell: Any = import_module("click.shell_completion")
        code: int = shell.shell_complete(ROOT, {}, PROGRAM, COMPLETION_VARIABLE, instruction)
        return code
    try:
        # Not click's own `main`: that says "Aborted!" after Ctrl-C and turns a gone reader into code 1.
        with ROOT.make_context(PROGRAM, list(words)) as context:
            ROOT.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return BAD_USAGE
    except SubagentError as error:
        complain(str(error))
        return _code_of(error)
    except BrokenPipeError:
        # The reader has gone; the interpreter would try to flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return DONE


def _code_of(error: SubagentError) -> int:
    if isinstance(error, AddressError | ConfigError):
        return BAD_USAGE
    return UNREACHABLE if isinstance(error, UnreachableError) else REFUSED
