"""Fixtures of the tests inside a machine: both forms of the daemon, and services that leave nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.stub.conftest import assert_without_fault
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting
from tests.systemd.hungry_claude import write_claude
from tests.systemd.managers import OTHER_USER, ROOT, SYSTEM, USER, Form, Manager
from tests.systemd.service_harness import Service, Units

if TYPE_CHECKING:
    from collections.abc import Iterator

PARENT_SLICE = re.compile(r"hive\\x2dsubagent(-[^-]+)?\.slice")


class MakeService(Protocol):
    """Makes a daemon that does not run yet."""

    def __call__(
        self, setting: Setting | None = None, *, form: Form | None = None, units: Units | None = None
    ) -> Service:
        """Return it, in a folder of its own; the form is that of the test unless another is named."""
        ...


@pytest.fixture(scope="session")
def managers() -> list[Manager]:
    """Return all managers of the machine, when they are up."""
    found = [form.manager for form in (ROOT, USER, OTHER_USER)]
    for manager in found:
        manager.wait_until_up()
    return found


@pytest.fixture(params=[ROOT, USER], ids=lambda form: form.name)
def form(request: pytest.FixtureRequest) -> Form:
    """Return one form after the other."""
    chosen: Form = request.param
    return chosen


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="hs.", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def claude_program(open_folder: Path) -> Path:
    """Return the path of the scripted claude."""
    return write_claude(open_folder / "claude")


def expect_no_unit(manager: Manager, before: set[str]) -> None:
    """Wait until no unit of daemons and turns is left but those of before; empty parent slices may stay."""

    def left() -> set[str]:
        return {unit for unit in manager.units("hive") - before if not PARENT_SLICE.fullmatch(unit)}

    eventually(lambda: not left(), what=f"no unit left in {manager}")
    assert not manager.failed_units()


@pytest.fixture
def make_service(
    managers: list[Manager], form: Form, claude_program: Path, open_folder: Path
) -> Iterator[MakeService]:
    """Return a maker of daemons; afterwards no unit, no failed unit and no process of them is left."""
    made: list[Service] = []
    before = {manager: manager.units("hive") for manager in managers}
    usual = form

    def make(
        setting: Setting | None = None, *, form: Form | None = None, units: Units | None = None
    ) -> Service:
        folder = open_folder / f"d{len(made)}"
        made.append(Service(folder, claude_program, setting or Setting(), form=form or usual, units=units))
        return made[-1]

    yield make
    for one in made:
        one.shut()
    for manager in managers:
        expect_no_unit(manager, before[manager])
    for one in made:
        assert_without_fault(one.log)


@pytest.fixture
def service(make_service: MakeService) -> Service:
    """Run a usual daemon, with the units that the package makes."""
    return make_service().boot()


@pytest.fixture
def system() -> Manager:
    """Return the manager of the system."""
    return SYSTEM
