"""The files of a turn without a turn, and a clock that stands until it is moved."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hive_subagent_daemon.output import Output, TurnFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

TMPFS = Path("/dev/shm")


class StandingClock:
    """A monotonic clock that stands until it is moved."""

    def __init__(self) -> None:
        """Begin somewhere, as a monotonic clock does."""
        self.seconds = 5_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


def files_in(folder: Path) -> TurnFiles:
    """Create the files of a turn, empty ones in the place of what is there."""
    files = TurnFiles(folder)
    files.create(b"")
    return files


@contextmanager
def following(files: TurnFiles, *, clock: StandingClock | None = None) -> Iterator[Output]:
    """Follow the files of a turn until the block ends."""
    output = Output(files) if clock is None else Output(files, clock=clock)
    try:
        yield output
    finally:
        output.retire()
        output.close()


def append(path: Path, content: bytes) -> int:
    """Write at the end as a child does; return the size afterwards."""
    with path.open("ab") as file:
        file.write(content)
        return file.tell()


@contextmanager
def on_tmpfs() -> Iterator[Path]:
    """Make a folder in memory where the system has such a place, else an ordinary temporary one."""
    place = TMPFS if TMPFS.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)
