"""Which daemon a command talks to, from the options before and after it and from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from hive_subagent_daemon.client import EXAMPLE_URL, TOKEN_FILE_VARIABLE, URL_VARIABLE, Endpoint
from hive_subagent_daemon.client_options import chosen_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: Final = ("url", "socket", "token_file")


def address_options() -> list[click.Parameter]:
    """Return the options that name a daemon."""
    return [
        click.Option(
            ["--url"],
            metavar="URL",
            help=f"Address of the daemon (default: ${URL_VARIABLE}, else {EXAMPLE_URL}).",
        ),
        click.Option(
            ["--socket"], metavar="PATH", type=click.Path(), help="Unix socket of the daemon, instead."
        ),
        click.Option(
            ["--token-file"],
            metavar="PATH",
            type=click.Path(),
            help=f"File with the daemon's token (default: ${TOKEN_FILE_VARIABLE}, else no token).",
        ),
    ]


def check_one_address(parameters: Mapping[str, Any]) -> None:
    """Refuse two addresses in one place."""
    if parameters.get("url") is not None and parameters.get("socket") is not None:
        message = "--url and --socket name two daemons: give one of them."
        raise click.UsageError(message)


def endpoint_of(context: click.Context) -> Endpoint:
    """Return the daemon that the options of a command name, else those before it, else the environment."""
    named: dict[str, str | None] = dict.fromkeys(OPTIONS)
    at: click.Context | None = context
    while at is not None:
        if named["url"] is None and named["socket"] is None:
            named |= {"url": at.params.get("url"), "socket": at.params.get("socket")}
        if named["token_file"] is None:
            named["token_file"] = at.params.get("token_file")
        at = at.parent
    return chosen_endpoint(
        url=named["url"],
        socket_path=named["socket"],
        token_file=named["token_file"],
        environ=os.environ,
    )
