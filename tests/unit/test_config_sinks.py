"""The configuration of sinks: URLs and programs become values, every fault is told with its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive_subagent_daemon.config import effective
from hive_subagent_daemon.sink_values import CommandSink, HttpAddress, HttpSink, Sink, SocketAddress
from tests.unit.config_loading import load, refusal

URL = '"http://HOST:PORT/PATH", "https://…", "unix:/SOCKET" or "unix:/SOCKET:/PATH"'

NAME = "1 to 63 letters, digits, '_', '.' and '-', the first one a letter or digit"


def sinks(folder: Path, *tables: str) -> tuple[Sink, ...]:
    """Load a configuration with these sinks."""
    return load(folder, "\n".join(f"[[loose_ends.sinks]]\n{table}" for table in tables)).loose_ends.sinks


def faults(folder: Path, *tables: str) -> list[str]:
    """Return what is wrong with these sinks, without the file and the key."""
    text = refusal(folder, "\n".join(f"[[loose_ends.sinks]]\n{table}" for table in tables))
    return [line.removeprefix("DIR/config.toml: loose_ends.sinks.") for line in text.splitlines()]


def http(url: str) -> str:
    """Return a table of an HTTP sink."""
    return f'type = "http"\nurl = "{url}"'


@pytest.mark.parametrize(
    ("url", "address", "target"),
    [
        ("http://hooks.example:8080/in", HttpAddress("hooks.example", 8080, tls=False), "/in"),
        ("http://hooks.example", HttpAddress("hooks.example", 80, tls=False), "/"),
        ("http://hooks.example?key=1", HttpAddress("hooks.example", 80, tls=False), "/?key=1"),
        ("https://hooks.example/a?b=c&d", HttpAddress("hooks.example", 443, tls=True), "/a?b=c&d"),
        ("http://[::1]:9/x", HttpAddress("::1", 9, tls=False), "/x"),
        ("unix:/run/hook.sock", SocketAddress(Path("/run/hook.sock")), "/"),
        ("unix:/run/hook.sock:/in?a=1", SocketAddress(Path("/run/hook.sock")), "/in?a=1"),
        ("http+unix://%2Frun%2FHook.sock/in", SocketAddress(Path("/run/Hook.sock")), "/in"),
    ],
)
def test_a_url_says_where_and_what_to_post_to(
    tmp_path: Path, url: str, address: HttpAddress | SocketAddress, target: str
) -> None:
    [sink] = sinks(tmp_path, http(url))
    assert isinstance(sink, HttpSink)
    assert (sink.address, sink.target, sink.header_file, sink.name) == (address, target, None, None)


def test_a_header_file_and_a_name_may_be_given(tmp_path: Path) -> None:
    [sink] = sinks(tmp_path, http("unix:~/hook.sock") + '\nheader_file = "~/headers"\nname = "hook-1"')
    assert isinstance(sink, HttpSink)
    assert sink.address == SocketAddress(tmp_path / "home/hook.sock")
    assert (sink.header_file, sink.label) == (tmp_path / "home/headers", "hook-1")


def test_a_program_is_looked_for_in_path_or_at_its_place(tmp_path: Path) -> None:
    found = sinks(
        tmp_path,
        'type = "command"\nargv = ["notify", "", "--to=x"]',
        'type = "command"\nargv = ["./notify"]',
    )
    assert found == (CommandSink(("notify", "", "--to=x")), CommandSink((str(tmp_path / "notify"),)))


def test_without_sinks_loose_ends_are_sent_nowhere(tmp_path: Path) -> None:
    assert load(tmp_path).loose_ends.sinks == ()
    assert load(tmp_path, "loose_ends.sinks = []").loose_ends.sinks == ()


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("", '0: needs type = "http" or "command"'),
        ('type = "mail"', '0.type: must be "http" or "command", not "mail"'),
        ("type = 3", '0.type: must be "http" or "command", not 3'),
        ('type = "http"', '0: needs url with type = "http"'),
        ('type = "command"', '0: needs argv with type = "command"'),
        (http("http://h") + '\nargv = ["x"]', '0.argv: does not go together with type = "http"'),
        (
            'type = "command"\nargv = ["x"]\nurl = "http://h"',
            '0.url: does not go together with type = "command"',
        ),
        (
            'type = "command"\nargv = ["x"]\nheader_file = "/h"',
            '0.header_file: does not go together with type = "command"',
        ),
        (http("http://h") + '\nheaderfile = "/h"', "0.headerfile: unknown key (did you mean header_file?)"),
        (http("http://h") + "\nqqq = 1", "0.qqq: unknown key; allowed here: type, url, header_file, name"),
        (http("http://h") + '\nheader_file = "h"', '0.header_file: must be an absolute path, not "h"'),
        (http("http://h") + "\nheader_file = 3", "0.header_file: must be the path of a file, not a number"),
        (
            http("http://h") + '\nname = "a b"',
            f'0.name: must be {NAME}, not "a b"',
        ),
        ('type = "http"\nurl = 3', f"0.url: must be {URL}, not a number"),
        (http("ftp://h/s3cret"), f"0.url: must be {URL}"),
        (http("http:///s3cret"), f"0.url: must be {URL}"),
        (http("/s3cret"), f"0.url: must be {URL}"),
        (
            http("http://h:0/s3cret"),
            "0.url: must be a URL with a host, and with a port from 1 to 65535 if any",
        ),
        (
            http("http://h:x/s3cret"),
            "0.url: must be a URL with a host, and with a port from 1 to 65535 if any",
        ),
        (
            http("http://[h/s3cret"),
            "0.url: must be a URL with a host, and with a port from 1 to 65535 if any",
        ),
        (
            http("http://me:s3cret@h/"),
            "0.url: must hold no user name and password: put an Authorization header into a header_file",
        ),
        (http("http://h/#s3cret"), "0.url: must have no fragment (#…), which is never sent"),
        (
            http("http://h/s3cret é"),
            "0.url: must be a URL in visible ASCII, everything else percent-encoded",
        ),
        (
            http("unix:hook.sock"),
            "0.url: must name a Unix socket by its absolute path of at most 107 bytes",
        ),
        (
            http(f"unix:/{'x' * 107}"),
            "0.url: must name a Unix socket by its absolute path of at most 107 bytes",
        ),
        (
            http("http+unix://hook.sock/"),
            "0.url: must name a Unix socket by its absolute path of at most 107 bytes",
        ),
        (
            'type = "command"\nargv = []',
            "0.argv: must be a list of strings: the program, then its arguments, not an empty one",
        ),
        ('type = "command"\nargv = ["x", 3, "y", true]', "0.argv.1: must be a string, not a number"),
        ('type = "command"\nargv = [""]', '0.argv.0: must be the name or path of a program, not ""'),
    ],
)
def test_a_fault_names_the_sink_and_the_key_and_never_shows_a_secret(
    tmp_path: Path, table: str, fault: str
) -> None:
    found = faults(tmp_path, table)
    assert found[0] == fault
    assert "s3cret" not in "".join(found)


def test_every_fault_of_every_sink_is_told_at_once(tmp_path: Path) -> None:
    assert faults(tmp_path, 'type = "http"\nname = ""', http("http://h"), 'type = "command"\nargv = [1]') == [
        '0: needs url with type = "http"',
        f'0.name: must be {NAME}, not ""',
        "2.argv.0: must be the name or path of a program, not a number",
    ]


def test_something_else_than_tables_is_refused(tmp_path: Path) -> None:
    key = "DIR/config.toml: loose_ends.sinks"
    text = refusal(tmp_path, 'loose_ends.sinks = "http://h"')
    assert text == f'{key}: must be an array of tables ([[loose_ends.sinks]]), not "http://h"'
    text = refusal(tmp_path, 'loose_ends.sinks = ["http://h"]')
    assert text == f'{key}.0: must be a table with type = "http" or type = "command", not "http://h"'
    text = refusal(tmp_path, '[loose_ends.sinks]\ntype = "http"')
    assert text == f"{key}: must be an array of tables ([[loose_ends.sinks]]), not a table"


def test_the_same_sink_twice_is_refused(tmp_path: Path) -> None:
    named = http("http://a") + '\nname = "x"'
    other = 'type = "command"\nargv = ["p"]\nname = "x"'
    command = 'type = "command"\nargv = ["p"]'
    assert faults(tmp_path, named, other, command, http("http://b"), http("http://b"), command) == [
        "1.name: is the name of an earlier sink too: each needs its own",
        "4.url: is the url of an earlier sink too: each needs its own",
        "5.argv: is the argv of an earlier sink too: each needs its own",
    ]


def test_there_are_at_most_32_sinks(tmp_path: Path) -> None:
    tables = [http(f"http://h:{port}") for port in range(1, 34)]
    assert len(sinks(tmp_path, *tables[:32])) == 32
    assert refusal(tmp_path, "\n".join(f"[[loose_ends.sinks]]\n{table}" for table in tables)).endswith(
        "loose_ends.sinks: must be at most 32 sinks, not 33"
    )


def test_what_may_be_secret_is_in_no_repr_and_no_label(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        '[[loose_ends.sinks]]\ntype = "http"\nurl = "https://h/s3cret?key=s3cret"\n'
        '[[loose_ends.sinks]]\ntype = "command"\nargv = ["/bin/notify", "s3cret"]',
    )
    assert "s3cret" not in repr(config)
    assert [sink.label for sink in config.loose_ends.sinks] == ["https://h", "notify"]
    assert "s3cret" in effective(config)


def test_a_sink_is_known_again_by_its_name_else_by_where_it_leads(tmp_path: Path) -> None:
    """What waits for a sink must survive another header file, and with a name another URL."""
    before = sinks(
        tmp_path, http("http://a"), http("http://b") + '\nname = "x"', 'type = "command"\nargv = ["p"]'
    )
    after = sinks(
        tmp_path,
        http("http://a") + '\nheader_file = "/h"',
        'type = "command"\nargv = ["q"]\nname = "x"',
        'type = "command"\nargv = ["p", "q"]',
    )
    same = [one.id == other.id for one, other in zip(before, after, strict=True)]
    assert same == [True, True, False]
    assert len({sink.id for sink in (*before, *after)}) == 4
