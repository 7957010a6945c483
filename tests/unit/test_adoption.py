"""Turns taken over from an earlier daemon: what is needed for that is stored, found again and believed."""

from __future__ import annotations

import signal
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from jeepney import HeaderFields

from hive_subagent_daemon import progress
from hive_subagent_daemon.adoption import can_adopt
from hive_subagent_daemon.config_values import OnRestart
from hive_subagent_daemon.own_service import OwnService, is_stopped_for_good, own_service
from hive_subagent_daemon.pidfd_exit import exit_of
from hive_subagent_daemon.skim import Seen, skim
from hive_subagent_daemon.values import Cause, Exit, Exited, ExitUnknown, SentSignal, Signalled
from tests.unit import support_streams as streams
from tests.unit.support_bus import FakeBus, returned, serving
from tests.unit.support_children import FakeChild
from tests.unit.support_turns import Parts
from tests.unit.test_recovery import PID, SUCCESS, TURN, leave, record

if TYPE_CHECKING:
    from jeepney import Message

OWN_CGROUP = "hive_subagent_daemon.cgroups.of_process"
SYSTEM_SOCKETS = (Path("/run/dbus/system_bus_socket"),)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts on a fresh folder; they adopt."""
    made = Parts(tmp_path)
    made.registry.adopts = True
    return made


async def adopt(parts: Parts) -> None:
    """Settle what is on disk and follow what lives."""
    recovery = parts.recovery()
    recovery.adopts = True
    await recovery.settle()
    for turn in recovery.adopted.values():
        parts.registry.attend(turn)


# What is taken over


async def test_a_living_turn_is_followed_to_its_end(parts: Parts) -> None:
    """With the age and the prompt that it had; its end is judged from the whole output."""
    began = time.monotonic() - 500
    files = leave(parts, replace(record(parts), began=began), stdout=streams.lines(streams.init()))
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        running = await parts.status_of()
        assert (running["state"], running["turn"]) == ("running", TURN)
        assert 500 <= running["running_seconds"] < 510
        assert (child.signals, child.emptied) == ([], 0)
        assert parts.records.prompt_path("alpha", TURN).exists()
        child.says(streams.result("made it"))
        child.end()
        end = await parts.ended(TURN)
    assert (end["outcome"], end["text"]) == ("completed", "made it")
    assert list((parts.state / "turns").iterdir()) == []


async def test_a_turn_that_ended_meanwhile_is_settled_beside_it(parts: Parts) -> None:
    leave(parts, record(parts), stdout=SUCCESS)
    async with parts.running():
        await adopt(parts)
        assert (await parts.ended(TURN))["outcome"] == "completed"


@pytest.mark.parametrize(
    ("sent", "timed_out", "signals", "cause"),
    [
        ([(signal.SIGINT, Cause.INTERRUPT)], False, [signal.SIGINT], "interrupt"),
        ([(signal.SIGKILL, Cause.FORCED_INTERRUPT)], False, [], "forced interrupt"),
        ([], True, [signal.SIGINT], "timeout"),
    ],
    ids=["interrupt", "force", "time-out"],
)
async def test_what_had_been_begun_is_done_again(
    parts: Parts, sent: list[tuple[int, Cause]], signals: list[int], cause: str, *, timed_out: bool
) -> None:
    """The daemon may have died between the record and the signal."""
    noted = tuple(SentSignal(number, why, 0) for number, why in sent)
    files = leave(
        parts, replace(record(parts), sent=noted, timed_out=timed_out), stdout=streams.lines(streams.init())
    )
    child = parts.launcher.left[TURN] = FakeChild(PID, files.stdout)
    async with parts.running():
        await adopt(parts)
        end = await parts.ended(TURN)
    assert (end["outcome"], end["cause"], child.signals) == ("killed", cause, signals)


async def test_a_turn_that_was_being_stopped_for_good_is_stopped(parts: Parts) -> None:
    """The earlier daemon died in the middle of that."""
    noted = (SentSignal(signal.SIGINT, Cause.DAEMON_STOPPED, 0),)
    leave(parts, replace(record(parts), sent=noted), stdout=streams.lines(streams.init()))
    parts.launcher.left[TURN] = FakeChild(PID, foreign=True)
    async with parts.running():
        await adopt(parts)
        assert not parts.registry.running
        assert (await parts.ended(TURN))["cause"] == "daemon stopped"


async def test_a_signal_is_stored_before_it_is_sent(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash in between would make it somebody else's."""
    parts.launcher.stubborn = True
    async with parts.running():
        turn = str((await parts.start())["turn"])
        [child] = parts.launcher.children
        found: list[tuple[SentSignal, ...]] = []
        whole = child.signal

        def watched(number: int) -> bool:
            if number:
                [(_, _, stored)] = parts.records.turns()
                assert stored is not None
                found.append(stored.sent)
            return whole(number)

        monkeypatch.setattr(child, "signal", watched)
        await parts.registry.running["alpha"].send(signal.SIGINT, Cause.INTERRUPT)
        assert found == [(SentSignal(signal.SIGINT, Cause.INTERRUPT, 0),)]
        child.end()
        await parts.ended(turn)


async def test_leaving_lets_turns_run_and_takes_no_new_ones(parts: Parts) -> None:
    """What has ended is stored; the rest is left as it is."""
    async with parts.running():
        await parts.start()
        [child] = parts.launcher.children
        await parts.registry.leave()
        assert (child.signals, child.emptied) == ([], 0)
        with pytest.raises(Exception, match="stopping"):
            await parts.start("beta")
    assert len(list((parts.state / "turns").iterdir())) == 1


