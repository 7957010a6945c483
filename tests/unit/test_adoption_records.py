"""Turns that other versions recorded, damaged records, full disks and set clocks: adopted or told truly."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import clock, procfs
from tests.unit import support_streams as streams
from tests.unit.support_children import START_TICKS, FakeChild
from tests.unit.support_turns import Parts
from tests.unit.test_adoption import adopt
from tests.unit.test_recovery import PID, SUCCESS, TURN, leave, record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# As the version before `on_restart` stored it, word for word but for what differs from run to run.
BEFORE_ADOPTION = (
    '{"turn":"20260131_120000_000_abcd","name":"alpha","resumes":false,"dir":"@DIR@",'
    '"session_id":"0f0e0d0c-0b0a-4908-8706-050403020100","model":null,"prompt_copy":"@PROMPT@",'
    '"started_at":"2026-01-31T12:00:00.000Z","boot_id":"@BOOT@","mcp_servers":[],"archived":[],"pid":@PID@,'
    '"pid_start":@START@,"scope":null,"cgroup":null,"memory_limit_bytes":null,"oom_outlived":0,'
    '"bounds":{"timeout_seconds":null,"max_budget_usd":null,"max_turns":null},'
    '"parentage":{"name":null,"turn":null,"depth":1}}\n'
)
NEWER = {"sung": ["a", {"b": 1}], "began": None, "bounds": {"timeout_seconds": None, "most_songs": 3}}


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts on a fresh folder; they adopt."""
    made = Parts(tmp_path)
    made.registry.adopts = True
    return made


def running(parts: Parts) -> tuple[FakeChild, Path]:
    """Leave a turn that lives; return its process and the file of its record."""
    files = leave(parts, record(parts), stdout=streams.lines(streams.init()))
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    return child, files.folder / "record.json"


def as_before_adoption(parts: Parts, _now: str) -> str:
    """Return the record of the older version."""
    differing = {
        "@DIR@": str(parts.work),
        "@PROMPT@": str(parts.records.prompt_path("alpha", TURN)),
        "@BOOT@": procfs.boot_id(),
        "@PID@": str(PID),
        "@START@": str(START_TICKS),
    }
    text = BEFORE_ADOPTION
    for mark, value in differing.items():
        text = text.replace(mark, value)
    return text


def as_of_a_newer_version(_parts: Parts, now: str) -> str:
    """Return the record with what this version does not know: it is passed over."""
    return json.dumps(json.loads(now) | NEWER)


@pytest.mark.parametrize("version", [as_before_adoption, as_of_a_newer_version])
async def test_a_turn_that_another_version_recorded_is_followed(
    parts: Parts, version: Callable[[Parts, str], str]
) -> None:
    child, path = running(parts)
    path.write_text(version(parts, path.read_text()))
    async with parts.running():
        await adopt(parts)
        assert (await parts.status_of())["state"] == "running"
        assert parts.records.unreadable == []
        child.says(streams.result("made it"))
        child.end()
        end = await parts.ended(TURN)
    assert (end["outcome"], end["text"], child.signals) == ("completed", "made it", [])


async def test_a_turn_whose_record_is_damaged_is_ended_and_told(parts: Parts) -> None:
    """Nothing tells any more which process it was."""
    child, path = running(parts)
    child.pid = 0
    path.write_text(path.read_text()[:40])
    async with parts.running():
        await adopt(parts)
        assert not parts.registry.running
        end = await parts.ended(TURN)
    assert (end["outcome"], child.emptied) == ("killed", 1)
    assert len(parts.records.unreadable) == 1


@pytest.mark.parametrize("missing", ["stdout", "stderr", "stdin"])
async def test_a_turn_whose_folder_lacks_a_file_is_followed(parts: Parts, missing: str) -> None:
    child, path = running(parts)
    (path.parent / missing).unlink()
    async with parts.running():
        await adopt(parts)
        assert (await parts.status_of())["state"] == "running"
        child.says(streams.result("made it"))
        child.end()
        assert (await parts.ended(TURN))["outcome"] == "completed"


async def test_a_full_disk_keeps_no_turn_from_being_followed_and_interrupted(parts: Parts) -> None:
    """What is only for the next daemon is not stored then."""
    child, _ = running(parts)
    parts.storage.broken = "turns"
    async with parts.running():
        await adopt(parts)
        await parts.subagents.interrupt(name="alpha", force=False)
        end = await parts.ended(TURN)
    assert (end["cause"], child.signals) == ("interrupt", [signal.SIGINT])


async def test_the_end_after_a_result_is_gone_on_with(parts: Parts) -> None:
    """The daemon had died between that decision and the signal."""
    begun = replace(record(parts), stopped_after_result=True)
    files = leave(parts, begun, stdout=SUCCESS)
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        end = await parts.ended(TURN)
    assert (end["outcome"], child.signals) == ("completed", [signal.SIGTERM])


@pytest.mark.parametrize("hours", [-5, 5], ids=["set-back", "set-forward"])
async def test_a_clock_that_was_set_makes_no_turn_longer_than_it_was(parts: Parts, *, hours: int) -> None:
    """It ended while no daemon ran; the wall clock was set in between."""
    began = clock.as_text(clock.now() - timedelta(hours=hours))
    leave(parts, replace(record(parts), started_at=began, began=time.monotonic() - 60), stdout=SUCCESS)
    async with parts.running():
        await adopt(parts)
        end = await parts.ended(TURN)
    assert 0 <= end["duration_seconds"] < 300
