"""The daemon is killed at the instants of a turn in a scope: nothing is lost, and no unit stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stub.crashes import ALWAYS, AT_THE_END, USUAL, Crashes, sample
from tests.stub.daemon_forks import Forks
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import TellFigure
    from tests.support.daemon_harness import Daemon
    from tests.systemd.managers import Manager

IN_SCOPES = Setting(limits=USUAL.limits, tables={"scopes": {"manager": "system"}})
OF_SCOPES = ("before start_scope", "after start_scope", "before stop_unit", "after stop_unit")
LIMIT_SECONDS = 240
LONG_LIMIT_SECONDS = 1200


def check_units(daemon: Daemon) -> None:
    """No unit of this state directory's turns is left."""
    instance = (daemon.state / "instance").read_text().strip()
    eventually(lambda: not SYSTEM.units(instance), what=f"no unit of {instance}")


@pytest.fixture
def crashes(tmp_path: Path, managers: list[Manager]) -> Iterator[Crashes]:
    """Return a gatherer of crashes of daemons whose turns are in scopes of the system's manager."""
    assert SYSTEM in managers
    with Forks() as forks:
        yield Crashes(tmp_path, forks, setting=IN_SCOPES, check_more=check_units)


@pytest.mark.timeout(LIMIT_SECONDS)
def test_a_kill_around_the_steps_of_a_scope_loses_nothing(crashes: Crashes, figure: TellFigure) -> None:
    """Before and after systemd is asked, and at a tenth of all other instants."""
    instants = crashes.trace()
    kinds = {instant.rpartition(" #")[0] for instant in instants}
    assert kinds >= set(OF_SCOPES), "the turns were in no scopes"
    for instant in sample(instants, always=(*OF_SCOPES, *ALWAYS)):
        crashes.survive(instant)
    crashes.conclude("kill points with scopes (a tenth)", figure)


@pytest.mark.long
@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_a_kill_at_any_instant_of_a_turn_in_a_scope_loses_nothing(
    crashes: Crashes, figure: TellFigure
) -> None:
    """Likewise, everywhere."""
    for instant in [*crashes.trace(), AT_THE_END]:
        crashes.survive(instant)
    crashes.conclude("kill points with scopes (all)", figure)