# What the output had told


def test_what_was_seen_is_read_as_it_was_stored() -> None:
    block = streams.lines(streams.init(), streams.assistant("so far"), streams.result("x"), streams.init())
    seen = skim(Seen(), block, offset=0)
    assert seen.init is not None
    stored = progress.Progress(len(block), seen, "3 MiB")
    assert progress.decode(progress.encode(stored)) == stored


@pytest.mark.parametrize("content", ["", "{", '{"read_upto": -1}', '{"read_upto": "x"}'])
def test_damaged_progress_means_reading_from_the_beginning(parts: Parts, content: str) -> None:
    files = leave(parts, record(parts))
    (files.folder / "progress.json").write_text(content)
    assert parts.records.progress(files.folder) == progress.NO_PROGRESS


# How it ended


def told(*, mask: int, status: int = 0) -> bytes:
    """Return what the kernel fills in."""
    return struct.pack("=Q", mask).ljust(60, b"\0") + struct.pack("=i", status)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([told(mask=15, status=42 << 8)], Exited(42)),
        ([told(mask=7), told(mask=7), told(mask=15, status=9)], Signalled(9)),
        ([], ExitUnknown()),
    ],
    ids=["at-once", "once-it-is-reaped", "by-an-older-kernel"],
)
async def test_the_kernel_tells_how_a_process_of_others_ended(
    monkeypatch: pytest.MonkeyPatch, answers: list[bytes], expected: Exit
) -> None:
    def ask(_pidfd: int) -> bytes:
        if not answers:
            raise OSError
        return answers.pop(0)

    monkeypatch.setattr("hive_subagent_daemon.pidfd_exit._info", ask)
    assert await exit_of(0) == expected


async def test_a_process_that_nobody_reaps_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hive_subagent_daemon.pidfd_exit._info", lambda _: told(mask=7))
    monkeypatch.setattr("hive_subagent_daemon.pidfd_exit.REAPED_SECONDS", 0.01)
    with anyio.fail_after(20):
        assert await exit_of(0) == ExitUnknown()


# Stop or restart


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("/system.slice/hive.service", OwnService("hive.service", SYSTEM_SOCKETS, "user@7.service")),
        (
            "/user.slice/user@7.service/app.slice/hive.service",
            OwnService("hive.service", (Path("/x/bus"), Path("/run/user/7/bus"))),
        ),
        ("/user.slice/user-7.slice/session-1.scope", None),
    ],
    ids=["of-the-system", "of-the-user", "of-nobody"],
)
def test_our_service_is_told_by_our_cgroup(
    monkeypatch: pytest.MonkeyPatch, cgroup: str, expected: OwnService | None
) -> None:
    monkeypatch.setattr(OWN_CGROUP, lambda _: Path(f"/sys/fs/cgroup{cgroup}"))
    assert own_service(7, {"XDG_RUNTIME_DIR": "/x"}) == expected


@pytest.mark.parametrize(
    ("kind", "expected"), [("stop", True), ("restart", False), ("start", False), (None, False)]
)
async def test_only_a_job_that_stops_the_unit_is_a_stop(
    tmp_path: Path, kind: str | None, *, expected: bool
) -> None:
    def get(call: Message) -> list[Message]:
        if call.body[1] == "JobType":
            return [returned(call, "v", ("s", kind))]
        return [returned(call, "v", ("(uo)", (7, "/job/7") if kind else (0, "/")))]

    bus = FakeBus(tmp_path / "bus")
    bus.answers |= {"GetUnit": lambda call: [returned(call, "o", "/unit/x")], "Get": get}
    async with serving(bus):
        assert await is_stopped_for_good(OwnService("x.service", (bus.socket,))) is expected


@pytest.mark.parametrize(
    ("kind", "expected"), [("stop", True), ("restart", True), ("start", False), (None, False)]
)
async def test_the_end_of_the_manager_of_our_scopes_is_a_stop(
    tmp_path: Path, kind: str | None, *, expected: bool
) -> None:
    """Our own unit is only restarted with it."""

    def get(call: Message) -> list[Message]:
        path = call.header.fields[HeaderFields.path]
        if call.body[1] == "JobType":
            return [returned(call, "v", ("s", kind if path == "/job/8" else "restart"))]
        number = 7 if path == "/unit/ours" else 8 if kind else 0
        return [returned(call, "v", ("(uo)", (number, f"/job/{number}")))]

    bus = FakeBus(tmp_path / "bus")
    bus.answers |= {"GetUnit": lambda call: [returned(call, "o", f"/unit/{call.body[0]}")], "Get": get}
    async with serving(bus):
        service = OwnService("ours", (bus.socket,), "manager")
        assert await is_stopped_for_good(service) is expected


async def test_what_nobody_tells_is_a_restart(tmp_path: Path) -> None:
    assert await is_stopped_for_good(None) is False
    assert await is_stopped_for_good(OwnService("x.service", (tmp_path / "none",))) is False


@pytest.mark.parametrize(
    ("scopes", "service", "expected"), [(True, True, True), (False, False, True), (False, True, False)]
)
def test_process_groups_in_a_service_cannot_be_adopted(
    parts: Parts, *, scopes: bool, service: bool, expected: bool
) -> None:
    """systemd kills them; it is said."""
    parts.launcher.scopes = scopes
    config = replace(parts.config, on_restart=OnRestart.ADOPT)
    own = OwnService("hive.service", ()) if service else None
    can, notices = can_adopt(config, parts.launcher, own)
    assert can is expected
    assert bool(notices) is not expected
    assert can_adopt(parts.config, parts.launcher, own) == (False, [])
