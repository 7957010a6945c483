"""Outside of a machine made of namespaces, the tests here cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systemd.machines import NAMESPACES, machine

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests unless they are inside."""
    if machine() == NAMESPACES:
        return
    outside = pytest.mark.skip(reason="runs inside a machine of its own: scripts/test --tier systemd")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(outside)
