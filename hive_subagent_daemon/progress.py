"""How far the output of a turn has been read and what it had told by then, for a later daemon.

Output that was read is given back to the disk, so its beginning cannot be read again: what it told is stored
before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter

from hive_subagent_daemon.skim import Seen


@dataclass(frozen=True)
class Progress:
    """All that the output up to an offset has told; `passed_over` says what of it could not be read."""

    read_upto: int = 0
    seen: Seen = field(default_factory=Seen)
    passed_over: str | None = None


_ADAPTER: Final = TypeAdapter(Progress)
NO_PROGRESS: Final = Progress()


def encode(progress: Progress) -> bytes:
    """Return the progress as JSON text."""
    return _ADAPTER.dump_json(progress) + b"\n"


def decode(content: bytes) -> Progress:
    """Return the progress; ValueError when it is not one that we can have written."""
    progress = _ADAPTER.validate_json(content)
    if progress.read_upto < 0:
        message = "a negative offset"
        raise ValueError(message)
    return progress
