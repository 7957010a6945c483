"""`status`: what subagents are doing, once or live."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from hive_subagent_daemon import clock
from hive_subagent_daemon.cli.commands import DaemonCommand, SubagentName, given
from hive_subagent_daemon.cli.details import details_of
from hive_subagent_daemon.cli.printing import can_redraw, coloured, put, put_json, shows_colour, wrapped
from hive_subagent_daemon.cli.tables import plain_lines, remarks_of, rows_of, without_stalls
from hive_subagent_daemon.client import call_tool

if TYPE_CHECKING:
    from hive_subagent_daemon.cli.tables import Json
    from hive_subagent_daemon.client import Endpoint


@click.command("status", cls=DaemonCommand, short_help="Show what subagents are doing.")
@click.argument("name", required=False, type=SubagentName())
@click.option("-w", "--watch", is_flag=True, help="Go on showing it, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch, a line at each change.")
def status(endpoint: Endpoint, *, name: str | None, watch: bool, as_json: bool) -> None:
    """Show all subagents in a table, or everything about subagent NAME.

    AGE is that of the last output of a running turn, or the time since the turn ended; TURN is how long the
    turn has run.
    """
    arguments = given(name=name)
    if watch:
        watching = import_module("hive_subagent_daemon.cli.watch")
        if as_json or not can_redraw(sys.stdout):
            watching.report_changes(endpoint, arguments, as_json=as_json)
        else:
            import_module("hive_subagent_daemon.cli.live").redraw(endpoint, arguments)
        return
    answer = call_tool(endpoint, "status", arguments).structured
    if as_json:
        put_json(answer)
    elif name is not None:
        _show_one(answer)
    else:
        _show_all(answer)


def _show_all(answer: Json) -> None:
    rows, remarks = rows_of(answer, now=clock.now()), remarks_of(answer)
    if can_redraw(sys.stdout):
        import_module("hive_subagent_daemon.cli.screens").show(rows, remarks, colour=shows_colour(sys.stdout))
        return
    put("\n".join([*plain_lines(rows), *(remark.text for remark in remarks)]))


def _show_one(answer: Json) -> None:
    colour = shows_colour(sys.stdout)
    lines: list[str] = []
    for subagent in answer["subagents"]:
        lines += details_of(subagent, now=clock.now(), colour=colour)
    remarks = remarks_of({**answer, "warnings": without_stalls(answer["warnings"])})
    below = [coloured(wrapped(each.text), each.tone, colour=colour) for each in remarks]
    lines += ["", *below] if below else []
    put("\n".join(lines))
