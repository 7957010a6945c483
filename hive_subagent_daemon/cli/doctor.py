"""`doctor`: what is wrong between a person and a working subagent, each with its fix."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hive_subagent_daemon.cli.commands import DaemonCommand
from hive_subagent_daemon.cli.printing import coloured, one_line, put, shows_colour, wrapped

if TYPE_CHECKING:
    from hive_subagent_daemon.cli.checks import Check
    from hive_subagent_daemon.client import Endpoint

_TONES: Final = {"ok": "green", "note": "yellow", "FAIL": "red"}


@click.command("doctor", cls=DaemonCommand, short_help="Look for what keeps subagents from working.")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Configuration that the daemon reads (default: where the daemon looks).",
)
def doctor(endpoint: Endpoint, *, config_file: Path | None) -> None:
    """Check claude, its login, systemd, directories, clock and daemon; say how to mend what fails.

    It looks as the user who calls it, with the configuration that the daemon finds, and costs nothing. Exits
    with 1 when a check fails, 3 when the daemon is not reachable.
    """
    # The configuration and D-Bus are not for every command to import.
    all_checks = import_module("hive_subagent_daemon.cli.examination").all_checks
    colour = shows_colour(sys.stdout)
    failed, reachable = False, True
    for check in all_checks(endpoint, config_file):
        put(_line(check, colour=colour))
        bad = check.verdict.value == "FAIL"
        failed |= bad
        reachable &= not (bad and check.what == "daemon")
    if failed:
        raise click.exceptions.Exit(1 if reachable else 3)


def _line(check: Check, *, colour: bool) -> str:
    # Wrapped before it is coloured: escapes have no width.
    head = f"{check.verdict.value:<5} {check.what:<14} "
    found = wrapped(head + one_line(check.found), indent=len(head)).removeprefix(check.verdict.value)
    verdict = coloured(check.verdict.value, _TONES[check.verdict.value], colour=colour)
    if not check.fix:
        return verdict + found
    fix = wrapped(f"{'':{len(head)}}fix: {one_line(check.fix)}", indent=len(head) + 5)
    return f"{verdict}{found}\n{fix}"
