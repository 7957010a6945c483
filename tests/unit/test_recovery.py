"""What an earlier daemon left: one loose end for each turn, nothing alive, no session and no name lost."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon import clock, procfs
from hive_subagent_daemon.archive import plan_archive
from hive_subagent_daemon.gate import NOT_RELEASED
from hive_subagent_daemon.output import TurnFiles
from hive_subagent_daemon.records import TurnRecord
from tests.unit import support_streams as streams
from tests.unit.support_children import START_TICKS, FakeChild
from tests.unit.support_records import OUTCOME, loose_end, subagent_record
from tests.unit.support_turns import NO_SPACE, Parts

if TYPE_CHECKING:
    from pathlib import Path

TURN = "20260131_120000_000_abcd"
LATER = "20260131_130000_000_abcd"
AFTER_NOW = "29990131_120000_000_abcd"
SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"
PID = 4_000_000
SUCCESS = streams.lines(streams.init(), streams.result("made it"))


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts on a fresh folder."""
    return Parts(tmp_path)


def record(parts: Parts, turn: str = TURN) -> TurnRecord:
    """Return the record of a started turn whose process had been recorded."""
    return TurnRecord(
        turn=turn,
        name="alpha",
        resumes=False,
        dir=str(parts.work),
        session_id=SESSION,
        model=None,
        prompt_copy=str(parts.records.prompt_path("alpha", turn)),
        started_at=clock.as_text(clock.turn_time(turn)),
        boot_id=procfs.boot_id(),
        pid=PID,
        pid_start=START_TICKS,
    )


def leave(parts: Parts, left: TurnRecord, *, stdout: bytes = b"", stderr: str = "") -> TurnFiles:
    """Leave a turn on disk as a killed daemon does."""
    files = TurnFiles(parts.records.begin_turn(left))
    files.create(b"do it")
    files.stdout.write_bytes(stdout)
    files.stderr.write_text(stderr)
    if not left.resumes:
        parts.records.copy_prompt(left.name, left.turn, b"Be brief.\n")
    return files


async def settled(parts: Parts) -> list[dict[str, Any]]:
    """Settle, check that nothing of a turn is left, and return all loose ends."""
    await parts.recovery().settle()
    assert list((parts.state / "turns").iterdir()) == []
    found = await parts.subagents.get_loose_ends(name=None, ids=None, limit=100)
    return list(found["loose_ends"])


async def only_end(parts: Parts) -> dict[str, Any]:
    """Settle and return the only loose end; another start-up finds the same and no more."""
    [end] = await settled(parts)
    again = Parts(parts.folder)
    assert await settled(again) == [end]
    assert again.known == parts.known
    assert end["name"] == "alpha"
    return end


def copies(parts: Parts) -> list[str]:
    """Return the names of all prompt copies."""
    return sorted(path.name for path in (parts.state / "prompts").iterdir())


async def test_a_turn_that_ended_with_a_result_is_judged_by_it(parts: Parts) -> None:
    """Nobody saw the process end, but its output tells (case D2)."""
    leave(parts, record(parts), stdout=SUCCESS)
    end = await only_end(parts)
    assert (end["outcome"], end["text"], end["session_id"]) == ("completed", "made it", SESSION)
    assert copies(parts) == [f"alpha.{TURN}"]
    assert (await parts.status_of())["state"] == "idle"


async def test_a_turn_of_which_nothing_tells_is_lost(parts: Parts) -> None:
    """Lost is never success, and shows as killed with an unknown cause (decision 6)."""
    leave(parts, record(parts), stdout=streams.lines(streams.init(), streams.assistant("so far")))
    end = await only_end(parts)
    assert (end["outcome"], end["cause"]) == ("lost", "unknown")
    assert "so far" in end["text"]
    assert (await parts.status_of())["state"] == "killed"


async def test_a_process_found_alive_is_stopped(parts: Parts) -> None:
    """SIGINT to claude itself, then everything; killed, `daemon stopped`."""
    leave(parts, record(parts), stdout=streams.lines(streams.init()))
    child = parts.launcher.left[TURN] = FakeChild(PID, foreign=True)
    end = await only_end(parts)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "daemon stopped")
    assert child.signals == [signal.SIGINT]
    assert child.emptied
    [root, *_] = parts.launcher.looked_for
    assert (root.turn, root.session_id, root.pid, root.start) == (TURN, SESSION, PID, START_TICKS)


