"""Values of every shape, for the core and for the daemon to judge."""

from __future__ import annotations

from typing import Any

URL = "http://127.0.0.1:9000/mcp"
# What the modules set from options of their own; the daemon checks those again when the system is built.
FROM_OPTIONS = {"agent", "claude", "work_dir", "listen", "mcp_servers", "scopes.slice"}

VALUES: list[object] = [
    *(True, 0, 1, 2, -1, 0.5, 99999, 40000, 10**8, 2**63 - 1),
    *("", " ", "x", "stop", "adopt", "auto", "user", "off", "continue", "kill", "debug", "info", "loud"),
    *(
        "0022",
        "22",
        "0999",
        "077",
        "512M",
        "2G",
        "40%",
        "0%",
        "101%",
        "900 %",
        "infinity",
        "12x",
        "0",
        "000K",
    ),
    *("8388607T", "8388608T", "8589934591G", "8589934592G", "999999999999999K", "1000000000000000"),
    *("/srv/x", "~", "~/x", "~bob/x", "~bob", "$HOME/x", "./x"),
    *(
        [],
        ["x"],
        [1],
        [True],
        [[]],
        {},
        {"A": "b"},
        {"A": 1},
        {"A": {"file": "/x"}},
        {"A": {"file": "/x", "b": 1}},
    ),
]


def http(**given: object) -> dict[str, object]:
    """Return a sink that posts."""
    return {"type": "http", "url": URL, **given}


def command(*argv: object, **given: object) -> dict[str, object]:
    """Return a sink that is a program."""
    return {"type": "command", "argv": list(argv), **given}


