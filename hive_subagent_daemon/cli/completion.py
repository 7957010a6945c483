"""`completion`: the script that makes a shell complete this command."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from hive_subagent_daemon.cli.commands import PROGRAM
from hive_subagent_daemon.cli.printing import put

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print the script that makes SHELL complete this command, names of subagents included.

    \b
    bash:  source <(hive-subagent completion bash)
    zsh:   source <(hive-subagent completion zsh)
    fish:  hive-subagent completion fish | source

    To have it in every shell, put the line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
    """
    put(script(shell).rstrip("\n"))


def script(shell: str) -> str:
    """Return the completion script; it asks this program, so it need not know which commands there are."""
    shells: Any = import_module("click.shell_completion")
    of_shell = shells.get_completion_class(shell)(None, {}, PROGRAM, "_HIVE_SUBAGENT_COMPLETE")
    # Not its `source()`: for bash that starts one, to warn of a version before 4.4.
    made: str = of_shell.source_template % of_shell.source_vars()
    return f"{made.strip()}\n"
