"""Slices that could not be stopped: tried again, also by the next daemon, and forgotten only when stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from typing_extensions import override

from hive_subagent_daemon import slices_to_stop
from hive_subagent_daemon.dbus_link import BusError
from hive_subagent_daemon.slices_to_stop import SlicesToStop
from hive_subagent_daemon.storage import Storage
from tests.support.slices import slices_in
from tests.unit.support_turns import LIMIT_SECONDS, FaultyStorage, until

if TYPE_CHECKING:
    from pathlib import Path

A, B = r"agents-0f0e0d0c\x2d1.slice", r"agents-0f0e0d0c\x2d2.slice"


class Systemd:
    """Stops slices, or does not: while `silent`, and for ever while `hangs`."""

    def __init__(self) -> None:
        """Answer."""
        self.stopped: list[str] = []
        self.asked: list[str] = []
        self.silent = False
        self.hangs = False

    async def stop_unit(self, name: str) -> None:
        """Stop one."""
        self.asked.append(name)
        await anyio.lowlevel.checkpoint()
        if self.hangs:
            await anyio.sleep_forever()
        if self.silent:
            message = "no answer"
            raise BusError(message)
        self.stopped.append(name)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait shortly."""
    monkeypatch.setattr(slices_to_stop, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(slices_to_stop, "LAST_TRY_SECONDS", 0.05)


@pytest.fixture
def systemd() -> Systemd:
    """Let systemd answer."""
    return Systemd()


def noted(folder: Path) -> list[str]:
    """Return the slices that the next daemon would stop."""
    return sorted(path.name for path in (folder / "slices").iterdir())


async def run_until_stopped(to_stop: SlicesToStop, systemd: Systemd, *names: str) -> None:
    """Let it run until these are stopped and nothing is noted any more."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_stop.run, systemd.stop_unit)
        await until(lambda: systemd.stopped == list(names))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


async def test_what_is_added_is_noted_and_stopped_when_systemd_answers(
    tmp_path: Path, systemd: Systemd
) -> None:
    to_stop = slices_in(tmp_path)
    systemd.silent = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_stop.run, systemd.stop_unit)
        await to_stop.add(A)
        await until(lambda: len(systemd.asked) > 2)
        assert noted(tmp_path) == [A]
        systemd.silent = False
        await until(lambda: not noted(tmp_path))
        assert systemd.stopped == [A]
        await to_stop.add(B)
        await until(lambda: systemd.stopped == [A, B] and not noted(tmp_path))
        tasks.cancel_scope.cancel()
    assert systemd.stopped == [A, B]


async def test_what_an_earlier_daemon_could_not_stop_is_stopped_first(
    tmp_path: Path, systemd: Systemd
) -> None:
    earlier = slices_in(tmp_path)
    for name in (B, A):
        await earlier.add(name)
    await run_until_stopped(slices_in(tmp_path), systemd, A, B)
    assert noted(tmp_path) == []


async def test_what_follows_comes_once_the_slice_is_gone_and_not_before(
    tmp_path: Path, systemd: Systemd
) -> None:
    """As the reaping of a gate: until then systemd may still use its pid."""
    followed: list[list[str]] = []

    async def follow() -> None:
        await anyio.lowlevel.checkpoint()
        followed.append(list(systemd.stopped))

    to_stop = slices_in(tmp_path)
    systemd.silent = True
    await to_stop.add(A, then=follow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_stop.run, systemd.stop_unit)
        await until(lambda: len(systemd.asked) > 2)
        assert followed == []
        systemd.silent = False
        await until(lambda: followed)
        tasks.cancel_scope.cancel()
    assert followed == [[A]]


@pytest.mark.parametrize("way", ["silent", "hangs"])
async def test_at_the_end_of_the_daemon_it_is_tried_once_more_and_then_left_to_the_next(
    tmp_path: Path, systemd: Systemd, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    to_stop = slices_in(tmp_path)
    await to_stop.add(A)
    setattr(systemd, way, True)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_stop.run, systemd.stop_unit)
            await until(lambda: systemd.asked)
            asked = len(systemd.asked)
            tasks.cancel_scope.cancel()
    assert len(systemd.asked) > asked
    assert f"the slice {A} could not be stopped" in caplog.text
    assert noted(tmp_path) == [A]
    setattr(systemd, way, False)
    await run_until_stopped(slices_in(tmp_path), systemd, A)


async def test_the_last_try_can_succeed(
    tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices_to_stop, "RETRY_SECONDS", 60.0)
    to_stop = slices_in(tmp_path)
    await to_stop.add(A)
    systemd.silent = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_stop.run, systemd.stop_unit)
        await until(lambda: systemd.asked)
        await anyio.wait_all_tasks_blocked()
        systemd.silent = False
        tasks.cancel_scope.cancel()
    assert (systemd.stopped, noted(tmp_path)) == ([A], [])


async def test_half_of_a_note_is_removed(tmp_path: Path, systemd: Systemd) -> None:
    await slices_in(tmp_path).add(A)
    for name in (f".{A}.0badcafe.partial", "README", "-.slice"):
        (tmp_path / "slices" / name).touch()
    to_stop = slices_in(tmp_path)
    assert noted(tmp_path) == [A]
    await run_until_stopped(to_stop, systemd, A)


async def test_what_cannot_be_noted_is_stopped_all_the_same(
    tmp_path: Path, systemd: Systemd, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "slices").mkdir()
    storage = FaultyStorage(tmp_path, ballast_bytes=0)
    to_stop = SlicesToStop(storage)
    storage.broken = "slices"
    await to_stop.add(A)
    assert "cannot be stored" in caplog.text
    await run_until_stopped(to_stop, systemd, A)


class SlowStorage(Storage):
    """A storage whose writes wait for the test."""

    def __init__(self, root: Path) -> None:
        """Hold the first write."""
        super().__init__(root, ballast_bytes=0)
        self.go_on = threading.Event()

    @override
    def write(self, path: Path, content: bytes) -> None:
        """Write when the test lets it."""
        self.go_on.wait(LIMIT_SECONDS)
        super().write(path, content)


async def test_a_slice_that_is_stopped_before_it_is_noted_leaves_no_note(
    tmp_path: Path, systemd: Systemd
) -> None:
    """The disk can be slower than systemd."""
    (tmp_path / "slices").mkdir()
    storage = SlowStorage(tmp_path)
    to_stop = SlicesToStop(storage)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_stop.run, systemd.stop_unit)
        async with anyio.create_task_group() as adding:
            adding.start_soon(to_stop.add, A)
            with anyio.move_on_after(0.2):
                await until(lambda: systemd.stopped)
            storage.go_on.set()
        await until(lambda: systemd.stopped and not noted(tmp_path))
        tasks.cancel_scope.cancel()
