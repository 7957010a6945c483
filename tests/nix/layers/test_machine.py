"""The VM test as far as it goes without a VM: its machine evaluates, its script is one."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.nix.evaluation import HERE, evaluate, needs_library, nixpkgs_library

pytestmark = needs_library


@pytest.fixture(scope="module")
def machine() -> dict[str, Any]:
    """Return what the probe tells."""
    found: dict[str, Any] = evaluate(HERE / "machine_probe.nix", library=nixpkgs_library())
    return found


def test_its_machine_has_two_agents_and_no_fault(machine: dict[str, Any]) -> None:
    assert (machine["faults"], machine["warnings"]) == ([], [])
    assert machine["sockets"].keys() == {"hive-subagent-alice", "hive-subagent-bob"}


def test_its_script_is_a_program_that_knows_the_ports(machine: dict[str, Any]) -> None:
    script = machine["testScript"]
    names = {node.name for node in ast.walk(ast.parse(script)) if isinstance(node, ast.FunctionDef)}
    assert names == {"call", "loose_end", "start"}
    for [address] in machine["sockets"].values():
        assert address.rpartition(":")[2] in script
