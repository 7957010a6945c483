"""Names of systemd units for turns: escaped as systemd-escape(1) does, unique, and under 200 bytes."""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from typing import Final

MAX_BYTES: Final = 200
MOST_UNIT_BYTES: Final = 255  # systemd's own limit
# What a turn adds: dash, instance, escaped dash, turn id, `.scope`; with some to spare.
MAX_PARENT_SLICE_BYTES: Final = MAX_BYTES - 60
_KEPT: Final = frozenset((string.ascii_letters + string.digits + ":_.").encode())
_AGENT_BYTES: Final = 80
_SCOPE: Final = re.compile(r"[A-Za-z0-9:_.\\-]+\.scope")
_SLICE: Final = re.compile(r"[A-Za-z0-9:_.\\]+(?:-[A-Za-z0-9:_.\\]+)*\.slice")


def escape(text: str) -> str:
    """Return a text as it may stand between the dashes of a unit name (`-` becomes `\\x2d`)."""
    escaped = ""
    for position, byte in enumerate(text.encode()):
        kept = byte in _KEPT and not (position == 0 and byte == ord("."))
        escaped += chr(byte) if kept else f"\\x{byte:02x}"
    return escaped


def is_slice(name: str) -> bool:
    """Tell whether systemd takes this for the name of a slice below the root slice (systemd.slice(5))."""
    return _SLICE.fullmatch(name) is not None


def is_scope(name: str) -> bool:
    """Tell whether this can be the name of the scope of a turn."""
    return len(name) <= MOST_UNIT_BYTES and _SCOPE.fullmatch(name) is not None


def default_slice(agent: str) -> str:
    """Return the slice that holds all turns of an agent.

    Dashes nest slices, so an unescaped agent `a` would own the slice of an agent `a-b` and stopping the one
    would stop the other. A name that gets too long by escaping is cut and gets a hash.
    """
    escaped = escape(agent)
    if len(escaped) > _AGENT_BYTES:
        digest = hashlib.sha256(agent.encode()).hexdigest()[:16]
        whole = escaped[: _AGENT_BYTES - 17]
        head, mark, tail = whole.rpartition("\\")
        escaped = f"{head if mark and len(tail) < 3 else whole}_{digest}"  # never half of an escape
    return f"hive\\x2dsubagent-{escaped}.slice"


@dataclass(frozen=True)
class TurnUnits:
    """The slice and the scope of one turn; both names hold the instance and the turn."""

    slice: str
    scope: str


def turn_units(parent_slice: str, *, instance: str, turn: str) -> TurnUnits:
    """Return the units of a turn below a parent slice; equal for equal arguments, over restarts too."""
    return units_of_scope(f"{parent_slice.removesuffix('.slice')}-{instance}\\x2d{turn}.scope")


def units_of_scope(scope: str) -> TurnUnits:
    """Return the units of the turn that has this scope."""
    return TurnUnits(f"{scope.removesuffix('.scope')}.slice", scope)
