"""What systemd-oomd says that it killed, and what is taken for certain when it says nothing."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
from jeepney import HeaderFields

from hive_subagent_daemon import cgroups, oomd
from hive_subagent_daemon.oomd import OomdWatch
from tests.unit.support_bus import FakeBus, body, killed, refused, returned, serving
from tests.unit.support_turns import LIMIT_SECONDS, POLL_SECONDS, open_descriptors, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from jeepney import Message

SLICE = "/agents.slice/turn.slice"


@pytest.fixture(autouse=True)
def short_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait shortly, and put the control groups elsewhere."""
    monkeypatch.setattr(oomd, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(oomd, "TELL_SECONDS", 0.1)
    monkeypatch.setattr(oomd, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[FakeBus]:
    """Let a system bus listen on which there is a systemd-oomd."""
    made = FakeBus(tmp_path / "bus")
    made.answers["NameHasOwner"] = lambda call: [returned(call, "b", True)]
    async with serving(made):
        yield made


@asynccontextmanager
async def watching(socket: Path) -> AsyncIterator[OomdWatch]:
    """Watch while the block lasts; every wait in it is bounded."""
    watch = OomdWatch(socket)
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            yield watch
            tasks.cancel_scope.cancel()


async def heard(bus: FakeBus, watch: OomdWatch) -> None:
    """Wait until the watch hears what is sent."""
    probe = f"/probe{len(bus.calls)}.slice"
    for _ in range(500):
        bus.send(killed(probe))
        if await watch.killed(cgroups.at(probe)):
            return
        await anyio.sleep(POLL_SECONDS)
    pytest.fail("the watch does not listen")


@pytest.mark.parametrize("path", [SLICE, f"{SLICE}/turn.scope", "/agents.slice"])
async def test_a_kill_in_the_cgroup_or_above_or_below_it_is_told(bus: FakeBus, path: str) -> None:
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        bus.send(killed(path))
        assert await watch.killed(cgroups.at(SLICE))


@pytest.mark.parametrize("path", ["/agents.slice/other.slice", "/agents.slice/turn.slice2"])
async def test_a_kill_somewhere_else_is_not_ours(bus: FakeBus, path: str) -> None:
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        bus.send(killed(path))
        assert not await watch.killed(cgroups.at(SLICE))


async def test_a_word_that_comes_a_little_later_is_waited_for(
    bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may reach us after the death of the process."""

    def later(call: Message) -> list[Message]:
        """Tell of another kill and then of this one, after the question."""
        return [returned(call, "b", True), killed("/other.slice"), killed(SLICE)]

    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        monkeypatch.setattr(oomd, "TELL_SECONDS", LIMIT_SECONDS)
        bus.answers["NameHasOwner"] = later
        assert await watch.killed(cgroups.at(SLICE))


async def test_without_systemd_oomd_nothing_is_waited_for(
    bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        monkeypatch.setattr(oomd, "TELL_SECONDS", LIMIT_SECONDS * 2)
        bus.answers["NameHasOwner"] = lambda call: [returned(call, "b", False)]
        assert not await watch.killed(cgroups.at(SLICE))
        assert body(bus.calls[-1]) == ("org.freedesktop.oom1",)


async def test_a_bus_that_refuses_or_does_not_answer_the_question_is_no_kill(bus: FakeBus) -> None:
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        bus.answers["NameHasOwner"] = lambda call: [refused(call, "org.freedesktop.DBus.Error.AccessDenied")]
        assert not await watch.killed(cgroups.at(SLICE))
        bus.answers["NameHasOwner"] = lambda _: []
        assert not await watch.killed(cgroups.at(SLICE))


async def test_without_a_bus_nothing_is_known_and_nothing_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    async with watching(tmp_path / "none") as watch:
        assert not await watch.killed(cgroups.at(SLICE))
    assert not await OomdWatch(tmp_path / "none").killed(cgroups.at(SLICE))
    assert time.monotonic() - began < LIMIT_SECONDS / 2


async def test_only_systemd_oomd_itself_is_listened_to(bus: FakeBus) -> None:
    """The bus checks the sender: anybody could send the signal."""
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
    [match] = [call for call in bus.calls if call.header.fields[HeaderFields.member] == "AddMatch"]
    assert "sender='org.freedesktop.oom1'" in body(match)[0]
    assert "member='Killed'" in body(match)[0]


async def test_a_bus_that_went_away_is_listened_to_again(bus: FakeBus) -> None:
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        bus.hang_up()
        await until(lambda: bus.members.count("AddMatch") == 2)
        await heard(bus, watch)
        bus.send(killed(SLICE))
        assert await watch.killed(cgroups.at(SLICE))


async def test_a_bus_that_comes_later_is_listened_to(tmp_path: Path) -> None:
    late = FakeBus(tmp_path / "bus")
    late.answers["NameHasOwner"] = lambda call: [returned(call, "b", True)]
    async with watching(late.socket) as watch, serving(late):
        await heard(late, watch)
    assert late.connected


async def test_what_was_killed_long_ago_explains_nothing(
    bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a slice above, where turns come and go, it would be told of every later outside kill."""
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
        bus.send(killed("/agents.slice"))
        assert await watch.killed(cgroups.at(SLICE))
        monkeypatch.setattr(oomd, "KEPT_SECONDS", 0.0)
        assert not await watch.killed(cgroups.at(SLICE))


async def test_the_end_of_watching_leaves_nothing_open(bus: FakeBus) -> None:
    before = open_descriptors()
    async with watching(bus.socket) as watch:
        await heard(bus, watch)
    await until(lambda: open_descriptors() <= before)