SINK_URLS = [
    *(
        "http://x",
        "https://x/",
        "HTTP://x:80/a?b=c",
        "http://x:0",
        "http://x:65535",
        "http://x:65536",
        "http://x:/",
    ),
    *(
        "http://[::1]:80/x",
        "http://[1.2.3.4]/",
        "http://[::1.2.3.4]/",
        "http://[1:2]",
        "http://[x]/",
        "http://[::1/",
        "http://",
        "http:/x",
        "x",
        "",
        " ",
        "ftp://x",
        "mailto:a@b",
    ),
    *(
        "http://a@b/",
        "http://a:b@c/",
        "http://x/@",
        "http://x/#f",
        "http://x/#",
        "http://x/a b",
        "http://x/ü",
    ),
    *("http://x?y", "http://:80/", "http://x:y/", "https://x.example:8443/a/b?team=a"),
    *(
        "unix:/run/x",
        "unix:/run/x:/y",
        "unix:x",
        "unix:",
        "unix:~/x",
        f"unix:/{'x' * 106}",
        f"unix:/{'x' * 107}",
    ),
    *("http+unix://%2Frun%2Fx/y", "http+unix://run/y", "http+unix:///y"),
]
SINKS: list[object] = [
    *([http(url=url)] for url in SINK_URLS),
    [command("/bin/x", "a", "")],
    *([command(first)] for first in ("x", "./x", "~/x", "~bob/x", "~bob", "", " ", 1)),
    *([command("/bin/x", second)] for second in (1, "NoneType", ["x"])),
    *(
        [command()],
        [{"type": "command"}],
        [{"type": "http"}],
        [{"url": URL}],
        [{"type": "mail"}],
        [{"type": 1}],
    ),
    [{"type": "command", "argv": "/bin/x"}],
    [http(argv=["x"])],
    [command("/bin/x", url=URL)],
    [command("/bin/x", header_file="/x")],
    *([http(header_file=file)] for file in ("/run/x", "~/x", "x", "", 1, "$CREDENTIALS_DIRECTORY/x")),
    *([http(name=name)] for name in ("a", "A.b_c-d", "", "-a", "a b", "a" * 63, "a" * 64, 1)),
    [http(colour="red")],
    [http(), http()],
    [http(), http(name="a")],
    [http(name="a"), command("/bin/x", name="a")],
    [command("x", "y"), command("x", "y")],
    [http(name=f"n{number}") for number in range(32)],
    [http(name=f"n{number}") for number in range(33)],
]
VALUES_OF: dict[str, list[object]] = {
    "loose_ends.sinks": SINKS,
    "auth.token_file": [
        *("$CREDENTIALS_DIRECTORY/a", "$CREDENTIALS_DIRECTORY/.a", "$CREDENTIALS_DIRECTORY/a.b"),
        *(
            "$CREDENTIALS_DIRECTORY",
            "$CREDENTIALS_DIRECTORY/",
            "$CREDENTIALS_DIRECTORY/.",
            "$CREDENTIALS_DIRECTORY/..",
        ),
        *(
            "$CREDENTIALS_DIRECTORY/...",
            "$CREDENTIALS_DIRECTORY/..a",
            "$CREDENTIALS_DIRECTORY/a/b",
            "$X",
            "a/$X",
        ),
    ],
    "auth.allow_uids": [[0], [4294967294], [4294967295], [-1], [1000, 1000], [1.5], ["1000"]],
    "environment": [
        *({name: "x"} for name in ("A", "a1", "_", "1A", "A-B", "A.B", "A B", "A=B", "Ü")),
        *({"A": {"file": file}} for file in ("/x", "~/x", "x", "", 1, "~bob/x")),
        *({"A": ""}, {"A": ["x"]}, {"A": {}}),
    ],
}
ENTRIES: list[dict[str, Any]] = [
    {"url": URL},
    {"url": URL, "type": "sse"},
    {"url": URL, "type": "streamable-http"},
    {"url": URL, "type": "stdio"},
    {"url": URL, "type": 1},
    {"url": URL, "command": "/bin/x"},
    {"url": URL, "args": ["x"]},
    {"url": URL, "env": {"A": "b"}},
    {"url": URL, "headers": {"A": "b"}, "timeout": 1000, "alwaysLoad": True},
    *(
        {"url": URL, "headers": headers}
        for headers in ({"A": 1}, {"A B": "x"}, {"": "x"}, {"A": "b\nc"}, {"A": ""})
    ),
    *({"url": URL, "timeout": timeout} for timeout in (0, 1, "1", 2**31 - 1, 2**31, 1.5)),
    *({"url": URL, "alwaysLoad": value} for value in (False, 1, "yes")),
    {"url": URL, "headersHelper": "/bin/x"},
    {"url": URL, "headersHelper": " "},
    *({"url": url} for url in ("127.0.0.1:9000", "${DOCS}/mcp", "", " ", 1, "ws://x", "HTTP://x")),
    {"url": "wss://127.0.0.1/", "type": "ws"},
    {"url": "http://127.0.0.1/", "type": "ws"},
    {"command": "/bin/x"},
    {"command": "/bin/x", "args": ["a", ""], "env": {"A": "b", "B-C": ""}},
    *({"command": "/bin/x", "args": args} for args in ("a", [1], {"a": "b"})),
    *({"command": "/bin/x", "env": env} for env in ({"A": 1}, {"": "x"}, {"A=B": "x"}, ["x"])),
    {"command": "/bin/x", "headers": {"A": "b"}},
    {"command": "/bin/x", "type": "http"},
    {"command": " "},
    {"args": ["a"]},
    # Keys that nobody knows yet are passed on; known ones in another spelling are a mistake.
    {"url": URL, "oauth": {"clientId": "x", "scopes": ["a", 1, 2.5, True]}},
    {"url": URL, "tags": [], "meta": {}},
    *({"url": URL, key: "x"} for key in ("URL", "Command", "headers_helper", "always-load", "Timeout")),
]
SERVER_NAMES = ["docs", "my-docs_2", "-", "my docs", "a.b", "", "ü", "a/b"]
ADDRESSES = [
    *("127.0.0.1", "127.1.2.3", "127.0.0.256", "127.0.0.01", "127.0.0", "0.0.0.0", "10.0.0.5", "1.2.3.4.5"),
    *(
        "::1",
        "0:0:0:0:0:0:0:1",
        "::",
        "::0",
        "fe80::1",
        "fe80::1%lo",
        "2001:db8::1",
        "1:2:3:4:5:6:7",
        "::1::",
    ),
    *(
        "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7::",
        ":::",
        "12345::",
        "::ffff:7f00:1",
        "::g",
        "",
    ),
]


