"""The FIFO of a steerable turn: nobody waits for a child that does not read, and nothing is half said."""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import steering as steering_module
from hive_subagent_daemon.gate import inherited_descriptors
from hive_subagent_daemon.steering import PIPE_BYTES, Steering
from hive_subagent_daemon.stream_input import message
from hive_subagent_daemon.values import Exited
from tests.unit.support_gate import at_gate, shell, spec_in
from tests.unit.support_turns import LIMIT_SECONDS, open_descriptors, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = message("x" * 5_000_000)
SMALL = message("less")


class Reader:
    """The child's side, which reads when the test says so."""

    def __init__(self, path: Path) -> None:
        """Open it as a child does."""
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.content = b""
        self.ended = False

    def read(self) -> None:
        """Read what is there."""
        with suppress(BlockingIOError):
            while piece := os.read(self.descriptor, 1 << 20):
                self.content += piece
            self.ended = True

    async def read_to_the_end(self) -> bytes:
        """Read until nobody writes any more."""

        def at_the_end() -> bool:
            self.read()
            return self.ended

        await until(at_the_end, what="the end of the input")
        return self.content


@contextmanager
def begun(folder: Path, first: bytes = SMALL.line) -> Iterator[tuple[Steering, Reader]]:
    """Make the FIFO of a turn whose child reads; both ends are closed when the block ends."""
    steering = Steering(folder / "fifo")
    steering.create(type(SMALL)("first", first))
    reader = Reader(folder / "fifo")
    steering.attach()
    try:
        yield steering, reader
    finally:
        steering.close()
        os.close(reader.descriptor)


async def test_the_fifo_is_private_and_its_end_is_passed_to_no_child(tmp_path: Path) -> None:
    others = inherited_descriptors()
    with begun(tmp_path) as (steering, _):
        mode = (tmp_path / "fifo").stat().st_mode
        assert (stat.S_ISFIFO(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert inherited_descriptors() == others
        assert steering.is_open


async def test_a_first_message_larger_than_the_pipe_waits_for_nobody_and_arrives_whole(
    tmp_path: Path,
) -> None:
    with begun(tmp_path, LARGE.line) as (steering, reader), anyio.fail_after(LIMIT_SECONDS):
        assert steering.is_blocked
        steering.say(SMALL.line)
        steering.finish()
        assert not steering.is_open
        assert await reader.read_to_the_end() == LARGE.line + SMALL.line
        await steering.written()


async def test_what_fits_into_the_pipe_is_there_before_anybody_reads(tmp_path: Path) -> None:
    first = message("x" * (PIPE_BYTES // 2))
    with begun(tmp_path, first.line) as (steering, reader):
        if steering.is_blocked:
            pytest.skip("this user may have no larger pipes")
        reader.read()
        assert reader.content == first.line


async def test_a_message_for_which_there_is_no_room_is_taken_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering_module, "HAND_OVER_SECONDS", 0.02)
    with begun(tmp_path, LARGE.line) as (steering, reader), anyio.fail_after(LIMIT_SECONDS):
        assert await steering.hand_over(SMALL) is False
        steering.finish()
        assert await reader.read_to_the_end() == LARGE.line


async def test_a_message_that_is_in_the_pipe_in_part_follows_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering_module, "HAND_OVER_SECONDS", 0.02)
    with begun(tmp_path) as (steering, reader), anyio.fail_after(LIMIT_SECONDS):
        assert await steering.hand_over(LARGE) is True
        assert steering.is_blocked
        steering.finish()
        assert await reader.read_to_the_end() == SMALL.line + LARGE.line


async def test_a_child_that_has_gone_is_noticed_at_the_next_message(tmp_path: Path) -> None:
    with begun(tmp_path) as (steering, reader), anyio.fail_after(LIMIT_SECONDS):
        os.close(reader.descriptor)
        assert await steering.hand_over(SMALL) is False
        assert not steering.is_open
        reader.descriptor = os.open(tmp_path, os.O_RDONLY)


async def test_a_child_that_goes_while_a_long_message_is_written_is_noticed(tmp_path: Path) -> None:
    with begun(tmp_path, LARGE.line) as (steering, reader), anyio.fail_after(LIMIT_SECONDS):
        os.close(reader.descriptor)
        await steering.written()
        assert not steering.is_open
        reader.descriptor = os.open(tmp_path, os.O_RDONLY)


async def test_a_child_that_had_gone_before_it_was_watched_is_no_error(tmp_path: Path) -> None:
    before = open_descriptors()
    steering = Steering(tmp_path / "fifo")
    steering.create(SMALL)
    steering.attach()
    assert await steering.hand_over(SMALL) is False
    steering.close()
    assert open_descriptors() == before


async def test_the_end_of_a_turn_closes_it_whatever_still_waits(tmp_path: Path) -> None:
    before = open_descriptors()
    steering = Steering(tmp_path / "fifo")
    steering.create(LARGE)
    steering.close()
    steering.close()
    assert open_descriptors() == before


async def test_a_child_at_the_gate_reads_the_fifo_and_cannot_write_to_it(tmp_path: Path) -> None:
    steering = Steering(tmp_path / "fifo")
    steering.create(SMALL)
    # /proc shows how it was opened: 0 in the last digit is for reading only.
    script = "cat /proc/self/fdinfo/0 >opened; ls /proc/$$/fd >descriptors; exec cat"
    spec = spec_in(tmp_path, *shell(script), stdin=tmp_path / "fifo", stdin_is_fifo=True)
    with at_gate(spec) as child, anyio.fail_after(LIMIT_SECONDS):
        await child.gated.release()
        steering.attach()
        steering.say(SMALL.line)
        steering.finish()
        assert child.end() == Exited(0)
    assert (tmp_path / "stdout").read_bytes() == 2 * SMALL.line
    opened = (tmp_path / "opened").read_text()
    [flags] = [line.split()[1] for line in opened.splitlines() if line.startswith("flags:")]
    assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    assert int(flags, 8) & os.O_NONBLOCK == 0
    assert "3" not in (tmp_path / "descriptors").read_text().split()


async def test_a_gate_whose_daemon_has_gone_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    steering = Steering(tmp_path / "fifo")
    steering.create(SMALL)
    spec = spec_in(tmp_path, "cat", stdin=tmp_path / "fifo", stdin_is_fifo=True)
    with at_gate(spec) as child, anyio.fail_after(LIMIT_SECONDS):
        steering.close()
        await child.gated.release()
        assert child.end() == Exited(0)
    assert json.loads((tmp_path / "stdout").read_bytes())["message"]["content"] == "less"
