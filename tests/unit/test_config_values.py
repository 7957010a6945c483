"""Configuration: what each plain key accepts, refuses, and says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive_subagent_daemon.config import FileValue, Flags, TcpAddress, UnixAddress
from tests.unit.config_loading import load, refusal

BRACKETS = "write an IPv6 address in brackets, as in [::1]:7310"

SHELL_NAME = "a variable name of letters, digits and '_' that does not begin with a digit"


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("agent = 3", "1 to 63 printable characters without '/', not a number"),
        ('agent = ""', "1 to 63 printable characters without '/', not \"\""),
        ('agent = " "', "1 to 63 printable characters without '/', not \" \""),
        ('agent = "."', "1 to 63 printable characters without '/', not \".\""),
        ('agent = ".."', "1 to 63 printable characters without '/', not \"..\""),
        ('agent = "a\\nb"', "1 to 63 printable characters without '/', not \"a\\nb\""),
        ('agent = "a\\u0000"', "1 to 63 printable characters without '/', without NUL characters"),
        ("allow_root = 1", "true or false, not 1"),
        ('allow_root = "true"', 'true or false, not "true"'),
        ("umask = 22", 'octal digits in a string, from "0000" to "0777", not 22'),
        ('umask = "0o22"', 'octal digits in a string, from "0000" to "0777", not "0o22"'),
        ('umask = "1777"', 'octal digits in a string, from "0000" to "0777", not "1777"'),
        ('umask = "8"', 'octal digits in a string, from "0000" to "0777", not "8"'),
        ("log_level = 1", '"debug" or "info" or "warning" or "error", not 1'),
        ('log_level = "INFO"', '"debug" or "info" or "warning" or "error", not "INFO"'),
        ('on_restart = "go"', '"stop" or "adopt", not "go"'),
        ("scopes.manager = true", '"auto" or "user" or "system" or "off", not true'),
        ("state_dir = []", "a path, not an array"),
        ("state_dir = 2020-01-01", "a path, not a date or time"),
        ("retention.closed_days = -1", "a whole number from 0 to 36500, not -1"),
        ("retention.idle_days = 0", "a whole number from 1 to 36500, not 0"),
        ("retention.idle_days = 7.0", "a whole number from 1 to 36500, not 7.0"),
        ("limits.max_running = 0", "a whole number of at least 1, not 0"),
        ("limits.max_running = true", "a whole number of at least 1, not true"),
        (f"limits.max_running = {2**63}", "a whole number of at least 1, not a number beyond 64 bits"),
        (
            f"limits.max_running = 0x1{'0' * 5000}",
            "a whole number of at least 1, not a number beyond 64 bits",
        ),
        ("limits.max_prompt_bytes = 0", "a whole number from 1 to 10000000, not 0"),
        ("limits.max_prompt_bytes = 10_000_001", "a whole number from 1 to 10000000, not 10000001"),
        ("limits.exit_grace_seconds = -0.1", "a number of seconds from 0 to 31536000, not -0.1"),
        ("limits.exit_grace_seconds = nan", "a number of seconds from 0 to 31536000, not nan"),
        ("limits.stall_after_seconds = inf", "a number of seconds from 0 to 31536000, not inf"),
        ("limits.stall_after_seconds = false", "a number of seconds from 0 to 31536000, not false"),
        ('limits.stall_after_seconds = "6m"', 'a number of seconds from 0 to 31536000, not "6m"'),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(tmp_path: Path, line: str, allowed: str) -> None:
    key = line.split(" ", maxsplit=1)[0]
    assert refusal(tmp_path, line) == f"DIR/config.toml: {key}: must be {allowed}"


@pytest.mark.parametrize("agent", ["a", "-p", "Ärger mit Leerzeichen", "x" * 63, "..."])
def test_any_printable_name_may_be_the_agents(tmp_path: Path, agent: str) -> None:
    assert load(tmp_path, flags=Flags(agent=agent)).agent == agent


def test_an_agents_name_of_64_characters_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, flags=Flags(agent="x" * 64)).startswith("--agent: must be 1 to 63 printable")


@pytest.mark.parametrize(("text", "mask"), [("0", 0), ("22", 0o22), ("077", 0o77), ("0777", 0o777)])
def test_a_umask_is_read_as_octal(tmp_path: Path, text: str, mask: int) -> None:
    assert load(tmp_path, f'umask = "{text}"').umask == mask


@pytest.mark.parametrize("edge", ["0", "0.0", "31536000"])
def test_seconds_may_be_whole_or_not_and_reach_both_ends(tmp_path: Path, edge: str) -> None:
    seconds = load(tmp_path, f"limits.exit_grace_seconds = {edge}").limits.exit_grace_seconds
    assert isinstance(seconds, float)
    assert seconds == float(edge)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~", "DIR/home"),
        ("~/a/b", "DIR/home/a/b"),
        ("~//a", "DIR/home/a"),
        ("relative/dir", "DIR/relative/dir"),
        ("/absolute", "/absolute"),
        ("a~b", "DIR/a~b"),
    ],
)
def test_a_path_is_expanded_and_made_absolute(tmp_path: Path, text: str, expected: str) -> None:
    state_dir = load(tmp_path, flags=Flags(state_dir=text)).state_dir
    assert str(state_dir).replace(str(tmp_path), "DIR") == expected


def test_the_home_of_another_user_is_not_guessed(tmp_path: Path) -> None:
    message = '"~bob/x": only ~ and ~/ are expanded; write the path in full'
    assert refusal(tmp_path, flags=Flags(state_dir="~bob/x")) == f"--state-dir: {message}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("claude", "claude"),
        ("~claude", "~claude"),
        ("~/bin/claude", "DIR/home/bin/claude"),
        ("./claude", "DIR/claude"),
        ("/opt/claude", "/opt/claude"),
    ],
)
def test_a_program_with_a_slash_is_a_path_and_without_one_a_name(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert load(tmp_path, flags=Flags(claude=text)).claude.replace(str(tmp_path), "DIR") == expected


def test_a_work_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, 'work_dir = "gone"') == (
        'DIR/config.toml: work_dir: must be an existing directory; "DIR/gone": No such file or directory'
    )
    assert refusal(tmp_path, flags=Flags(work_dir="config.toml")) == (
        '--work-dir: must be an existing directory; "DIR/config.toml" is not a directory'
    )
    assert "File name too long" in refusal(tmp_path, flags=Flags(work_dir="x" * 5_000))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7310", TcpAddress("127.0.0.1", 7310)),
        ("127.1.2.3:1", TcpAddress("127.1.2.3", 1)),
        ("127.0.0.1:0", TcpAddress("127.0.0.1", 0)),
        ("[::1]:65535", TcpAddress("::1", 65535)),
        ("[0:0::1]:1", TcpAddress("::1", 1)),
        ("localhost:1", TcpAddress("localhost", 1)),
        ("LocalHost:1", TcpAddress("localhost", 1)),
        ("unix:/run/a b.sock", UnixAddress(Path("/run/a b.sock"))),
    ],
)
def test_a_loopback_address_or_a_unix_socket_may_be_listened_on(
    tmp_path: Path, text: str, address: TcpAddress | UnixAddress
) -> None:
    assert load(tmp_path, flags=Flags(listen=(text,))).listen == (address,)


def test_a_unix_socket_may_be_in_the_home_directory(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'listen = ["unix:~/s"]', environ={"HOME": "/h"})
    assert loaded.listen == (UnixAddress(Path("/h/s")),)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0:7310",
        "192.0.2.1:7310",
        "[::]:7310",
        "[2001:db8::1]:1",
        "myhost:7310",
        "localhost.example:1",
    ],
)
def test_an_address_beyond_loopback_is_refused_by_name(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, flags=Flags(listen=("127.0.0.1:1", text))) == (
        f'--listen: "{text}" is not a loopback address; that needs a token, so set auth.token_file, or use '
        '127.0.0.1, [::1], localhost or "unix:/PATH"'
    )
    allowed = load(tmp_path, 'auth.token_file = "/t"', flags=Flags(listen=("127.0.0.1:1", text)))
    assert [address.text for address in allowed.listen] == ["127.0.0.1:1", text]


@pytest.mark.parametrize(
    "text",
    [
        *("[::ffff:127.0.0.1]:1", "[::1%lo]:1", "[localhost]:1", "127.1:7310", "0x7f.1:1", "2130706433:1"),
        *("*:1", "a b:1", "-a:1", f"{'a' * 64}:1", "a..b:1"),
    ],
)
def test_what_is_neither_an_address_nor_a_name_is_refused(tmp_path: Path, text: str) -> None:
    toml = 'auth.token_file = "/t"'
    assert refusal(tmp_path, toml, flags=Flags(listen=(text,))) == (
        f'--listen: must be "HOST:PORT" or "unix:/PATH" with an address or a host name, not "{text[:60]}'
        f'{"…" if len(text) > 60 else ""}"'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("7310", 'must be "HOST:PORT" or "unix:/PATH", not "7310"'),
        (":7310", 'must be "HOST:PORT" or "unix:/PATH", not ":7310"'),
        ("127.0.0.1", 'must be "HOST:PORT" or "unix:/PATH", not "127.0.0.1"'),
        ("127.0.0.1:", 'must be "HOST:PORT" or "unix:/PATH", not "127.0.0.1:"'),
        ("127.0.0.1:-1", 'must be "HOST:PORT" or "unix:/PATH", not "127.0.0.1:-1"'),
        ("127.0.0.1:\u0661", 'must be "HOST:PORT" or "unix:/PATH", not "127.0.0.1:\u0661"'),
        ("::1:7310", f'must be "HOST:PORT" or "unix:/PATH", not "::1:7310" ({BRACKETS})'),
        ("127.0.0.1:65536", '"127.0.0.1:65536": a port is a number from 0 to 65535'),
        ("unix:run/s", 'must be "unix:" and an absolute path, not "unix:run/s"'),
        ("unix:", 'must be "unix:" and an absolute path, not "unix:"'),
        ("unix:@abstract", 'must be "unix:" and an absolute path, not "unix:@abstract"'),
        ("unix:/", 'must be "unix:" and an absolute path, not "unix:/"'),
    ],
)
def test_an_address_of_another_form_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    assert refusal(tmp_path, flags=Flags(listen=(text,))) == f"--listen: {reason}"


def test_a_socket_path_is_as_long_as_the_kernel_takes(tmp_path: Path) -> None:
    longest = f"unix:/{'x' * 106}"
    assert load(tmp_path, flags=Flags(listen=(longest,))).listen[0].text == longest
    assert refusal(tmp_path, flags=Flags(listen=(f"{longest}x",))).endswith("has at most 107 bytes")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[]", 'must be a list of "HOST:PORT" or "unix:/PATH", not an empty one'),
        ('"127.0.0.1:1"', 'must be a list of "HOST:PORT" or "unix:/PATH", not "127.0.0.1:1"'),
        ("[7310]", 'must be "HOST:PORT" or "unix:/PATH", not a number'),
        ('["127.0.0.1:1", "127.0.0.1:01"]', '"127.0.0.1:1" is listed twice'),
    ],
)
def test_a_wrong_list_of_addresses_is_refused(tmp_path: Path, value: str, reason: str) -> None:
    assert refusal(tmp_path, f"listen = {value}") == f"DIR/config.toml: listen: {reason}"


def test_the_environment_takes_text_and_files(tmp_path: Path) -> None:
    toml = """
        [environment]
        EMPTY = ""
        "_odd_9" = "a=b\\nc"
        TOKEN = { file = "/run/credentials/token" }
        HOMELY = { file = "~/token" }
    """
    assert load(tmp_path, toml).environment == {
        "EMPTY": "",
        "_odd_9": "a=b\nc",
        "TOKEN": FileValue(Path("/run/credentials/token")),
        "HOMELY": FileValue(tmp_path / "home/token"),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '"" = "x"',
            '"": the name must be ' + SHELL_NAME,
        ),
        (
            '"A=B" = "x"',
            '"A=B": the name must be ' + SHELL_NAME,
        ),
        ('"A\\u0000" = "x"', '"A\\x00": the name must be ' + SHELL_NAME),
        ('A = "s3cret\\u0000"', 'A: must be a string or { file = "PATH" }, without NUL characters'),
        ("A = 53", 'A: must be a string or { file = "PATH" }, not a number'),
        ("A = true", 'A: must be a string or { file = "PATH" }, not true or false'),
        ("A = {}", 'A: must be a string or { file = "PATH" }, not a table with other keys'),
        (
            'A = { file = "/a", x = 1 }',
            'A: must be a string or { file = "PATH" }, not a table with other keys',
        ),
        ("A = { file = 1 }", "A: must be the path of a file, not a number"),
        ('A = { file = "a" }', 'A: file must be an absolute path, not "a"'),
    ],
)
def test_what_no_environment_can_hold_is_refused(tmp_path: Path, line: str, message: str) -> None:
    reported = refusal(tmp_path, f"[environment]\n{line}")
    assert reported == f"DIR/config.toml: environment.{message}"
    assert "s3cret" not in reported


def test_a_file_value_need_not_exist_when_the_configuration_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, 'environment.A = { file = "/nonexistent/token" }').environment == {
        "A": FileValue(Path("/nonexistent/token"))
    }
