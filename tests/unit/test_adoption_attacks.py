"""Adoption where something is off: written by another version, damaged, half done, or somebody else's."""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from hive_subagent_daemon import procfs, progress, registry
from hive_subagent_daemon.cgroups import OomCounters
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.membership import TurnRoot, members
from hive_subagent_daemon.nesting import NestedSubagents
from hive_subagent_daemon.output import TurnFiles
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.procfs import Process
from hive_subagent_daemon.skim import Seen, skim
from hive_subagent_daemon.slices_to_stop import SlicesToStop
from hive_subagent_daemon.values import Cause, SentSignal, Terms
from tests.unit import support_streams as streams
from tests.unit.support_children import FakeChild
from tests.unit.support_turns import Parts, until
from tests.unit.test_adoption import adopt
from tests.unit.test_recovery import PID, SUCCESS, TURN, leave, record

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.launcher import Leftovers

NO_DESCRIPTOR = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
AGO_SECONDS = 300
# As the version before adoption wrote it (no `began`, no `sent`, no progress beside it).
OLDER_TURN = """{"turn":"20260131_120000_000_abcd","name":"alpha","resumes":true,"dir":"WORK",\
"session_id":"21ff6110-79d1-4bac-8db1-a0b75c7a7c82","model":null,\
"prompt_copy":"STATE/prompts/alpha.20260131_110000_000_470b","started_at":"2026-01-31T12:00:00.000Z",\
"boot_id":"BOOT","mcp_servers":[],"archived":[],"pid":4000000,"pid_start":7,"scope":null,"cgroup":null,\
"memory_limit_bytes":null,"oom_outlived":0,\
"bounds":{"timeout_seconds":null,"max_budget_usd":null,"max_turns":null},\
"parentage":{"name":null,"turn":null,"depth":1}}
"""
OLDER_NAME = """{"name":"alpha","dir":"WORK","session_id":"21ff6110-79d1-4bac-8db1-a0b75c7a7c82",\
"model":null,"prompt_copy":"STATE/prompts/alpha.20260131_110000_000_470b","last_turn":{"name":"alpha",\
"turn":"20260131_110000_000_470b","dir":"WORK","session_id":"21ff6110-79d1-4bac-8db1-a0b75c7a7c82",\
"model":"claude-sonnet-4-5","started_at":"2026-01-31T11:00:00.000Z","ended_at":"2026-01-31T11:00:01.000Z",\
"duration_seconds":0.187,"text_length":5,"verdict":{"kind":"completed","cause":null,"signal":null,"oom":null,\
"error_class":null,"error":null,"text":"first","warnings":[],"limited_until":null,"cost_usd":0.0123,"rounds":2,\
"at_own_bound":false},"parentage":{"name":null,"turn":null,"depth":1}}}
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Use the parts on a fresh folder; they adopt, and look often."""
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.01)
    return adopting(tmp_path)


def adopting(folder: Path) -> Parts:
    """Return parts that adopt, as of a daemon that begins now."""
    made = Parts(folder, limits=Limits(max_running=9, max_depth=4, exit_grace_seconds=0.05))
    made.registry.adopts = True
    return made


# Written by other versions


def leave_older(parts: Parts, *, turn: str = OLDER_TURN) -> FakeChild:
    """Leave what the older version wrote of a running turn and of its name; return its process."""
    for place, text in ((f"turns/{TURN}.alpha/record.json", turn), ("names/alpha.json", OLDER_NAME)):
        path = parts.state / place
        path.parent.mkdir(exist_ok=True)
        filled = text.replace("WORK", str(parts.work)).replace("STATE", str(parts.state))
        path.write_text(filled.replace("BOOT", procfs.boot_id()))
    parts.records.copy_prompt("alpha", "20260131_110000_000_470b", b"Be brief.\n")
    files = TurnFiles(parts.records.turn_folder(TURN, "alpha"))
    files.create(b"go on")
    return FakeChild(PID, files.stdout)


async def test_what_the_version_before_adoption_wrote_is_adopted(parts: Parts) -> None:
    """It tells neither when the turn began by our clock nor what was read; nothing of it is set aside."""
    child = leave_older(parts)
    later = adopting(parts.folder)
    later.launcher.left[TURN] = child
    async with later.running():
        await adopt(later)
        assert (await later.status_of())["turn"] == TURN
        child.succeed("second")
        end = await later.ended(TURN)
        assert (end["outcome"], end["text"]) == ("completed", "second")
        await until(lambda: not later.registry.running)
        assert (await later.resume())["session_id"] == end["session_id"]
    assert later.records.unreadable == []
    assert later.records.prompt_path("alpha", "20260131_110000_000_470b").exists()


