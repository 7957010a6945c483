"""Fixtures of the tier with the real claude: the program, the offline model, and daemons that run on both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typing_extensions import Unpack

from tests.claude.real_daemon import Differences, MakeDaemon, RealDaemon, setting_for, version_of
from tests.support.claude_versions import VARIABLE, program_under_test
from tests.support.offline_model import OfflineModel

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TEST_LIMIT_SECONDS = 180  # a turn takes about a second, on a busy machine several


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known by which a test says what it shows."""
    config.addinivalue_line(
        "markers", "shows(id, ...): facts of the claude program or cases that the test shows, in its id"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Put the facts and cases that a test shows into its id."""
    shown = [fact for mark in metafunc.definition.iter_markers("shows") for fact in mark.args]
    if shown:
        metafunc.parametrize("shown", [None], ids=["+".join(shown)], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this tier their own limit."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_LIMIT_SECONDS))


@pytest.fixture(autouse=True)
def shown() -> None:
    """Stand for the facts and cases in the id of a test."""


@pytest.fixture(scope="session")
def claude_program() -> Path:
    """Return the real claude under test."""
    program = program_under_test()
    if program is None:
        pytest.skip(f"no real claude: set {VARIABLE} to its path, or let scripts/test fetch one")
    return program


@pytest.fixture(scope="session")
def claude_version(claude_program: Path) -> tuple[int, ...]:
    """Return the version of the claude under test."""
    return version_of(claude_program)


@pytest.fixture
def model() -> Iterator[OfflineModel]:
    """Serve an offline model of the test's own."""
    with OfflineModel() as served:
        yield served


@pytest.fixture
def make_daemon(tmp_path: Path, claude_program: Path, model: OfflineModel) -> Iterator[MakeDaemon]:
    """Return a maker of daemons, each with a HOME of its own; afterwards nothing of them is left."""
    made: list[RealDaemon] = []

    def make(**differences: Unpack[Differences]) -> RealDaemon:
        folder = tmp_path / f"d{len(made)}"
        made.append(RealDaemon(folder, claude_program, setting_for(folder, model, **differences)))
        return made[-1]

    yield make
    for one in made:
        one.shut()


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> RealDaemon:
    """Run a usual daemon."""
    return make_daemon().boot()
