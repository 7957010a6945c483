"""Whatever stands in the state directory, the daemon starts, settles what was left, and stays inside."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import tomli_w
from hypothesis import strategies as st

from hive_subagent_daemon.config import effective
from hive_subagent_daemon.errors import ConfigError
from tests.support.fuzzing import JSON_JUNK, LONG_LIMIT_SECONDS, damaged, fuzz, retyped
from tests.unit.config_loading import load
from tests.unit.support_output import on_tmpfs
from tests.unit.support_records import TURN, loose_end, subagent_record, turn_record
from tests.unit.support_turns import Parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHER = "20260131_120000_001_abcd"
ALPHABET = b'{}[]",:\\ \n0123456789-TZ./nulltrufasx'
LIMIT_SECONDS = 2.0
PLACES = {
    "turns": f"turns/{OTHER}.reviewer/record.json",
    "names": "names/reviewer.json",
    "loose-ends": f"loose-ends/{TURN}.json",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder on tmpfs, if there is one."""
    with on_tmpfs() as folder:
        yield folder


@pytest.fixture
def wholes(folder: Path) -> dict[str, bytes]:
    """Return a valid record of each kind."""
    (folder / "whole").mkdir()
    parts = Parts(folder / "whole")
    parts.records.begin_turn(turn_record(OTHER))
    parts.records.remember(subagent_record(prompt_copy=str(parts.records.prompt_path("reviewer", TURN))))
    parts.records.store_loose_end(loose_end())
    return {kind: (parts.state / place).read_bytes() for kind, place in PLACES.items()}


def as_json(value: object) -> bytes:
    """Return what a careless writer makes of a value."""
    return json.dumps(value).encode()


def contents(wholes: dict[str, bytes]) -> st.SearchStrategy[dict[str, bytes]]:
    """Give what may stand in the three files: whole, damaged, retyped or anything."""
    return st.fixed_dictionaries(
        {
            kind: st.just(whole)
            | damaged([whole], alphabet=ALPHABET)
            | retyped([json.loads(whole)], JSON_JUNK).map(as_json)
            | st.binary(max_size=60)
            for kind, whole in wholes.items()
        }
    )


@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_any_content_of_the_records_is_settled_or_set_aside(
    request: pytest.FixtureRequest, folder: Path, wholes: dict[str, bytes]
) -> None:
    """Every turn that left a folder has its loose end, and nothing outside was written."""
    around = folder / "around"

    def check(given: dict[str, bytes]) -> None:
        """Try one input."""
        shutil.rmtree(around, ignore_errors=True)
        around.mkdir()
        empty = Parts(around)
        (empty.state / f"turns/{OTHER}.reviewer").mkdir()
        for kind, content in given.items():
            (empty.state / PLACES[kind]).write_bytes(content)
        before = outside_of(empty)
        anyio.run(settled, around)
        assert outside_of(empty) == before

    fuzz(contents(wholes), check, seconds=15, what="records", request=request)


async def settled(around: Path) -> None:
    """Start on what is there, as a daemon does, twice; then use the name."""
    for _ in range(2):
        parts = Parts(around)
        with anyio.fail_after(LIMIT_SECONDS):
            await parts.recovery().settle()
        assert OTHER in parts.inbox
        assert list((parts.state / "turns").iterdir()) == []
        assert await shown(parts) >= 1
    with anyio.fail_after(LIMIT_SECONDS):
        async with parts.running():
            await parts.play("reviewer")


async def shown(parts: Parts) -> int:
    """Read everything as a parent does; return how many loose ends there are."""
    status = await parts.subagents.status(None)
    ends: dict[str, Any] = await parts.subagents.get_loose_ends(name=None, ids=None, limit=100)
    json.dumps([status, ends], ensure_ascii=False, allow_nan=False).encode()
    return len(ends["loose_ends"]) + int(ends["remaining"])


def outside_of(parts: Parts) -> dict[str, bytes | None]:
    """Return everything around the state directory."""
    return {name: content for name, content in parts.files().items() if not name.startswith("state")}


CONFIG = tomli_w.dumps(
    {
        "agent": "a",
        "claude": "/bin/claude",
        "listen": ["127.0.0.1:7310", "unix:/run/s"],
        "umask": "0022",
        "retention": {"closed_days": 7, "idle_days": 90},
        "environment": {"A": "b", "C": {"file": "/run/secret"}},
        "limits": {"max_running": 8, "exit_grace_seconds": 30.5, "max_prompt_bytes": 1000},
        "scopes": {"manager": "off", "memory_max": "2G", "tasks_max": "50%", "cpu_weight": 100},
        "mcp_servers": {"x": {"url": "http://h/mcp", "available_to_subagents": True, "headers": {"A": "b"}}},
    }
).encode()


@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_any_damage_to_a_configuration_loads_or_is_a_sentence(
    request: pytest.FixtureRequest, folder: Path
) -> None:
    """What loads is a whole configuration, which loads again as the same."""

    def check(content: bytes) -> None:
        """Try one input."""
        with contextlib.suppress(ConfigError):
            config = load(folder, content)
            assert load(folder, effective(config)) == config

    damages = damaged([CONFIG], alphabet=b"[]{}=.\"'#\n\\u01-:_ ")
    fuzz(damages, check, seconds=10, what="configurations", request=request)