def nested(place: tuple[str, ...], value: object) -> object:
    """Return the value in as many sets as its place has names."""
    for name in reversed(place):
        value = {name: value}
    return value


# Changes of an agent that is well, by what they are.
AGENTS_THAT_ARE_WELL: dict[str, dict[str, Any]] = {
    "nothing": {},
    "limits": {"limits": {"MemoryMax": "4G", "MemoryHigh": "40%", "MemorySwapMax": 0, "TasksMax": 500}},
    "weights": {"limits": {"CPUWeight": 50, "OOMPolicy": "kill", "slice": "agents.slice"}},
    "another address": {"listenAddress": "::1", "port": 20001},
    "variables": {"environment": {"LANG": "C.UTF-8"}, "secretEnvironment": {"API_KEY": "/run/secrets/key"}},
    "a token": {
        "credentials": {"token": "/run/secrets/token"},
        "settings": {"auth": {"token_file": "$CREDENTIALS_DIRECTORY/token", "allow_uids": [1001]}},
    },
    "settings": {"settings": {"umask": "0027", "log_level": "debug", "retention": {"idle_days": 30}}},
    "more settings": {"settings": {"limits": {"max_running": 2, "exit_grace_seconds": 0.5}}},
    "scopes": {"settings": {"scopes": {"manager": "auto"}}},
    "a file of a variable": {"settings": {"environment": {"TOKEN": {"file": "/run/secrets/token"}}}},
    "sinks": {"settings": {"loose_ends": {"sinks": [http(), command("/bin/true", name="notify")]}}},
    "servers": {
        "mcpServers": {
            "docs": {
                "url": URL,
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "availableToSubagents": True,
            },
            "git": {"command": "/bin/git", "args": ["x"], "availableToSubagents": True, "oauth": {"a": [1]}},
            "own": {"command": "/bin/x", "allowedTools": ["*"], "enable": True, "args": [], "env": {}},
            "off": {"enable": False},
        }
    },
}
AGENTS: dict[str, dict[str, Any]] = {
    **AGENTS_THAT_ARE_WELL,
    "adopting": {"settings": {"on_restart": "adopt"}},
    **{
        f"MemoryMax {value}": {"limits": {"MemoryMax": value}}
        for value in (0, "0", "900 %", "900%", "1.5G", -1, "")
    },
    **{f"TasksMax {value}": {"limits": {"TasksMax": value}} for value in (0, "5K", "100%", "5")},
    **{f"CPUWeight {value}": {"limits": {"CPUWeight": value}} for value in (0, 1, 10000, 10001)},
    "another policy": {"limits": {"OOMPolicy": "restart"}},
    **{
        f"slice {name}": {"limits": {"slice": name}}
        for name in ("a.slice", "a-b.slice", "a", "-a.slice", "a--b.slice")
    },
    **{f"variable {name}": {"environment": {name: "x"}} for name in ("A-B", "1A", "a_b", "A.B")},
    **{
        f"address {address}": {"listenAddress": address}
        for address in ("127.0.0.2", "0.0.0.0", "localhost:1", "::g")
    },
    "the whole machine, with a token": {
        "listenAddress": "0.0.0.0",
        "credentials": {"token": "/run/x"},
        "settings": {"auth": {"token_file": "$CREDENTIALS_DIRECTORY/token"}},
    },
    "a sink without a type": {"settings": {"loose_ends": {"sinks": [{"url": URL}]}}},
    "no list of sinks": {"settings": {"loose_ends": {"sinks": http()}}},
    "a bad uid": {"settings": {"auth": {"allow_uids": ["alice"]}}},
    "a bad token": {"settings": {"auth": {"token_file": "$HOME/token"}}},
    "an unknown key": {"settings": {"colour": "red"}},
    "an unknown key of a section": {"settings": {"limits": {"maxRunning": 2}}},
    "a section that is none": {"settings": {"retention": 3}},
    "both ways to a server": {
        "mcpServers": {"docs": {"url": URL, "command": "x", "availableToSubagents": True}}
    },
    "a server by a bad name": {"mcpServers": {"my docs": {"url": URL, "availableToSubagents": True}}},
    "a misspelt key of a server": {
        "mcpServers": {"docs": {"url": URL, "Headers": {}, "availableToSubagents": True}}
    },
}
