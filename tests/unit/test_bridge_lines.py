"""Lines are found whole in whatever pieces they arrive, and their memory is bounded."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.bridge_lines import LineSplitter, TooLong


def lines_of(pieces: list[bytes], most_bytes: int = 100) -> list[bytes | TooLong]:
    """Feed the pieces to a splitter and return all lines."""
    splitter = LineSplitter(most_bytes)
    return [line for piece in pieces for line in splitter.feed(piece)]


@given(st.lists(st.binary(max_size=20)))
def test_the_pieces_do_not_matter(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert lines_of(pieces, 1000) == whole.split(b"\n")[:-1] == lines_of([whole], 1000)


@given(st.lists(st.binary(max_size=20)), st.integers(0, 10))
def test_what_is_too_long_is_dropped_and_told_in_its_place(pieces: list[bytes], most_bytes: int) -> None:
    lines = b"".join(pieces).split(b"\n")[:-1]
    expected = [line if len(line) <= most_bytes else TooLong() for line in lines]
    assert lines_of(pieces, most_bytes) == expected


def test_a_line_without_end_is_not_kept() -> None:
    splitter = LineSplitter(most_bytes=1_000_000)
    tracemalloc.start()
    try:
        for _ in range(50):
            assert list(splitter.feed(bytes(900_000))) == []
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert list(splitter.feed(b"\nafter\n")) == [TooLong(), b"after"]
