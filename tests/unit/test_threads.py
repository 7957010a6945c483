"""Blocking work goes to a thread, and where none can be made it is done all the same."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import registry
from hive_subagent_daemon.threads import in_thread, say_once
from tests.unit.support_turns import Parts, until

if TYPE_CHECKING:
    from pathlib import Path

REFUSAL = "can't start new thread"


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Let no thread be made, as at the limit of processes; return those that were wanted."""
    wanted: list[threading.Thread] = []

    def refuse(thread: threading.Thread) -> None:
        wanted.append(thread)
        raise RuntimeError(REFUSAL)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return wanted


async def test_blocking_work_is_done_in_another_thread() -> None:
    assert await in_thread(threading.get_ident) != threading.get_ident()


async def test_without_a_thread_it_is_done_here_and_that_is_said(
    no_threads: list[threading.Thread], caplog: pytest.LogCaptureFixture
) -> None:
    say_once.cache_clear()
    assert await in_thread(threading.get_ident) == threading.get_ident()
    assert await in_thread(divmod, 7, 2) == (3, 1)
    assert no_threads
    assert caplog.text.count(REFUSAL) == 1


async def test_an_error_of_the_work_itself_is_passed_on_and_the_work_done_once() -> None:
    """Also one of the kind by which a missing thread is told."""
    calls: list[int] = []

    def fail() -> None:
        calls.append(threading.get_ident())
        message = "an error of its own"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="an error of its own"):
        await in_thread(fail)
    assert len(calls) == 1


@pytest.mark.usefixtures("no_threads")
async def test_an_error_of_the_work_that_is_done_here_is_passed_on_too() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(threading.get_ident())
        message = "an error of its own"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="an error of its own"):
        await in_thread(fail)
    assert calls == [threading.get_ident()]


async def test_work_that_was_given_up_is_waited_for() -> None:
    """Half of a write must not go on beside what comes next."""
    entered, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        go_on.wait(10)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(in_thread, work)
        await until(entered.is_set)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert done.is_set()


async def test_a_turn_ends_and_is_stored_while_no_thread_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn itself may have taken all the processes that there may be."""
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.01)
    parts = Parts(tmp_path)
    async with parts.running():
        turn: str = (await parts.start())["turn"]

        async def refuse(*_: object) -> None:
            await anyio.lowlevel.checkpoint()
            raise RuntimeError(REFUSAL)

        with monkeypatch.context() as patched:
            # Threads that wait for work already must not be of use.
            patched.setattr(anyio.to_thread, "run_sync", refuse)
            parts.launcher.children[-1].succeed("stored")
            end = await parts.ended(turn)
            await until(lambda: not parts.registry.running)
            assert (await parts.status_of())["state"] == "idle"
    assert (end["outcome"], end["text"]) == ("completed", "stored")
    assert [path.stem for path in (tmp_path / "state" / "loose-ends").iterdir()] == [turn]
    assert list((tmp_path / "state" / "turns").iterdir()) == []
