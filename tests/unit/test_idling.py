"""When an idle daemon may leave: the rule, and the watcher that waits for it."""

from __future__ import annotations

import logging
import math

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.idling import Idling, earliest_exit, ignored_idle_exit

MOMENTS = st.floats(0, 1e9)
SECONDS = st.floats(0.001, 31_536_000)
LIMIT_SECONDS = 20.0
AN_HOUR = 3600.0


class Work:
    """What goes on, as the test sets it; each look at it is counted."""

    def __init__(self) -> None:
        """Nothing goes on."""
        self.going_on = False
        self.looks = 0

    def __call__(self) -> bool:
        """Tell."""
        self.looks += 1
        return self.going_on


@given(MOMENTS, MOMENTS, SECONDS)
def test_nobody_leaves_before_the_time_is_over(one: float, other: float, seconds: float) -> None:
    last_use, now = sorted((one, other))
    idle = earliest_exit(now, last_use=last_use, going_on=False, seconds=seconds)
    busy = earliest_exit(now, last_use=last_use, going_on=True, seconds=seconds)
    assert (idle, busy) == (last_use + seconds, now + seconds)


@given(MOMENTS, MOMENTS, st.booleans())
def test_zero_seconds_are_never(now: float, last_use: float, going_on: bool) -> None:
    assert earliest_exit(now, last_use=last_use, going_on=going_on, seconds=0) == math.inf


async def test_it_is_due_once_nothing_has_gone_on_for_long_enough() -> None:
    idling = Idling(0.05, comes_back=True, has_work=Work())
    assert not idling.is_due
    with anyio.fail_after(LIMIT_SECONDS):
        await idling.until_due()
    assert idling.is_due
    idling.used()
    assert not idling.is_due


async def test_whatever_goes_on_counts_as_used_until_it_has_ended() -> None:
    """Also when nobody tells of its end: the time runs from the last look at which it still went on."""
    work = Work()
    work.going_on = True
    idling = Idling(0.02, comes_back=True, has_work=work)
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(idling.until_due)
            while work.looks < 10:
                await anyio.sleep(0.01)
                assert not idling.is_due
            work.going_on = False


async def test_the_clock_is_looked_at_no_earlier_than_it_can_have_run_out() -> None:
    work = Work()
    idling = Idling(AN_HOUR, comes_back=True, has_work=work)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(idling.until_due)
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
            idling.used()
        assert work.looks <= 2
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seconds", [5e-324, 1e-9, 0.001])
@pytest.mark.parametrize("set_later", [False, True])
async def test_next_to_no_time_does_not_have_it_look_all_the_time(seconds: float, *, set_later: bool) -> None:
    """Who then waits would have the event loop do nothing else."""
    work = Work()
    idling = Idling(0.0 if set_later else seconds, comes_back=True, has_work=work)
    if set_later:
        idling.set_seconds(seconds)
    looks = 0
    with anyio.move_on_after(0.05):
        while looks < 1000:
            await idling.until_due()
            looks += 1
            idling.used()
    assert looks < 1000


@pytest.mark.parametrize("before", [0.0, AN_HOUR])
async def test_another_time_counts_at_once(before: float) -> None:
    idling = Idling(before, comes_back=True, has_work=Work())
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(idling.until_due)
            await anyio.lowlevel.checkpoint()
            idling.set_seconds(0.01)


async def test_a_daemon_that_nobody_would_start_again_stays(caplog: pytest.LogCaptureFixture) -> None:
    idling = Idling(0.001, comes_back=False, has_work=Work())
    await anyio.sleep(0.01)
    assert not idling.is_due
    idling.set_seconds(0.001)
    await anyio.sleep(0.01)
    assert not idling.is_due
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_that_it_stays_is_said_where_it_was_to_leave() -> None:
    assert ignored_idle_exit(600.0, comes_back=True) == []
    assert ignored_idle_exit(0.0, comes_back=False) == []
    [notice] = ignored_idle_exit(600.0, comes_back=False)
    assert notice.startswith("idle_exit_seconds = 600 is ignored")


async def test_the_exit_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = []
    Idling(2.5, comes_back=True, has_work=Work(), on_leave=lambda: told.append("STOPPING")).leaves()
    assert told == ["STOPPING"]
    assert caplog.messages == ["leaving after 2.5 s with nothing to do: the next call starts a daemon again"]
