"""The bearer token: what its file must be like, what comes of a new one, and which header carries it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive_subagent_daemon.token_files import TokenError
from hive_subagent_daemon.tokens import BearerToken

SECRET = "0123456789abcdef"
HEADERS = [(b"host", b"localhost"), (b"authorization", b"Bearer " + SECRET.encode())]


def token_file(folder: Path, content: str = SECRET, mode: int = 0o600) -> Path:
    """Write a token file."""
    file = folder / "token"
    file.write_text(content)
    file.chmod(mode)
    return file


def read(folder: Path, content: str = SECRET) -> BearerToken:
    """Return the token that stands in a file."""
    token = BearerToken(token_file(folder, content))
    token.read()
    return token


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_the_content_without_its_line_end_is_the_token(tmp_path: Path, end: str) -> None:
    assert read(tmp_path, SECRET + end).came_with(HEADERS)


@pytest.mark.parametrize(
    "value",
    [
        "Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer", "Bearer ",
        "", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer 0123456789abcdef x",
        "Bearer\t0123456789abcdef",
    ],
)  # fmt: skip
def test_nothing_else_is_the_token(tmp_path: Path, value: str) -> None:
    assert not read(tmp_path).came_with([(b"authorization", value.encode())])


def test_the_scheme_is_written_in_any_case_and_stands_once(tmp_path: Path) -> None:
    token = read(tmp_path)
    assert token.came_with([(b"authorization", b"bEARER  " + SECRET.encode())])
    assert not token.came_with([])
    assert not token.came_with([HEADERS[1], HEADERS[1]])


def test_without_a_file_there_is_no_token_at_all() -> None:
    token = BearerToken(None)
    token.read()
    assert not token.configured
    assert not token.came_with([(b"authorization", b"Bearer ")])


def test_before_it_is_read_nothing_is_the_token(tmp_path: Path) -> None:
    assert not BearerToken(token_file(tmp_path)).came_with(HEADERS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "16 to 4096 characters"),
        ("\n", "16 to 4096 characters"),
        ("0123456789abcde", "16 to 4096 characters"),
        ("x" * 4097, "16 to 4096 characters"),
        (f"{SECRET}\n{SECRET}", "in one line"),
        (f"{SECRET} ", "letters, digits"),
        (f"{SECRET}é", "letters, digits"),
        (f"=={SECRET}", "letters, digits"),
    ],
)
def test_a_file_that_is_no_token_is_refused_with_what_to_do_and_is_not_shown(
    tmp_path: Path, content: str, reason: str
) -> None:
    with pytest.raises(TokenError, match=reason) as caught:
        read(tmp_path, content)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'token'}: a token ")
    assert "openssl rand" in text
    assert SECRET not in text


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    if kind == "folder":
        path.mkdir()
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(
        TokenError, match=r"/t: the token file cannot be read \(.+\); mend it, or change auth"
    ):
        BearerToken(path).read()


def test_a_new_content_counts_when_it_is_read_again(tmp_path: Path) -> None:
    token = read(tmp_path)
    token_file(tmp_path, SECRET[::-1])
    assert token.came_with(HEADERS)
    token.read()
    assert not token.came_with(HEADERS)
    assert token.came_with([(b"authorization", b"Bearer " + SECRET[::-1].encode())])


@pytest.mark.parametrize("content", [None, "short"])
def test_the_old_token_stays_when_the_file_is_no_good_any_more(tmp_path: Path, content: str | None) -> None:
    token = read(tmp_path)
    (tmp_path / "token").unlink()
    if content is not None:
        token_file(tmp_path, content)
    for taken_over in (token.read, lambda: token.take(tmp_path / "other")):
        with pytest.raises(TokenError):
            taken_over()
        assert token.came_with(HEADERS)
        assert token.file == tmp_path / "token"


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o604, True), (0o602, True)])
def test_a_file_that_others_can_read_or_write_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    BearerToken(token_file(tmp_path, mode=mode)).read()
    assert ["chmod 600" in line for line in caplog.messages] == [True] * warned


def test_a_credential_is_found_in_the_folder_that_the_service_was_given(tmp_path: Path) -> None:
    token_file(tmp_path)
    token = BearerToken(Path("$CREDENTIALS_DIRECTORY/token"), {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    token.read()
    assert token.came_with(HEADERS)


def test_without_credentials_it_is_said_how_to_get_them() -> None:
    with pytest.raises(TokenError, match=r"CREDENTIALS_DIRECTORY is not set, which systemd does .*LoadCred"):
        BearerToken(Path("$CREDENTIALS_DIRECTORY/token"), {}).read()


def test_nothing_shows_the_token(tmp_path: Path) -> None:
    assert SECRET not in repr(read(tmp_path))