async def test_a_stubborn_process_is_killed_in_the_end(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a grace that is the same for all of them together."""
    monkeypatch.setattr("hive_subagent_daemon.recovery.STOP_SECONDS", 0.01)
    leave(parts, record(parts))
    child = parts.launcher.left[TURN] = FakeChild(PID, foreign=True, stubborn=True)
    end = await only_end(parts)
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")
    assert child.gone.is_set()


async def test_a_result_from_before_the_stop_wins(parts: Parts) -> None:
    """Only the process was still there, for instance because a child of its own holds it."""
    leave(parts, record(parts), stdout=SUCCESS)
    parts.launcher.left[TURN] = FakeChild(PID, foreign=True)
    assert (await only_end(parts))["outcome"] == "completed"


async def test_a_pid_of_an_earlier_boot_is_nobody(parts: Parts) -> None:
    """It may be any process by now; leftovers are then looked for by their marks only."""
    leave(parts, replace(record(parts), boot_id="another boot"))
    assert (await only_end(parts))["outcome"] == "lost"
    [root, *_] = parts.launcher.looked_for
    assert (root.pid, root.start) == (None, 0)


NEVER_RAN = [
    pytest.param({"pid": None, "pid_start": None}, "", id="not-recorded"),
    pytest.param({}, f"{NOT_RELEASED}\n", id="not-released"),
    pytest.param({}, "hive-subagent-gate: 4: exec: claude: not found\n", id="not-executed"),
]


@pytest.mark.parametrize(("fields", "stderr"), NEVER_RAN)
async def test_a_turn_whose_process_never_ran_could_not_start(
    parts: Parts, fields: dict[str, Any], stderr: str
) -> None:
    """Idle, its archive undone, and `continue` finds the earlier session by its title (decisions 7, 18)."""
    transcript = parts.earlier_session()
    [rename] = plan_archive([transcript])
    leave(parts, replace(record(parts), archived=(rename,), **fields), stderr=stderr)
    transcript.rename(rename.target)
    end = await only_end(parts)
    assert (end["outcome"], end["cause"], end["session_id"]) == ("could not start", None, None)
    assert transcript.exists()
    assert not rename.target.exists()
    assert copies(parts) == []
    assert (await parts.status_of())["state"] == "idle"
    async with parts.running():
        await parts.resume()
        assert "--resume=alpha" in parts.launcher.specs[-1].argv


@pytest.mark.parametrize(("fields", "stderr"), NEVER_RAN)
async def test_a_turn_that_never_ran_leaves_what_was_remembered(
    parts: Parts, fields: dict[str, Any], stderr: str
) -> None:
    """The subagent goes on with the session and the instructions that it had."""
    async with parts.running():
        first = await parts.play()
    before = parts.known["alpha"]
    parts = Parts(parts.folder)
    leave(parts, replace(record(parts, AFTER_NOW), **fields), stderr=stderr)
    await settled(parts)
    now = parts.known["alpha"]
    assert now.last_turn.turn != first
    assert replace(now, last_turn=before.last_turn) == before
    assert copies(parts) == [f"alpha.{first}"]
    assert parts.records.subagents() == [now]


async def test_what_broke_off_before_its_record_never_was_a_turn(parts: Parts) -> None:
    """`could not start` is only for a turn whose record exists (decision 7)."""
    folder = parts.records.turn_folder(TURN, "alpha")
    folder.mkdir()
    (folder / ".record.json.0a0b.partial").write_text("{")
    assert await settled(parts) == []
    assert (await parts.status_of())["state"] == "unknown"


@pytest.mark.parametrize("again", [False, True], ids=["found-now", "set-aside-by-a-crashed-start-up"])
async def test_a_damaged_record_still_gives_its_one_loose_end(parts: Parts, *, again: bool) -> None:
    """The folder's name tells turn and subagent; the name goes on where turns usually run."""
    files = leave(parts, record(parts))
    (files.folder / "record.json").write_bytes(b"\x00{")
    if again:
        parts.records.turns()
        parts = Parts(parts.folder)
    end = await only_end(parts)
    assert (end["turn"], end["outcome"]) == (TURN, "lost")
    assert end["started_at"] == "2026-01-31T12:00:00.000Z"
    [aside] = (parts.state / "set-aside").iterdir()
    assert aside.read_bytes() == b"\x00{"
    async with parts.running():
        await parts.resume()
        assert parts.launcher.specs[-1].dir == parts.work


async def test_a_damaged_record_of_a_known_name_keeps_what_is_remembered(parts: Parts) -> None:
    """Session, directory and instructions are those of before."""
    async with parts.running():
        first = await parts.play()
    before = parts.known["alpha"]
    parts = Parts(parts.folder)
    files = leave(parts, record(parts, AFTER_NOW))
    (files.folder / "record.json").write_text("")
    assert [end["outcome"] for end in await settled(parts)] == ["completed", "lost"]
    now = parts.known["alpha"]
    assert replace(now, last_turn=before.last_turn) == before
    assert copies(parts) == [f"alpha.{first}"]


async def test_a_process_of_a_damaged_record_is_stopped_and_said_so(parts: Parts) -> None:
    """Which of its processes claude was is not known, so all are killed; that is no unknown end."""
    files = leave(parts, record(parts), stdout=streams.lines(streams.init(), streams.assistant("so far")))
    (files.folder / "record.json").write_text("{}")
    child = parts.launcher.left[TURN] = FakeChild(0, foreign=True, stubborn=True)
    end = await only_end(parts)
    assert child.emptied
    assert (end["outcome"], end["cause"], end["signal"]) == ("killed", "daemon stopped", "SIGKILL")
    assert end["text"] == "so far"


@pytest.mark.parametrize("closed_at", [None, "2026-01-31T12:02:00.000Z"], ids=["open", "closed"])
async def test_a_turn_whose_loose_end_is_stored_is_only_finished(parts: Parts, closed_at: str | None) -> None:
    """The daemon died between storing and forgetting; what was closed stays closed."""
    leave(parts, record(parts))
    parts.records.store_loose_end(loose_end(TURN, name="alpha", closed_at=closed_at))
    parts = Parts(parts.folder)
    ends = await settled(parts)
    assert [end["id"] for end in ends] == ([] if closed_at else [TURN])
    [stored] = (parts.state / "loose-ends").iterdir()
    assert stored.stem == TURN
    assert parts.known["alpha"].last_turn.verdict == OUTCOME.verdict
    assert parts.known["alpha"].prompt_copy == str(parts.records.prompt_path("alpha", TURN))
    assert copies(parts) == [f"alpha.{TURN}"]


async def test_two_turns_of_one_name_give_two_loose_ends_and_the_later_one_counts(parts: Parts) -> None:
    """A crash after the end of one and after the start of the next."""
    leave(parts, record(parts), stdout=SUCCESS)
    parts.records.store_loose_end(loose_end(TURN, name="alpha"))
    leave(parts, record(parts, LATER))
    parts = Parts(parts.folder)
    assert [end["turn"] for end in await settled(parts)] == [TURN, LATER]
    assert parts.known["alpha"].last_turn.turn == LATER
    assert copies(parts) == [f"alpha.{LATER}"]


async def test_a_turn_left_behind_does_not_hide_a_later_one(parts: Parts) -> None:
    """Its undo failed, the name went on, and only the next start-up settles it."""
    parts.launcher.fails = "exec"
    parts.storage.removals_fail = True
    async with parts.running():
        with pytest.raises(Exception, match="could not be executed"):
            await parts.start()
        parts.heal()
        later = await parts.play()
    parts = Parts(parts.folder)
    await settled(parts)
    assert parts.known["alpha"].last_turn.turn == later
    assert copies(parts) == [f"alpha.{later}"]


async def test_prompt_copies_that_nobody_uses_go(parts: Parts) -> None:
    """Those of a crash in the middle, half-written ones too."""
    kept = parts.records.prompt_path("beta", TURN)
    parts.records.copy_prompt("beta", TURN, b"kept")
    parts.records.copy_prompt("gone", TURN, b"gone")
    (parts.state / "prompts" / ".x.0a0b.partial").write_text("ha")
    parts.records.remember(subagent_record("beta", prompt_copy=str(kept)))
    parts = Parts(parts.folder)
    assert await settled(parts) == []
    assert copies(parts) == [kept.name]


async def test_an_end_that_cannot_be_stored_is_kept_for_the_next_start_up(parts: Parts) -> None:
    """The error is the disk's, nothing is shown that is not stored, and nothing is lost."""
    leave(parts, record(parts), stdout=SUCCESS)
    parts.storage.broken = "loose-ends"
    with pytest.raises(OSError, match=str(NO_SPACE.strerror)):
        await parts.recovery().settle()
    assert (await parts.subagents.get_loose_ends(name=None, ids=None, limit=100))["loose_ends"] == []
    parts = Parts(parts.folder)
    assert (await only_end(parts))["text"] == "made it"
