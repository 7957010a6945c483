"""Which daemon a command calls, and which token it brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive_subagent_daemon.client import AddressError, Endpoint, TcpEndpoint, UnixEndpoint
from hive_subagent_daemon.client_options import chosen_endpoint

URL = "http://127.0.0.1:9/mcp"
OTHER = "http://127.0.0.1:8/mcp"


def chosen(
    url: str | None = None, socket_path: str | None = None, token_file: str | None = None, **environ: str
) -> Endpoint:
    """Choose from options and from variables, which are named without their common beginning."""
    variables = {f"HIVE_SUBAGENT_{name}": value for name, value in environ.items()}
    return chosen_endpoint(url=url, socket_path=socket_path, token_file=token_file, environ=variables)


def test_an_option_comes_before_the_environment_and_that_before_the_default() -> None:
    assert chosen(URL, URL=OTHER) == TcpEndpoint("127.0.0.1", 9)
    assert chosen(socket_path="/run/x", URL=OTHER) == UnixEndpoint(Path("/run/x"))
    assert chosen(URL=OTHER) == TcpEndpoint("127.0.0.1", 8)
    assert chosen() == chosen(URL="") == TcpEndpoint("127.0.0.1", 7310)


@pytest.mark.parametrize("where", [{"url": URL}, {"socket_path": "/run/x"}, {"URL": URL}, {}])
def test_a_token_goes_with_every_address(where: dict[str, str]) -> None:
    assert chosen(**where).token_file is None
    assert chosen(**where, TOKEN_FILE="/t").token_file == Path("/t")
    assert chosen(**where, token_file="/u", TOKEN_FILE="/t").token_file == Path("/u")
    assert chosen(**where, token_file="", TOKEN_FILE="/t").token_file is None


def test_a_token_in_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert chosen(TOKEN_FILE="~/t").token_file == Path("/h/t")


def test_a_wrong_address_says_where_it_stands() -> None:
    with pytest.raises(AddressError, match=r"^\$HIVE_SUBAGENT_URL: 'x' cannot be used"):
        chosen(URL="x")
    with pytest.raises(AddressError, match=r"^'x' cannot be used"):
        chosen("x", URL=URL)


def test_a_token_file_in_a_home_of_nobody_is_a_sentence() -> None:
    with pytest.raises(AddressError, match="no user with that home"):
        chosen_endpoint(url=None, socket_path=None, token_file="~nobody-of-this-name/t", environ={})
