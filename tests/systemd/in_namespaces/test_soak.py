"""Many turns in scopes with everything mixed by a seeded plan: as without scopes, and no unit stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stub.conftest import assert_without_fault
from tests.stub.soak_machine import MOST_RUNNING
from tests.stub.test_soak import CLOSED_DAYS, soak_through
from tests.support.daemon_harness import Daemon, Setting
from tests.support.processes import eventually
from tests.systemd.managers import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import TellFigure
    from tests.systemd.managers import Manager

TURNS, SECONDS = 50, 15.0


@pytest.fixture
def soaked(tmp_path: Path, managers: list[Manager], claude_program: Path) -> Iterator[Daemon]:
    """Return a daemon whose turns are in scopes of the system's manager."""
    assert SYSTEM in managers
    tables: dict[str, dict[str, object]] = {
        "retention": {"closed_days": CLOSED_DAYS},
        "scopes": {"manager": "system"},
    }
    setting = Setting(limits={"max_running": MOST_RUNNING}, tables=tables)
    daemon = Daemon(tmp_path / "d", claude_program, setting)
    yield daemon.boot()
    daemon.shut()
    assert_without_fault(daemon.log)


@pytest.mark.timeout(240)
def test_a_soak_of_turns_in_scopes_leaves_no_unit(soaked: Daemon, figure: TellFigure) -> None:
    assert soaked.ok("status").content["launcher"] == "system scope"
    instance = (soaked.state / "instance").read_text().strip()
    soak_through(soaked, turns=TURNS, seconds=SECONDS, figure=figure)
    eventually(lambda: not SYSTEM.units(instance), what=f"no unit of {instance}")
    assert not SYSTEM.failed_units()
