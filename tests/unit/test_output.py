"""The output of a turn is followed just enough, whatever and however much the child writes."""

from __future__ import annotations

import os
import stat
import threading
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hive_subagent_daemon.output import KEPT_OUTPUT_BYTES, STDERR_TAIL_BYTES, Output, TurnFiles
from tests.support.processes import eventually
from tests.unit.support_output import StandingClock, append, files_in, following, on_tmpfs
from tests.unit.support_streams import PlainReader, assistant, filler, init, line, lines, result, stream_lines

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024
LIMIT_SECONDS = 30.0
CHATTER = line(filler(1_000))


def text_of(output: Output) -> str | None:
    """Return the text of the last result that was seen."""
    found = output.seen.result
    return found.text if found else None


# The files


def test_the_files_of_a_turn_are_private_and_stdin_holds_the_prompt(tmp_path: Path) -> None:
    files = TurnFiles(tmp_path)
    before = os.umask(0)
    try:
        files.create(b"do it")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (files.stdin, files.stdout, files.stderr)}
    assert modes == {0o600}
    assert (files.stdin.read_bytes(), files.stdout.read_bytes(), files.stderr.read_bytes()) == (
        b"do it",
        b"",
        b"",
    )


def test_missing_files_are_completed_and_those_that_are_there_stay(tmp_path: Path) -> None:
    """A crash may have come between two of them."""
    files = TurnFiles(tmp_path)
    files.stdout.write_bytes(b"kept")
    files.complete()
    assert (files.stdout.read_bytes(), files.stderr.read_bytes()) == (b"kept", b"")


def test_the_time_of_the_last_output_is_that_of_the_later_file(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    os.utime(files.stdout, (1_000, 1_000))
    os.utime(files.stderr, (2_000, 2_000))
    assert files.last_written() == datetime.fromtimestamp(2_000, UTC)


# Following


@given(stream_lines(padding=300), st.lists(st.integers(0, 10_000), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_output_that_arrives_in_any_pieces_tells_the_same_as_in_one(
    tmp_path: Path, parts: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(parts)
    plain = PlainReader(stream)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    with following(files_in(tmp_path)) as output:
        for start, end in pairwise(edges):
            append(output.files.stdout, stream[start:end])
            output.look()
        output.finish()
        seen = output.seen
    assert (seen.init, seen.result, seen.result_end) == (plain.init, plain.result, plain.result_end)
    assert (dict(seen.pending), seen.last_text, seen.round_open) == (
        plain.pending,
        plain.last_text,
        plain.round_open,
    )


def test_a_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, line(result("one")).rstrip())
        output.look()
        assert text_of(output) is None
        append(output.files.stdout, b"\n")
        output.look()
        assert text_of(output) == "one"


def test_an_unfinished_last_line_is_read_at_the_end(tmp_path: Path) -> None:
    stream = line(init()) + line(result("one")).rstrip()
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, stream)
        output.look()
        output.finish()
        assert (text_of(output), output.seen.result_end) == ("one", len(stream))


def test_a_last_line_that_was_cut_is_counted_as_broken(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, line(result("one")) + line(result("two"))[:40])
        output.finish()
        assert (text_of(output), output.seen.broken_lines) == ("one", 1)


@pytest.mark.parametrize("size", [MIB - 100, MIB, 3 * MIB, 7 * MIB])
def test_lines_longer_than_one_read_are_read_whole(tmp_path: Path, size: int) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, line(init()) + line(filler(size)) + line(result("x" * size)))
        output.look()
        assert output.seen.result_length == size
        append(output.files.stdout, line(init()) + line(result("after")))
        output.look()
        assert text_of(output) == "after"


def test_a_line_of_absurd_length_is_skipped_and_what_follows_is_read(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, line(result("before")))
        os.truncate(output.files.stdout, 40 * MIB)
        append(output.files.stdout, b"\n" + lines(init(), result("after")))
        output.look()
        assert text_of(output) == "after"


@pytest.mark.parametrize("at_end", [False, True], ids=["look", "finish"])
def test_nothing_is_skipped_of_a_long_output_that_is_followed(tmp_path: Path, *, at_end: bool) -> None:
    """Long lines at any place, across the borders of what is read at once."""
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, CHATTER * 36_000)
        output.look()
        append(output.files.stdout, line(init()) + line(filler(3 * MIB)))
        middle = append(output.files.stdout, line(result("x" * 3 * MIB)))
        append(output.files.stdout, CHATTER * 20_000)
        (output.finish if at_end else output.look)()
        assert (output.seen.result_end, output.seen.result_length) == (middle, 3 * MIB)
        assert output.seen.init is not None


def test_a_long_last_message_is_read_at_the_end_finished_or_not(tmp_path: Path) -> None:
    for ending in (b"\n", b""):
        with following(files_in(tmp_path)) as output:
            append(output.files.stdout, line(assistant("x" * MIB)).rstrip() + ending)
            output.finish()
            assert output.seen.text_length == MIB


@pytest.mark.parametrize("at_end", [False, True], ids=["look", "finish"])
def test_output_that_is_far_ahead_is_skipped_up_to_what_is_kept(tmp_path: Path, *, at_end: bool) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, line(result("early")))
        os.truncate(output.files.stdout, 90 * MIB)
        append(output.files.stdout, b"\n" + CHATTER * 17_000)
        end = append(output.files.stdout, lines(result("late")))
        (output.finish if at_end else output.look)()
        assert (text_of(output), output.seen.result_end) == ("late", end)


