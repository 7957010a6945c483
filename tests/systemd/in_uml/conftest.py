"""Outside of a guest, a test here means: boot a guest and run it there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.systemd.booted_items import Booted
from tests.systemd.machines import UML, machine

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put a boot in the place of each test."""
    if machine() != UML:
        items[:] = [Booted.standing_for(item) if item.path.is_relative_to(HERE) else item for item in items]
