"""Slices to stop, kept in a folder of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hive_subagent_daemon.slices_to_stop import SlicesToStop
from hive_subagent_daemon.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path


def slices_in(folder: Path) -> SlicesToStop:
    """Return the slices to stop that are noted below a folder."""
    (folder / "slices").mkdir(parents=True, exist_ok=True)
    return SlicesToStop(Storage(folder, ballast_bytes=0))