async def test_what_a_newer_version_adds_is_passed_over(parts: Parts) -> None:
    """Going back to this version loses no turn, as long as what we know of means what it did."""
    child = leave_older(parts, turn=OLDER_TURN.replace('{"turn"', '{"yet":{"to":["come"]},"turn"'))
    stored = progress.encode(progress.Progress(0, Seen())).replace(b"{", b'{"yet":1,', 1)
    (parts.records.turn_folder(TURN, "alpha") / "progress.json").write_bytes(stored)
    parts.launcher.left[TURN] = child
    async with parts.running():
        await adopt(parts)
        child.succeed()
        assert (await parts.ended(TURN))["outcome"] == "completed"


async def test_a_record_whose_words_are_of_a_newer_version_is_stopped(parts: Parts) -> None:
    """What it was about to do to the turn is not known: it is not carried on, and that is told."""
    unknown = '"sent":[{"signal":2,"cause":"a word to come","stdout_bytes":0}],"turn"'
    parts.launcher.left[TURN] = leave_older(parts, turn=OLDER_TURN.replace('"turn"', unknown, 1))
    async with parts.running():
        await adopt(parts)
        assert (await parts.ended(TURN))["cause"] == "daemon stopped"
    assert len(parts.records.unreadable) == 1


# What is on disk is wrong


async def test_progress_beyond_the_end_of_the_output_is_read_again(parts: Parts) -> None:
    files = leave(parts, record(parts), stdout=SUCCESS)
    seen = skim(Seen(), streams.lines(streams.init(model="claude-told-once")), offset=0)
    parts.records.keep_progress(files.folder, progress.Progress(10**9, seen))
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        child.end()
        end = await parts.ended(TURN)
    assert (end["outcome"], end["text"], end["warnings"]) == ("completed", "made it", [])


async def test_an_output_that_is_gone_is_not_taken_for_a_success(parts: Parts) -> None:
    """The process writes into a file that has no name any more."""
    files = leave(parts, record(parts), stdout=SUCCESS)
    files.stdout.unlink()
    files.stderr.unlink()
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        assert (await parts.status_of())["state"] == "running"
        child.end()
        end = await parts.ended(TURN)
    assert (end["outcome"], end["error_class"]) == ("failed", "no result")


async def test_nothing_of_a_full_disk_keeps_turns_from_being_adopted(parts: Parts) -> None:
    """What is new is told once there is room; until then the turn runs on and can be interrupted."""
    files = leave(parts, record(parts), stdout=streams.lines(streams.init()))
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    parts.storage.broken = "turns"
    async with parts.running():
        await adopt(parts)
        assert (await parts.subagents.interrupt(name="alpha", force=False))["signal"] == "SIGINT"
        assert child.signals == [signal.SIGINT]
        parts.heal()
        assert (await parts.ended(TURN))["cause"] == "interrupt"


@pytest.mark.parametrize("scope", ["../../etc.scope", "", "x.service", f"{'x' * 300}.scope", "a\0b.scope"])
async def test_a_scope_that_is_none_is_a_damaged_record(parts: Parts, scope: str) -> None:
    """No file is named after it; the turn is stopped, and the record is set aside."""
    leave(parts, replace(record(parts), scope=scope))
    parts.launcher.left[TURN] = FakeChild(PID, foreign=True)
    async with parts.running():
        await adopt(parts)
        assert (await parts.ended(TURN))["cause"] == "daemon stopped"
    assert len(parts.records.unreadable) == 1
    assert parts.launcher.looked_for[0].scope != scope


# Somebody else's


def test_the_session_of_a_process_that_has_our_pid_now_is_not_ours() -> None:
    """Its leader has another start time, so its members are none of the turn's, and are left alone."""
    root = TurnRoot(TURN, None, PID, 100)
    ours = Process(PID, "claude", "S", 1, PID, 100)
    stranger = replace(ours, start=200)
    within = Process(PID + 1, "x", "S", 1, PID, 201)
    assert {found.pid for found in members(root, [ours, within])} == {PID, PID + 1}
    assert members(root, [stranger, within]) == []


