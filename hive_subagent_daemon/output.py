"""The files of one turn: its age, its output followed just enough, and what was read given back to the disk.

claude gets regular files, not pipes: an undrained pipe loses output at exit (measured), and files need no
daemon that is alive or quick.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.progress import NO_PROGRESS, Progress
from hive_subagent_daemon.skim import LONGEST_LINE_BYTES, skim
from hive_subagent_daemon.storage import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_log = logging.getLogger(__name__)

KEPT_OUTPUT_BYTES: Final = 16 * 1024 * 1024
STDERR_TAIL_BYTES: Final = 16 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_MOST_BYTES_A_LOOK: Final = 128 * 1024 * 1024
_GIVE_BACK_STEP_BYTES: Final = 4 * 1024 * 1024
# A disk that fails for a moment must not turn a success into a failure.
_READ_AGAIN_SECONDS: Final = (0.1, 0.5, 1.0)


@dataclass(frozen=True)
class TurnFiles:
    """Where the files of a turn are."""

    folder: Path

    @property
    def stdin(self) -> Path:
        """The prompt, whole; of a steerable turn the FIFO through which it comes."""
        return self.folder / "stdin"

    @property
    def stdout(self) -> Path:
        """claude's stream-json output."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """What claude wrote to stderr."""
        return self.folder / "stderr"

    @property
    def mcp_config(self) -> Path:
        """The MCP servers opted in for subagents."""
        return self.folder / "mcp.json"

    def create(self, prompt: bytes | None) -> None:
        """Create stdin with the prompt if there is one, stdout and stderr empty, all mode 0600. Blocks."""
        for path, content in ((self.stdin, prompt), (self.stdout, b""), (self.stderr, b"")):
            if content is not None:
                write_private(path, content)

    def complete(self) -> None:
        """See to it that stdout and stderr are regular files, whatever was left there. Blocks."""
        for path in (self.stdout, self.stderr):
            if path.is_symlink() or (path.exists() and not path.is_file()):
                path.rename(path.with_name(f"{path.name}.foreign"))
            if not path.exists():  # touching an existing one would forget when it was last written
                path.touch(mode=0o600)

    def last_written(self) -> datetime:
        """Return when the turn last wrote something, by the wall clock. Blocks."""
        return datetime.fromtimestamp(max(p.stat().st_mtime for p in (self.stdout, self.stderr)), UTC)


