"""Making way for a new session: finished ones of the same title are renamed, never deleted, and brought back.

A plan is made first and stored by the caller; `apply` and `undo` may then be repeated after a crash at any
moment. claude's folder `<uuid>/` beside a transcript stays where it is.
"""

from __future__ import annotations

import itertools
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rename:
    """One transcript to be renamed within its folder."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Unrestored:
    """A rename that could not be undone, and why; both paths are as they were found."""

    rename: Rename
    reason: str


class Renamer(Protocol):
    """Renames durably."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename, never over an existing target (FileExistsError); on return it is on the disk."""


def plan_archive(paths: Iterable[Path]) -> tuple[Rename, ...]:
    """Choose the first free archive name for each transcript; nothing is changed."""
    return tuple(Rename(path, _free_target(path)) for path in dict.fromkeys(paths))


def _free_target(path: Path) -> Path:
    first = Path(f"{path}.archived")
    numbered = (Path(f"{first}.{number}") for number in itertools.count(1))
    return next(target for target in itertools.chain((first,), numbered) if not os.path.lexists(target))


def apply(renames: Sequence[Rename], renamer: Renamer) -> None:
    """Rename all of them or none; what an earlier attempt has renamed is left so.

    A transcript that is gone by now needs no archive. Raises RefusedError, after undoing what was done.
    """
    for position, rename in enumerate(renames):
        try:
            _rename(rename.source, rename.target, renamer)
        except OSError as error:
            # An error other than "exists" may come after the rename itself, from making it durable.
            attempted = position if isinstance(error, FileExistsError) else position + 1
            undo(renames[:attempted], renamer)
            raise RefusedError(_refusal(rename, error)) from error


def undo(renames: Sequence[Rename], renamer: Renamer) -> tuple[Unrestored, ...]:
    """Bring back what was renamed, the last one first, and return what could not be.

    Where the source exists again, both files stay. One that fails does not keep the others from coming back.
    """
    left = []
    for rename in reversed(renames):
        try:
            _rename(rename.target, rename.source, renamer)
        except OSError as error:
            reason = "the transcript exists again" if isinstance(error, FileExistsError) else _reason(error)
            _log.warning("the archived transcript %s stays as it is: %s", rename.target, reason)
            left.append(Unrestored(rename, reason))
    return tuple(left)


def _rename(source: Path, target: Path, renamer: Renamer) -> None:
    """Rename unless there is nothing to rename: done already, or gone. Raises OSError."""
    if not os.path.lexists(source):
        return
    try:
        renamer.rename(source, target)
    except FileNotFoundError:
        if os.path.lexists(source):
            raise


def _refusal(rename: Rename, error: OSError) -> str:
    if isinstance(error, FileExistsError):
        return f"the archive name {rename.target} was taken by another process just now: start again."
    return (
        f"the earlier session {rename.source} could not be archived ({_reason(error)}): "
        "let the user that the daemon runs as write to its folder, or choose another name."
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