def test_output_that_the_child_truncated_is_followed_from_its_new_beginning(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, CHATTER * 50 + line(result("one")))
        output.look()
        os.truncate(output.files.stdout, 0)
        append(output.files.stdout, lines(init(), result("two")))
        output.look()
        assert text_of(output) == "two"


def test_output_that_is_shorter_at_the_end_than_what_was_read_costs_nothing(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, CHATTER * 50 + line(result("one")))
        output.look()
        os.truncate(output.files.stdout, 0)
        append(output.files.stdout, lines(init(), result("two")))
        output.finish()
        assert text_of(output) == "two"
        assert output.trouble is None


def test_a_folder_that_vanished_does_not_keep_the_output_from_being_read(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, lines(init(), result("one")))
        for path in tmp_path.iterdir():
            path.unlink()
        output.finish()
        assert text_of(output) == "one"


@pytest.fixture
def clock() -> StandingClock:
    """Give the clock of the retired output."""
    return StandingClock()


@pytest.fixture
def retired(tmp_path: Path, clock: StandingClock) -> Output:
    """Follow a turn whose files were retired after one line of output, and closed."""
    output = Output(files_in(tmp_path), clock=clock)
    append(output.files.stdout, line(result("one")))
    output.age_seconds()
    output.retire()
    output.close()
    return output


def test_looking_at_retired_files_is_harmless(retired: Output) -> None:
    """A look may have been on its way to a worker thread when the turn ended."""
    retired.look()
    assert text_of(retired) is None
    assert retired.trouble is None


def test_size_and_age_are_still_told_when_the_files_are_closed(retired: Output, clock: StandingClock) -> None:
    """`status` and the follower of all turns may ask in the moment between the last read and the end."""
    append(retired.files.stdout, line(result("two")))
    clock.seconds += 60
    assert retired.stdout_bytes == len(line(result("one")))
    assert 60 <= retired.age_seconds() < 70


def test_a_look_that_is_under_way_is_waited_for_before_the_files_are_closed(tmp_path: Path) -> None:
    output = Output(files_in(tmp_path))
    append(output.files.stdout, line(result("x" * 9 * MIB)))
    looking = threading.Thread(target=output.look)
    looking.start()
    eventually(lambda: output.seen.result is not None or looking.is_alive())
    output.retire()
    output.close()
    looking.join(LIMIT_SECONDS)
    assert output.trouble is None


# Giving back


def test_output_that_was_read_is_given_back_while_its_size_and_its_end_stay() -> None:
    with on_tmpfs() as folder, following(files_in(folder)) as output:
        written = append(output.files.stdout, CHATTER * (24 * MIB // len(CHATTER)) + line(result("one")))
        output.look()
        status = output.files.stdout.stat()
        assert status.st_size == written
        assert KEPT_OUTPUT_BYTES - MIB < status.st_blocks * 512 < KEPT_OUTPUT_BYTES + MIB
        with output.files.stdout.open("rb") as file:
            file.seek(written - KEPT_OUTPUT_BYTES)
            assert b"\0" not in file.read()
        append(output.files.stdout, lines(init(), result("two")))
        output.finish()
        assert text_of(output) == "two"


def test_the_disk_stays_bounded_however_long_a_turn_writes() -> None:
    most = 0
    with on_tmpfs() as folder, following(files_in(folder)) as output:
        for _ in range(12):
            append(output.files.stdout, CHATTER * (4 * MIB // len(CHATTER)))
            output.look()
            most = max(most, output.files.stdout.stat().st_blocks * 512)
    assert most < KEPT_OUTPUT_BYTES + 9 * MIB


def test_what_was_not_read_yet_is_never_given_back() -> None:
    with on_tmpfs() as folder, following(files_in(folder)) as output:
        append(output.files.stdout, line(assistant("x" * 24 * MIB)).rstrip())
        output.look()
        append(output.files.stdout, b"\n")
        output.finish()
        assert output.seen.text_length == 24 * MIB


def test_a_long_stderr_is_given_back_too_and_its_end_stays() -> None:
    with on_tmpfs() as folder, following(files_in(folder)) as output:
        append(output.files.stderr, b"words\n" * (5 * MIB) + b"the end")
        output.look()
        assert output.files.stderr.stat().st_blocks * 512 < KEPT_OUTPUT_BYTES + MIB
        assert output.stderr_tail().endswith("the end")


def test_the_disk_stays_bounded_after_the_child_truncated_its_output() -> None:
    most = 0
    with on_tmpfs() as folder, following(files_in(folder)) as output:
        for step in range(16):
            if step == 8:
                os.truncate(output.files.stdout, 0)
                output.look()
            append(output.files.stdout, CHATTER * (4 * MIB // len(CHATTER)))
            output.look()
            most = max(most, output.files.stdout.stat().st_blocks * 512)
    assert most < KEPT_OUTPUT_BYTES + 9 * MIB


# stderr


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"", ""),
        (b"  Error: x\n\n", "Error: x"),
        (b"a\0b\xffc", "ab\ufffdc"),
        ("ü".encode() * 3, "üüü"),
    ],
)
def test_stderr_is_told_as_text_that_can_be_stored(tmp_path: Path, written: bytes, told: str) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stderr, written)
        assert output.stderr_tail() == told


def test_only_the_end_of_a_long_stderr_is_told(tmp_path: Path) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stderr, b"a" * 5 * MIB + b"the end")
        tail = output.stderr_tail()
        assert (len(tail), tail[-7:]) == (STDERR_TAIL_BYTES, "the end")
