"""The age of a turn's last output: from its spawn on, whatever the wall clock does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.support_output import StandingClock, append, files_in, following, on_tmpfs
from tests.unit.support_streams import filler, line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hive_subagent_daemon.output import Output

HOUR = 3_600.0
SLACK_SECONDS = 2.0  # between the write and the look of a test on a busy machine


@pytest.fixture
def clock() -> StandingClock:
    """Give the clock of the test's output."""
    return StandingClock()


@pytest.fixture
def output(tmp_path: Path, clock: StandingClock) -> Iterator[Output]:
    """Follow the files of a turn that is spawned now."""
    with following(files_in(tmp_path), clock=clock) as followed:
        yield followed


def written(path: Path, *, seconds_ago: float) -> None:
    """Write something whose modification time lies in the past, or by a negative number in the future."""
    append(path, b"anything\n")
    moment = time.time() - seconds_ago
    os.utime(path, (moment, moment))


def test_a_turn_without_output_ages_from_its_spawn(output: Output, clock: StandingClock) -> None:
    """As cases A6 asks for: one that wedges before any output still shows a climbing age."""
    assert output.age_seconds() == 0
    for seconds in (0.5, 30.0, 7 * HOUR):
        clock.seconds = 5_000 + seconds
        assert output.age_seconds() == seconds


def test_files_that_are_older_than_the_turn_do_not_make_it_older(
    tmp_path: Path, clock: StandingClock
) -> None:
    files = files_in(tmp_path)
    os.utime(files.stdout, (1_000, 1_000))
    with following(files, clock=clock) as output:
        clock.seconds += 3
        assert output.age_seconds() == 3


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_of_any_kind_on_either_stream_resets_the_age(
    output: Output, clock: StandingClock, stream: str
) -> None:
    """As cases A9 asks for: raw bytes count, not events that are understood."""
    clock.seconds += HOUR
    assert output.age_seconds() == HOUR
    append(getattr(output.files, stream), b"\xff")
    assert 0 <= output.age_seconds() < SLACK_SECONDS
    clock.seconds += 60
    assert 60 <= output.age_seconds() < 60 + SLACK_SECONDS


def test_output_between_two_looks_has_the_age_of_its_time(output: Output, clock: StandingClock) -> None:
    clock.seconds += HOUR
    written(output.files.stdout, seconds_ago=600)
    assert 600 <= output.age_seconds() < 600 + SLACK_SECONDS


def test_the_later_of_two_streams_counts(output: Output, clock: StandingClock) -> None:
    clock.seconds += HOUR
    written(output.files.stdout, seconds_ago=900)
    written(output.files.stderr, seconds_ago=600)
    assert 600 <= output.age_seconds() < 600 + SLACK_SECONDS


def test_a_stream_that_is_silent_does_not_hide_that_the_other_one_speaks(
    output: Output, clock: StandingClock
) -> None:
    clock.seconds += HOUR
    written(output.files.stderr, seconds_ago=-9 * HOUR)
    output.age_seconds()
    clock.seconds += HOUR
    written(output.files.stdout, seconds_ago=600)
    assert 600 <= output.age_seconds() < 600 + SLACK_SECONDS


def test_a_wall_clock_that_stepped_forward_does_not_make_output_older_than_the_last_look(
    output: Output, clock: StandingClock
) -> None:
    clock.seconds += 100
    output.age_seconds()
    clock.seconds += 5
    written(output.files.stdout, seconds_ago=9 * HOUR)
    assert output.age_seconds() == 5
    clock.seconds += 7
    assert output.age_seconds() == 12


def test_a_wall_clock_that_stepped_back_makes_no_age_negative(output: Output, clock: StandingClock) -> None:
    clock.seconds += 100
    written(output.files.stdout, seconds_ago=-9 * HOUR)
    assert output.age_seconds() == 0
    clock.seconds += 7
    assert output.age_seconds() == 7


def test_a_changed_modification_time_alone_is_no_output(output: Output, clock: StandingClock) -> None:
    append(output.files.stdout, b"x\n")
    output.age_seconds()
    clock.seconds += 50
    output.files.stdout.touch()
    assert 50 <= output.age_seconds() < 50 + SLACK_SECONDS


def test_giving_output_back_to_the_disk_does_not_reset_the_age(clock: StandingClock) -> None:
    with on_tmpfs() as folder, following(files_in(folder), clock=clock) as output:
        append(output.files.stdout, line(filler(1_000)) * 24_000)
        output.age_seconds()
        clock.seconds += 50
        before = output.files.stdout.stat()
        output.look()
        after = output.files.stdout.stat()
        assert after.st_blocks < before.st_blocks
        assert 50 <= output.age_seconds() < 50 + SLACK_SECONDS


def test_output_that_the_child_truncated_counts_as_output(output: Output, clock: StandingClock) -> None:
    append(output.files.stdout, b"words\n" * 100)
    output.age_seconds()
    clock.seconds += 50
    os.truncate(output.files.stdout, 0)
    assert 0 <= output.age_seconds() < SLACK_SECONDS


steps = st.lists(
    st.tuples(st.floats(0, 10_000), st.booleans(), st.floats(-50_000, 50_000)), min_size=1, max_size=12
)


@given(steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_the_age_is_never_negative_nor_older_than_the_turn_or_its_last_known_output(
    tmp_path: Path, moves: list[tuple[float, bool, float]]
) -> None:
    clock = StandingClock()
    with following(files_in(tmp_path), clock=clock) as output:
        oldest = 0.0
        for passed, writes, step in moves:
            clock.seconds += passed
            if writes:
                written(output.files.stdout, seconds_ago=step)
                oldest = 0.0
            oldest += passed
            age = output.age_seconds()
            assert 0 <= age <= oldest * (1 + 1e-9) + 1e-6
            if not writes:
                assert age >= passed * (1 - 1e-9) - 1e-6