def write_private(path: Path, content: bytes) -> None:
    """Create a file of mode 0600 that need not survive a crash."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


class Output:
    """Follows stdout and stderr of one turn.

    `look`, `finish` and `close` block and are for a worker thread; the rest is cheap and for the event loop.
    """

    def __init__(
        self,
        files: TurnFiles,
        *,
        clock: Callable[[], float] = time.monotonic,
        since: float | None = None,
        progress: Progress = NO_PROGRESS,
        keep: Callable[[Progress], None] | None = None,
    ) -> None:
        """Follow from the beginning, or on from where an earlier daemon was; the files must exist.

        `since` is when the turn began, now if not given. `keep` stores what was read before it is given back.
        """
        self.files = files
        self.seen = progress.seen
        self._failure: str | None = None
        self._passed_over = progress.passed_over
        self._keep = keep
        self._clock = clock
        self._reading = threading.Lock()
        self._closed = False
        self._final_stdout_bytes = 0
        self._stdout = os.open(files.stdout, os.O_RDWR | os.O_CLOEXEC)
        self._stderr = os.open(files.stderr, os.O_RDWR | os.O_CLOEXEC)
        self._read_upto = progress.read_upto
        self._given_back = [0, 0]
        self._sizes = (0, 0)
        self._looked_at = clock() if since is None else since
        self._last_output_at = self._looked_at

    def retire(self) -> None:
        """Ask the files for nothing more from now on; the last answers stay. `close` follows."""
        self._final_stdout_bytes = self.stdout_bytes
        self._closed = True

    def close(self) -> None:
        """Close the files, after `retire` and when no look is under way. Blocks."""
        with self._reading:
            os.close(self._stdout)
            os.close(self._stderr)

    @property
    def stdout_bytes(self) -> int:
        """How much has been written to stdout until now; as last seen, while the disk does not tell."""
        if self._closed:
            return self._final_stdout_bytes
        with suppress(OSError):
            return os.fstat(self._stdout).st_size
        return max(self._sizes[0], self._read_upto)

    @property
    def trouble(self) -> str | None:
        """What of the output could not be read, for good as far as it is known; None when nothing."""
        return self._failure or self._passed_over

    def age_seconds(self) -> float:
        """Return the age of the last output, or of the turn while there is none; never negative.

        From the files' modification times, but believed only as far as the monotonic clock allows: new output
        cannot be older than the previous look. The wall clock may step either way. A change is told by the
        sizes, because giving back blocks changes the modification time too.
        """
        now = self._clock()
        if self._closed:
            return now - self._last_output_at
        with suppress(OSError):
            self._see_output(now, (os.fstat(self._stdout), os.fstat(self._stderr)))
        self._looked_at = now
        return now - self._last_output_at

    def _see_output(self, now: float, status: tuple[os.stat_result, os.stat_result]) -> None:
        sizes = (status[0].st_size, status[1].st_size)
        if sizes != self._sizes:
            changed = max(s.st_mtime for s, old in zip(status, self._sizes, strict=True) if s.st_size != old)
            age = min(max(time.time() - changed, 0.0), now - self._looked_at)
            self._last_output_at = now - age
            self._sizes = sizes

    def silent_seconds(self) -> float:
        """Return the age of the last output as of the last look; costs nothing."""
        return self._clock() - self._last_output_at

    def look(self) -> None:
        """Read what is new and give back to the file system what is no longer needed."""
        with self._reading, self._noting_trouble():
            if not self._closed:
                self._look()

    def _look(self) -> None:
        size = os.fstat(self._stdout).st_size
        self._catch_up(size)
        self._read(size, last=False)
        self._give_back(0, self._stdout, min(self._read_upto, size - KEPT_OUTPUT_BYTES))
        self._give_back(1, self._stderr, os.fstat(self._stderr).st_size - KEPT_OUTPUT_BYTES)

    def finish(self) -> None:
        """Read what is left after the end of the process, an unfinished last line included.

        What cannot be read is tried again for a moment.
        """
        with self._reading:
            for pause in (0.0, *_READ_AGAIN_SECONDS):
                time.sleep(pause)
                self._failure = None
                with self._noting_trouble():
                    self._finish()
                    return

    def _finish(self) -> None:
        size = os.fstat(self._stdout).st_size
        self._catch_up(size)
        self._read(size, last=True)
        if (rest := os.pread(self._stdout, size - self._read_upto, self._read_upto)) != b"":
            self.seen = skim(self.seen, rest, offset=self._read_upto, last=True)
            self._read_upto = size

    @contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        """Keep an error of the file system as a fact about the turn: it must not cost the turn its end."""
        try:
            yield
        except OSError as error:
            self._failure = f"{self.files.folder}: {error}"

    def stderr_tail(self) -> str:
        """Return the end of what claude wrote to stderr."""
        with self._noting_trouble():
            return self._stderr_tail()
        return ""

    def _stderr_tail(self) -> str:
        size = os.fstat(self._stderr).st_size
        tail = os.pread(self._stderr, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES))
        return tail.decode("utf-8", "replace").replace("\0", "").strip()

    def _read(self, size: int, *, last: bool) -> None:
        """Skim all complete lines up to `size`."""
        scanned = self._read_upto
        while scanned < size:
            chunk = os.pread(self._stdout, min(_CHUNK_BYTES, size - scanned), scanned)
            if not chunk:
                return
            newline = chunk.rfind(b"\n")
            scanned += len(chunk)
            if newline < 0:
                continue  # in the middle of a long line
            end = scanned - len(chunk) + newline + 1
            if end - self._read_upto > LONGEST_LINE_BYTES:
                self._passed_over = f"a line of {(end - self._read_upto) // 1048576} MiB was passed over"
                self._read_upto = end - newline - 1  # go on with this chunk
            block = os.pread(self._stdout, end - self._read_upto, self._read_upto)
            at_end = last and end + _CHUNK_BYTES >= size
            self.seen = skim(self.seen, block, offset=self._read_upto, last=at_end)
            self._read_upto = scanned = end

    def _catch_up(self, size: int) -> None:
        """Go to where reading makes sense: the beginning of a truncated file, or near the end of a flood."""
        if size < self._read_upto:
            self._read_upto = 0  # the child truncated its own output
        if size - self._read_upto > _MOST_BYTES_A_LOOK:
            self._pass_over(size - KEPT_OUTPUT_BYTES)

    def _pass_over(self, offset: int) -> None:
        """Give up following everything: go on at the line behind `offset`."""
        chunk = os.pread(self._stdout, _CHUNK_BYTES, offset)
        self._passed_over = f"{(offset - self._read_upto) // 1048576} MiB of it were too much at once"
        self._read_upto = offset + chunk.find(b"\n") + 1

    def _give_back(self, which: int, descriptor: int, upto: int) -> None:
        given = self._given_back[which]
        if upto < given:
            given = 0  # the child truncated the file and began anew
        if upto - given >= _GIVE_BACK_STEP_BYTES:
            if descriptor == self._stdout:
                self._keep_progress()
            give_back(descriptor, upto_bytes=upto)
            self._given_back[which] = upto

    def _keep_progress(self) -> None:
        """Store what was read. A full disk gets its space back all the same: the turns need it more."""
        if self._keep is None:
            return
        try:
            self._keep(Progress(self._read_upto, self.seen, self._passed_over))
        except OSError as error:
            _log.warning("what was read of %s is not stored: %s", self.files.stdout, error)
