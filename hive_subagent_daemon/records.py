"""What is kept on disk, as JSON: turn records, what is remembered per subagent, and loose ends.

Readers take an older or newer record with further or missing optional fields; a file that cannot be read is
set aside and reported, never an obstacle (`Records.unreadable` lists them).
"""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from hive_subagent_daemon import clock, names, progress, unit_names
from hive_subagent_daemon.archive import Rename  # noqa: TC001  pydantic reads the annotation
from hive_subagent_daemon.regular_files import NotRegularError, read_regular
from hive_subagent_daemon.storage import GONE_PREFIX
from hive_subagent_daemon.values import (
    NO_BOUNDS,
    OF_THE_AGENT,
    Bounds,
    LooseEnd,
    Outcome,
    Parentage,
    SentSignal,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.storage import Storage

_log = logging.getLogger(__name__)

REMEMBERED_TEXT_CHARACTERS: Final = 4_000
RECORD_BYTES: Final = 4 * 1024 * 1024
_NO_FILE: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENOENT)


@dataclass(frozen=True)
class TurnRecord:
    """A turn as it is known before its process exists, so that a crash at any moment leaves a trace.

    `pid`, `pid_start` (clock ticks, proc_pid_stat(5) field 22), `cgroup` (of its slice) and the memory limit
    that holds for it are filled in while the process is still held at its gate; `scope` is the scope that it
    is to get. `oom_outlived` kills for lack of memory had claude outlived when this was stored. `bounds` hold
    for this turn. For a daemon that takes the turn over: `began` is when the process was made, by the
    monotonic clock of this boot; `sent` are our signals, stored before they are sent; `stopped_after_result`
    and `timed_out` say what else we had begun. `unread` are the ids of messages that were handed to a
    steerable turn and, when this was stored, not taken yet.
    """

    turn: str
    name: str
    resumes: bool
    dir: str
    session_id: str | None
    model: str | None
    prompt_copy: str | None
    started_at: str
    boot_id: str
    mcp_servers: tuple[str, ...] = ()
    archived: tuple[Rename, ...] = ()
    pid: int | None = None
    pid_start: int | None = None
    scope: str | None = None
    cgroup: str | None = None
    memory_limit_bytes: int | None = None
    oom_outlived: int = 0
    bounds: Bounds = NO_BOUNDS
    parentage: Parentage = OF_THE_AGENT
    began: float | None = None
    sent: tuple[SentSignal, ...] = ()
    stopped_after_result: bool = False
    timed_out: bool = False
    steerable: bool = False
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubagentRecord:
    """What is remembered of a name between its turns."""

    name: str
    dir: str
    session_id: str | None
    model: str | None
    prompt_copy: str | None
    last_turn: Outcome


Record = TypeVar("Record", TurnRecord, SubagentRecord, LooseEnd)


class _Format(Generic[Record]):
    """One kind of record as JSON text."""

    def __init__(self, kind: type[Record]) -> None:
        self._adapter: TypeAdapter[Record] = TypeAdapter(kind)

    def encode(self, record: Record) -> bytes:
        return self._adapter.dump_json(record) + b"\n"

    def decode(self, content: bytes) -> Record:
        """Return the record; raises ValueError when it is not one that we can have written."""
        record = self._adapter.validate_json(content)
        _check(record)
        return record


_TURN: Final = _Format(TurnRecord)
_SUBAGENT: Final = _Format(SubagentRecord)
_LOOSE_END: Final = _Format(LooseEnd)


def _check(record: TurnRecord | SubagentRecord | LooseEnd) -> None:
    """Raise ValueError for what no record of ours holds, and what would do harm later."""
    match record:
        case TurnRecord():
            _check_turns(record.turn)
            _check_moments(record.started_at)
            _check_texts(record.dir, record.prompt_copy)
            _check_scope(record.scope)
        case SubagentRecord():
            _check_turns(record.last_turn.turn)
            _check_moments(record.last_turn.started_at, record.last_turn.ended_at)
            _check_texts(record.dir, record.prompt_copy)
        case LooseEnd():
            _check_turns(record.id, record.outcome.turn)
            closed = () if record.closed_at is None else (record.closed_at,)
            _check_moments(record.outcome.started_at, record.outcome.ended_at, *closed)


def _check_turns(*turns: str) -> None:
    """New ids are counted on from the greatest: one that is none of ours must not come among them."""
    for turn in turns:
        if not clock.is_turn_id(turn):
            message = f"{turn!r} is not the id of a turn"
            raise ValueError(message)


