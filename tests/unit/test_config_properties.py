"""Configuration: what holds for any input, and for any configuration."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from hive_subagent_daemon.config import (
    Config,
    FileValue,
    Flags,
    Limits,
    LooseEnds,
    McpServer,
    OnRestart,
    Retention,
    ScopeChoice,
    Scopes,
    TcpAddress,
    UnixAddress,
    effective,
)
from hive_subagent_daemon.config_checks import Places
from hive_subagent_daemon.config_schema import KEYS
from hive_subagent_daemon.config_sinks import sinks as sinks_kind
from hive_subagent_daemon.config_values import UNLIMITED, OomPolicy, Percent
from hive_subagent_daemon.errors import ConfigError
from tests.unit.config_loading import load

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NO_NUL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
WORDS = NO_NUL.filter(lambda text: text.strip() != "")
PATHS = st.lists(st.text("ab é\n~.", min_size=1, max_size=8), min_size=1, max_size=3).map(
    lambda parts: Path("/", *parts)
)
SECONDS = st.floats(0, 31_536_000)
NAMES = st.text("abc_-XYZ09", min_size=1, max_size=8)
VARIABLES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
KNOWN_KEYS = sorted({name for key in KEYS for name in key.place})
ENTRY_KEYS = ["url", "command", "type", "args", "env", "headers", "timeout", "file", "available_to_subagents"]
SINK_KEYS = ["argv", "header_file", "name"]
KEY_NAMES = st.sampled_from([*KNOWN_KEYS, *ENTRY_KEYS, *SINK_KEYS, "subagent"]) | TEXT
SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-2, 2),
    st.floats(),
    TEXT,
    st.sampled_from(["40%", "512M", "infinity", "a-b.slice", "user", "kill"]),
    st.sampled_from(["0022", "auto", "127.0.0.1:1", "unix:/s", "stop", "http", "http://h", "~/x", "/"]),
    st.dates(),
    st.datetimes(),
    st.times(),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY_NAMES, inner, max_size=4),
    max_leaves=12,
)
JSON = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
# No spelling of a key that the daemon itself knows.
OTHER_KEYS = TEXT.map(lambda text: f"x{text}")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give all examples one folder."""
    return tmp_path_factory.mktemp("config")


def entries() -> st.SearchStrategy[dict[str, Any]]:
    """Give entries of MCP servers with everything that is allowed in them."""
    extra = st.dictionaries(OTHER_KEYS, JSON, max_size=2)
    local = st.fixed_dictionaries(
        {"type": st.just("stdio"), "command": WORDS},
        optional={
            "args": st.lists(NO_NUL, max_size=3),
            "env": st.dictionaries(VARIABLES, NO_NUL, max_size=2),
        },
    )
    remote = st.fixed_dictionaries(
        {"type": st.sampled_from(["http", "sse"]), "url": NO_NUL.map(lambda rest: f"https://{rest}")},
        optional={
            "headers": st.dictionaries(NAMES, st.text("ab é"), max_size=2),
            "timeout": st.integers(1, 9),
        },
    )
    return st.tuples(extra, local | remote).map(lambda both: {**both[0], **both[1]})


def servers() -> st.SearchStrategy[tuple[McpServer, ...]]:
    """Give servers with names of their own."""
    one = st.builds(McpServer, NAMES, entries(), st.booleans())
    return st.lists(one, max_size=3, unique_by=lambda server: server.name).map(tuple)


def listen_addresses() -> st.SearchStrategy[tuple[TcpAddress | UnixAddress, ...]]:
    """Give addresses, none twice."""
    hosts = st.sampled_from(["127.0.0.1", "127.9.8.7", "::1", "localhost"])
    sockets = PATHS.filter(lambda path: path.name != "")
    one = st.builds(TcpAddress, hosts, st.integers(0, 65535)) | st.builds(UnixAddress, sockets)
    return st.lists(one, min_size=1, max_size=3, unique=True).map(tuple)


