"""Fixtures: daemons with the plugin, installed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.claude.waking.plugged import PluggedDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.offline_model import OfflineModel


@pytest.fixture
def unplugged(tmp_path: Path, claude_program: Path, model: OfflineModel) -> Iterator[PluggedDaemon]:
    """Run a daemon in whose HOME nothing is installed yet; afterwards nothing of it is left."""
    daemon = PluggedDaemon(tmp_path / "d", claude_program, model)
    daemon.boot()
    yield daemon
    daemon.shut()


@pytest.fixture
def plugged(unplugged: PluggedDaemon) -> PluggedDaemon:
    """Run a daemon whose HOME has the plugin, for its user and so for its subagents too."""
    return unplugged.install_plugin()
