"""Fixtures: daemons with the plugin, installed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.claude.waking.plugged import PluggedDaemon
from tests.support.offline_model import OfflineModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def unplugged(tmp_path: Path, claude_program: Path, model: OfflineModel) -> Iterator[PluggedDaemon]:
    """Run a daemon in whose HOME nothing is installed yet; afterwards nothing of it is left."""
    daemon = PluggedDaemon(tmp_path / "d", claude_program, model)
    daemon.boot()
    yield daemon
    daemon.shut()


@pytest.fixture(scope="session")
def home_with_plugin(tmp_path_factory: pytest.TempPathFactory, claude_program: Path) -> Path:
    """Install the plugin once, as a user does it, and return the HOME that has it."""
    with OfflineModel() as model:
        daemon = PluggedDaemon(tmp_path_factory.mktemp("installed"), claude_program, model)
        daemon.install_plugin()
    return daemon.home


@pytest.fixture
def plugged(unplugged: PluggedDaemon, home_with_plugin: Path) -> PluggedDaemon:
    """Run a daemon whose HOME has the plugin, for its user and so for its subagents too."""
    unplugged.take_plugins_from(home_with_plugin)
    return unplugged