def test_a_lack_of_descriptors_does_not_say_that_a_turn_is_dead(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be stopped then."""
    group = ProcessGroup(Children(), SlicesToStop(parts.storage))
    child = group.child(TurnRoot(TURN, None, os.getpid(), procfs_start()), foreign=True)

    def lacks(_pid: int) -> int:
        raise NO_DESCRIPTOR

    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", lacks)
        with pytest.raises(OSError, match="Too many open files"):
            child.hold()
    assert child.hold()


def procfs_start() -> int:
    """Return when this process started."""
    found = procfs.process(os.getpid())
    assert found is not None
    return found.start


# Half done


async def test_a_force_that_was_broken_off_takes_all_below_it_along(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are noted before the first is killed: the next daemon goes on with that."""
    async with parts.running():
        await parts.start("outer")
        await inside(parts, "outer", "inner")
        stored: list[list[Cause]] = []
        child = parts.launcher.children[0]
        whole = child.empty

        async def looking() -> Leftovers:
            found = [one for _, _, one in parts.records.turns() if one is not None]
            stored.append([sent.cause for one in found for sent in one.sent])
            return await whole()

        monkeypatch.setattr(child, "empty", looking)
        await parts.registry.force(parts.registry.running["outer"])
        assert stored[0] == [Cause.FORCED_INTERRUPT, Cause.FORCED_INTERRUPT]
        await until(lambda: not parts.registry.running)


async def test_those_above_are_known_after_a_restart_although_the_middle_has_ended(parts: Parts) -> None:
    """A forced interrupt of the outermost takes the innermost along."""
    async with parts.running():
        await parts.start("outer")
        await inside(parts, "outer", "inner")
        await inside(parts, "inner", "third")
        outer, inner, third = parts.launcher.children
        inner.succeed()
        await until(lambda: "inner" not in parts.registry.running)
        turns = {name: turn.record.turn for name, turn in parts.registry.running.items()}
    later = adopting(parts.folder)
    later.launcher.left = {turns["outer"]: outer, turns["third"]: third}
    async with later.running():
        await adopt(later)
        await later.subagents.interrupt(name="outer", force=True)
        assert (await later.ended(turns["third"]))["cause"] == "forced interrupt"


async def inside(parts: Parts, parent: str, name: str) -> None:
    """Let a subagent start one of its own."""
    turn = parts.registry.running[parent]
    nested = NestedSubagents(parts.subagents, parts.registry, parts.inbox, turn=turn)
    await nested.start(name=name, prompt_file="recipe.md", model=None, trigger=None, dir=None, terms=Terms())


# Ages, and what follows from them


async def test_giving_back_what_was_read_makes_an_output_no_younger(parts: Parts) -> None:
    """A silent turn stays silent over a restart, and stalled."""
    files = leave(parts, replace(record(parts), began=time.monotonic() - 2 * AGO_SECONDS))
    with files.stdout.open("wb") as stdout:
        stdout.write(streams.lines(streams.init()))
        stdout.write(streams.lines(streams.assistant("x" * 100_000)) * 250)
    then = time.time() - AGO_SECONDS
    os.utime(files.stdout, (then, then))
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        assert (await parts.status_of())["age_seconds"] >= AGO_SECONDS
        child.end()
        await parts.ended(TURN)


async def test_an_adopted_turn_that_waits_to_be_reaped_has_not_overstayed(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is its parent now may let it wait; that is no fault of claude's."""
    files = leave(parts, replace(record(parts), began=time.monotonic() - 500), stdout=SUCCESS)
    child = parts.launcher.left[TURN] = Unreaped(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        looks = 0
        whole = child.oom_kills

        def counted() -> int:
            nonlocal looks
            looks += 1
            return whole()

        monkeypatch.setattr(child, "oom_kills", counted)
        await until(lambda: looks > 20)
        child.end()
        end = await parts.ended(TURN)
    assert (end["outcome"], end["warnings"], child.signals) == ("completed", [], [])


class Unreaped(FakeChild):
    """A process that has ended and waits to be reaped."""

    @override
    def signal(self, number: int) -> bool:
        return False


# A kernel that does not tell how a process of others ended


@dataclass(frozen=True)
class Left:
    """What a turn leaves that ends unseen."""

    stdout: bytes = b""
    stderr: str = ""
    kills: int = 0
    sent: tuple[SentSignal, ...] = ()


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (Left(stdout=SUCCESS), ("completed", None, None)),
        (Left(stderr="Invalid API key · Please run /login"), ("failed", None, "auth")),
        (Left(kills=1), ("killed", "oom", None)),
        (Left(sent=(SentSignal(signal.SIGINT, Cause.INTERRUPT, 0),)), ("killed", "interrupt", None)),
        (Left(stdout=streams.lines(streams.init())), ("lost", "unknown", None)),
    ],
    ids=["a-result", "stderr", "counters", "our-signal", "nothing"],
)
async def test_an_older_kernel_leaves_lost_to_what_nothing_tells(
    parts: Parts, left: Left, expected: tuple[str, str | None, str | None]
) -> None:
    files = leave(parts, replace(record(parts), sent=left.sent), stderr=left.stderr)
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout, foreign=True)
    async with parts.running():
        await adopt(parts)
        child.counters = OomCounters(left.kills, 1000)
        files.stdout.write_bytes(left.stdout)
        child.end()
        end = await parts.ended(TURN)
    assert (end["outcome"], end["cause"], end["error_class"]) == expected


async def test_systemd_oomd_is_asked_where_nothing_else_tells(parts: Parts) -> None:
    files = leave(parts, record(parts))
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout, foreign=True)
    async with parts.running():
        await adopt(parts)
        child.end()
        await parts.ended(TURN)
    assert child.oom_asked == [True]
