"""Every option says what it is, and the reference in docs/nixos.md is current."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nix.evaluation import needs_library
from tests.nix.option_reference import DOCUMENT, options, parts, rendered

pytestmark = needs_library

# What must be set has no default; the rest of these stand for a whole set.
WITHOUT_DEFAULT = {"hyperhive.extraMcpServers"}


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """Return all options."""
    return options()


def test_there_are_options_of_both_modules(found: list[dict[str, Any]]) -> None:
    names = {option["name"] for option in found}
    assert "services.hive-subagent.agents.<name>.workDir" in names
    assert "hyperhive.mcp.subagentHttpPort" in names
    assert "hyperhive.extraMcpServers.<name>.availableToSubagents" in names


def test_every_option_has_a_description_a_default_and_an_example(found: list[dict[str, Any]]) -> None:
    for option in found:
        name = option["name"]
        if name in WITHOUT_DEFAULT:
            continue
        assert option["type"], name
        assert option["description"].rstrip().endswith("."), name
        assert option["default"] is not None, name
        assert option["example"] is not None or option["readOnly"], name


def test_the_reference_in_the_document_is_current(found: list[dict[str, Any]]) -> None:
    _, reference, _ = parts(DOCUMENT.read_text())
    assert reference.strip() == rendered(found).strip(), "run python -m tests.nix.option_reference"
