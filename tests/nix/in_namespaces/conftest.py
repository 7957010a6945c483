"""Agents for the tests; outside of a machine made of namespaces they cannot run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.nix.evaluation import needs_nix
from tests.nix.installed_agents import InstalledAgent, journal_of, remove
from tests.stub.conftest import assert_without_fault
from tests.systemd.conftest import claude_program, managers, open_folder
from tests.systemd.machines import NAMESPACES, machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.managers import Form, Manager

__all__ = ["claude_program", "managers", "open_folder"]
HERE = Path(__file__).parent


class MakeAgent(Protocol):
    """Makes an agent that is not installed yet."""

    def __call__(self, name: str, form: Form, **options: object) -> InstalledAgent:
        """Return it, with these options, in a folder of its own."""
        ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests unless they are inside."""
    outside = pytest.mark.skip(reason="runs inside a machine of its own: scripts/test --tier nix")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(needs_nix if machine() == NAMESPACES else outside)


@pytest.fixture
def make_agent(managers: list[Manager], claude_program: Path, open_folder: Path) -> Iterator[MakeAgent]:
    """Return a maker of agents. They are removed in the end; no daemon found a fault in itself."""
    made: list[InstalledAgent] = []

    def make(name: str, form: Form, **options: object) -> InstalledAgent:
        made.append(InstalledAgent(name, open_folder / name, claude_program, form))
        made[-1].options = options
        return made[-1]

    yield make
    for agent in made:
        remove(agent, managers)
        assert_without_fault(journal_of(agent))
