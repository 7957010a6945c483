"""Which daemon a command talks to, from the options before and after it and from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hive_subagent_daemon.client import EXAMPLE_URL, AddressError, Endpoint, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_VARIABLE: Final = "HIVE_SUBAGENT_URL"


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
    ]


def check_one_address(parameters: Mapping[str, Any]) -> None:
    """Refuse two addresses in one place."""
    if parameters.get("url") is not None and parameters.get("socket") is not None:
        message = "--url and --socket name two daemons: give one of them."
        raise click.UsageError(message)


def endpoint_of(context: click.Context) -> Endpoint:
    """Return the daemon that the options of a command name, else those before it, else the environment."""
    at: click.Context | None = context
    while at is not None:
        if (socket := at.params.get("socket")) is not None:
            return UnixEndpoint(Path(socket))
        if (url := at.params.get("url")) is not None:
            return TcpEndpoint.from_url(url)
        at = at.parent
    try:
        return TcpEndpoint.from_url(os.environ.get(URL_VARIABLE) or EXAMPLE_URL)
    except AddressError as error:
        message = f"${URL_VARIABLE}: {error}"
        raise AddressError(message) from None