def scopes() -> st.SearchStrategy[Scopes]:
    """Give scopes, each of their limits set or not."""
    sizes = st.sampled_from([1, 4096, 2**63 - 1, UNLIMITED]) | st.integers(1, 2**63 - 1)
    amounts = st.none() | sizes | st.builds(Percent, st.integers(1, 100))
    words = st.text("abAB09:_.\\", min_size=1, max_size=6)
    slices = st.lists(words, min_size=1, max_size=4).map(lambda parts: f"{'-'.join(parts)}.slice")
    return st.builds(
        Scopes,
        manager=st.sampled_from(ScopeChoice),
        slice=st.none() | slices,
        memory_max=amounts,
        memory_high=amounts,
        memory_swap_max=amounts | st.just(0),
        tasks_max=amounts,
        cpu_weight=st.none() | st.integers(1, 10_000),
        oom_policy=st.sampled_from(OomPolicy),
    )


def loose_ends() -> st.SearchStrategy[LooseEnds]:
    """Give sinks as they are read from tables, none twice."""
    urls = st.sampled_from(
        ["http://h", "https://h:1/a?b=c", "http://[::1]:9/", "unix:/s:/p", "http+unix://%2Fs"]
    )
    names = {"name": st.text("aZ0", min_size=1, max_size=5)}
    posts = st.fixed_dictionaries(
        {"type": st.just("http"), "url": urls}, optional=names | {"header_file": PATHS.map(str)}
    )
    programs = WORDS.filter(lambda text: not text.startswith("~"))
    commands = st.fixed_dictionaries(
        {"type": st.just("command"), "argv": st.tuples(programs, NO_NUL).map(list)}, optional=names
    )
    tables = st.lists(posts | commands, max_size=3, unique_by=lambda table: str(table.get("name") or table))
    return tables.filter(lambda every: len({str(one.get("url")) for one in every}) == len(every)).map(
        lambda every: LooseEnds(sinks_kind().read(every, Places(Path("/"), Path("/"))))
    )


CONFIGS = st.builds(
    Config,
    agent=st.text("aé -x.", min_size=1, max_size=63).filter(lambda name: name.strip() not in {"", ".", ".."}),
    claude=WORDS.filter(lambda text: "/" not in text) | PATHS.map(str),
    work_dir=st.just(Path("/")),
    state_dir=PATHS,
    listen=listen_addresses(),
    on_restart=st.just(OnRestart.STOP),
    allow_root=st.booleans(),
    umask=st.integers(0, 0o777),
    log_level=st.sampled_from(["debug", "info", "warning", "error"]),
    retention=st.builds(Retention, st.integers(0, 36_500), st.integers(1, 36_500)),
    environment=st.dictionaries(VARIABLES, NO_NUL | st.builds(FileValue, PATHS), max_size=3),
    scopes=scopes(),
    limits=st.builds(Limits, st.integers(1, 2**63 - 1), SECONDS, SECONDS, st.integers(1, 10_000_000)),
    mcp_servers=servers(),
    loose_ends=loose_ends(),
)


@given(config=CONFIGS)
def test_the_effective_configuration_loads_as_the_same_one(folder: Path, config: Config) -> None:
    assert load(folder, effective(config)) == config


@given(tables=st.dictionaries(KEY_NAMES, JUNK, max_size=6))
@example(tables={"limits": {"max_running": 2**200}})
@example(tables={"loose_ends": {"sinks": [{"type": "http", "url": "http://[::"}, {"type": "command"}, 3]}})
@example(tables={"mcp_servers": {"a": {"url": "http://h", "x": [[[[]]]]}}})
def test_any_tables_load_or_are_a_configuration_error(folder: Path, tables: dict[str, Any]) -> None:
    toml = tomli_w.dumps(tables)
    try:
        config = load(folder, toml)
    except ConfigError as error:
        lines = str(error).split("\n")
        assert all(line.startswith((f"{folder}/config.toml: ", "and ")) for line in lines)
    else:
        assert load(folder, effective(config)) == config


@given(content=st.binary(max_size=200) | st.text("[]{}=.\"'#\n\\u0a1-:", max_size=60).map(str.encode))
def test_any_bytes_load_or_are_a_configuration_error(folder: Path, content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        load(folder, content)


ANY_TEXT = st.none() | st.text(max_size=12)


@given(
    flags=st.builds(
        Flags,
        listen=st.lists(st.text(max_size=12), max_size=2).map(tuple),
        **{field.name: ANY_TEXT for field in dataclasses.fields(Flags) if field.name != "listen"},
    )
)
def test_any_flags_load_or_are_a_configuration_error(folder: Path, flags: Flags) -> None:
    with contextlib.suppress(ConfigError):
        config = load(folder, flags=flags)
        assert load(folder, effective(config)) == config
