"""Which daemon a command calls and which token it brings: options first, then the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hive_subagent_daemon.client import (
    EXAMPLE_URL,
    TOKEN_FILE_VARIABLE,
    URL_VARIABLE,
    AddressError,
    Endpoint,
    TcpEndpoint,
    UnixEndpoint,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def chosen_endpoint(
    *, url: str | None, socket_path: str | None, token_file: str | None, environ: Mapping[str, str]
) -> Endpoint:
    """Return the endpoint that the options name, else the environment, else the default; or AddressError.

    The token itself is never an argument: every user of the machine can read those.
    """
    named = token_file if token_file is not None else environ.get(TOKEN_FILE_VARIABLE)
    try:
        token = Path(named).expanduser() if named else None
    except RuntimeError as error:
        message = f"token file {named!r}: there is no user with that home here: write the path in full."
        raise AddressError(message) from error
    if socket_path is not None:
        return UnixEndpoint(Path(socket_path), token_file=token)
    if url is not None:
        return TcpEndpoint.from_url(url, token)
    try:
        return TcpEndpoint.from_url(environ.get(URL_VARIABLE) or EXAMPLE_URL, token)
    except AddressError as error:
        message = f"${URL_VARIABLE}: {error}"
        raise AddressError(message) from None