def _check_moments(*texts: str) -> None:
    for text in texts:
        if clock.from_text(text).tzinfo is None:
            message = f"{text!r} has no time zone"
            raise ValueError(message)


def _check_scope(scope: str | None) -> None:
    """A file is named after it, and systemd is asked for it."""
    if scope is not None and not unit_names.is_scope(scope):
        message = f"{scope!r} is not the name of a scope"
        raise ValueError(message)


def _check_texts(*paths: str | None) -> None:
    if any("\0" in path for path in paths if path is not None):
        message = "a path has a NUL"
        raise ValueError(message)


def _place_of(record: TurnRecord | SubagentRecord | LooseEnd) -> str:
    """Return the folder and file name that a record must be found under, by what it says of itself."""
    match record:
        case TurnRecord():
            return f"{record.turn}.{record.name}/record.json"
        case SubagentRecord():
            return f"names/{record.name}.json"
        case LooseEnd():
            return f"loose-ends/{record.id}.json"


class Records:
    """The files of the state directory below `names`, `prompts`, `turns` and `loose-ends`.

    All methods block.
    """

    def __init__(self, storage: Storage) -> None:
        """Keep the records in the state directory of `storage`."""
        self._storage = storage
        self._root = storage.root
        self.unreadable: list[str] = []
        self.damaged_loose_ends: set[str] = set()

    # Turns

    def turn_folder(self, turn: str, name: str) -> Path:
        """Return the folder of one turn; its name alone tells the subagent, should the record be damaged."""
        return self._root / "turns" / f"{turn}.{name}"

    def begin_turn(self, record: TurnRecord) -> Path:
        """Store the record of a turn that is about to be spawned and return its folder."""
        folder = self.turn_folder(record.turn, record.name)
        self._storage.make_folder(folder)
        self.update_turn(record)
        return folder

    def update_turn(self, record: TurnRecord) -> None:
        """Replace the record of a turn."""
        folder = self.turn_folder(record.turn, record.name)
        self._storage.write(folder / "record.json", _TURN.encode(record))

    def end_turn(self, turn: str, name: str) -> None:
        """Remove the record and the three files of a turn."""
        self._storage.remove_folder(self.turn_folder(turn, name))

    def keep_progress(self, folder: Path, now: progress.Progress) -> None:
        """Store how far the output of a turn has been read."""
        self._storage.write(folder / "progress.json", progress.encode(now))

    def progress(self, folder: Path) -> progress.Progress:
        """Return how far the output of a turn had been read; from the beginning where nothing is stored."""
        try:
            return progress.decode(read_regular(folder / "progress.json", RECORD_BYTES))
        except FileNotFoundError:
            return progress.NO_PROGRESS
        except (ValueError, NotRegularError) as error:
            _log.warning("%s: what was read of the output is read again: %s", folder, error)
            return progress.NO_PROGRESS

    def turns(self) -> list[tuple[str, str, TurnRecord | None]]:
        """Return turn id, name and record of each turn on disk; the record is None if missing or damaged."""
        found = []
        for folder in sorted((self._root / "turns").iterdir()):
            if folder.name.startswith(GONE_PREFIX):
                self._storage.remove_folder(folder.with_name(folder.name.removeprefix(GONE_PREFIX)))
                continue
            turn, _, name = folder.name.partition(".")
            if not (clock.is_turn_id(turn) and names.is_name(name) and folder.is_dir()):
                self._set_aside(folder, "is not the folder of a turn")
                continue
            path = folder / "record.json"
            damaged = folder / "damaged"
            if os.path.lexists(path):
                damaged.touch(mode=0o600)  # should it have to be set aside: what is left still was a turn
                record = self._read(path, _TURN)
                if record is not None:
                    damaged.unlink()
                found.append((turn, name, record))
            elif damaged.exists():
                found.append((turn, name, None))
            else:
                self.end_turn(turn, name)  # broken off before there was a record: never a turn
        return found

    # Subagents

    def remember(self, record: SubagentRecord) -> None:
        """Store what is known of a name."""
        text = record.last_turn.verdict.text
        if text is not None and len(text) > REMEMBERED_TEXT_CHARACTERS:
            verdict = replace(record.last_turn.verdict, text=text[:REMEMBERED_TEXT_CHARACTERS])
            record = replace(record, last_turn=replace(record.last_turn, verdict=verdict))
        self._storage.write(self._root / "names" / f"{record.name}.json", _SUBAGENT.encode(record))

    def forget(self, record: SubagentRecord) -> None:
        """Remove what is known of a name; claude's session is not touched."""
        self._storage.remove(self._root / "names" / f"{record.name}.json")
        self.remove_prompt(record)

    def remove_prompt(self, record: SubagentRecord) -> None:
        """Remove the prompt copy of a name, which nothing uses any more.

        One that cannot be removed must not keep a turn from ending: the next start removes it.
        """
        if record.prompt_copy is None:
            return
        try:
            # By its name only: a damaged record must not make us remove anything else.
            self._storage.remove(self._root / "prompts" / Path(record.prompt_copy).name)
        except OSError as error:
            _log.warning("the prompt copy %s stays until the next start: %s", record.prompt_copy, error)

    def subagents(self) -> list[SubagentRecord]:
        """Return every name that is remembered."""
        read = [self._read(path, _SUBAGENT) for path in self._paths("names")]
        return [record for record in read if record is not None]

    def prompt_path(self, name: str, turn: str) -> Path:
        """Return where the private copy of a prompt file is that a turn began with."""
        return self._root / "prompts" / f"{name}.{turn}"

    def copy_prompt(self, name: str, turn: str, content: bytes) -> None:
        """Store a private copy of a prompt file."""
        self._storage.write(self.prompt_path(name, turn), content)

    def restore_ballast(self) -> None:
        """Make the ballast again as soon as the disk has room for it."""
        self._storage.restore_ballast()

    def keep_prompts(self, wanted: set[str]) -> None:
        """Remove every prompt copy that is not among the wanted paths."""
        for path in (self._root / "prompts").iterdir():
            if path.is_dir() and not path.is_symlink():
                self._set_aside(path, "is not a prompt file")
            elif str(path) not in wanted:
                self._storage.remove(path)

    # Loose ends

    def store_loose_end(self, loose_end: LooseEnd) -> None:
        """Store a loose end; once this returns, the turn has ended for good."""
        self._storage.write(self._loose_end_path(loose_end.id), _LOOSE_END.encode(loose_end))

    def read_loose_end(self, loose_end_id: str) -> LooseEnd | None:
        """Return one loose end; None when its file is gone or damaged."""
        path = self._loose_end_path(loose_end_id)
        return self._read(path, _LOOSE_END) if os.path.lexists(path) else None

    def remove_loose_end(self, loose_end_id: str) -> None:
        """Remove one loose end for good."""
        self._storage.remove(self._loose_end_path(loose_end_id))

    def loose_ends(self) -> Iterator[LooseEnd]:
        """Yield every loose end, oldest first."""
        for path in self._paths("loose-ends"):
            loose_end = self._read(path, _LOOSE_END)
            if loose_end is None:
                self.damaged_loose_ends.add(path.stem)
            else:
                yield loose_end

    def _loose_end_path(self, loose_end_id: str) -> Path:
        return self._root / "loose-ends" / f"{loose_end_id}.json"

    # Reading

    def _paths(self, folder: str) -> Iterator[Path]:
        for path in sorted((self._root / folder).iterdir()):
            if path.name.endswith(".partial"):
                self._storage.remove(path)  # left by a crash in the middle of a write
            else:
                yield path

    def _read(self, path: Path, record_format: _Format[Record]) -> Record | None:
        """Return a record, None when it was damaged and is set aside now.

        An error of the disk or a lack of descriptors is no damage: it is raised (OSError).
        """
        try:
            record = record_format.decode(read_regular(path, RECORD_BYTES))
            if _place_of(record) != f"{path.parent.name}/{path.name}":
                message = "it belongs elsewhere"
                raise ValueError(message)
        except ValidationError as error:
            self._set_aside(path, f"is not valid ({error.error_count()} errors)")
        except ValueError as error:
            self._set_aside(path, f"is not valid ({error})")
        except OSError as error:
            if not isinstance(error, NotRegularError) and error.errno not in _NO_FILE:
                raise
            self._set_aside(path, error.strerror or str(error))
        else:
            return record
        return None

    def _set_aside(self, path: Path, reason: str) -> None:
        try:
            target: Path | None = self._storage.set_aside(path)
        except OSError as error:
            target = None
            _log.error("%s could not be set aside: %s", path, error)
        place = f"it was set aside as {target}" if target else "it was left where it is"
        self.unreadable.append(f"{path} could not be used ({reason}): {place}.")
        _log.error("%s", self.unreadable[-1])
