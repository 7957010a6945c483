"""The core: what it computes, and what it says about mistakes."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.nix.evaluation import HERE, MODULES, core, evaluate, needs_nix

pytestmark = needs_nix


@pytest.fixture(scope="module", params=["core_cases.nix", "fault_cases.nix", "value_cases.nix"])
def cases(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Return the cases of one file, evaluated at once."""
    found: dict[str, dict[str, Any]] = evaluate(HERE / request.param)
    return found


def test_every_case_has_the_value_that_it_expects(cases: dict[str, dict[str, Any]]) -> None:
    assert len(cases) > 10
    wrong = {name: case for name, case in cases.items() if case["value"] != case["expected"]}
    assert not wrong


def test_the_core_needs_nothing_but_the_builtins() -> None:
    for path in [MODULES / "core.nix", *(MODULES / "core").glob("*.nix")]:
        text = path.read_text()
        assert not text.lstrip("#").startswith("{"), f"{path.name} takes arguments"
        assert "<nixpkgs" not in text


def test_a_number_of_agents_have_ports_of_their_own_below_the_ephemeral_ones() -> None:
    names = [f"agent-{number}" for number in range(300)]
    ports = core("map (core.portOf core.defaultRange) names", names=names)
    assert all(20000 <= port < 30000 for port in ports)
    assert len(set(ports)) > 280  # a good hash: some few of 300 in 10,000 may meet


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"USER": "o'hara"}, "http://127.0.0.1:20001/mcp"),
        ({"USER": "o'hara", "HIVE_SUBAGENT_URL": "http://127.0.0.1:1/mcp"}, "http://127.0.0.1:1/mcp"),
        ({"USER": "bob"}, ""),
        ({}, ""),
    ],
    ids=["its user", "its user with another address", "another user", "nobody"],
)
def test_a_shell_tells_the_command_for_people_where_its_user_s_daemon_is(
    variables: dict[str, str], found: str
) -> None:
    agents = [{"user": "o'hara", "address": "0.0.0.0", "port": 20001}]
    script = core("core.shellInit agents", agents=agents) + 'printf %s "${HIVE_SUBAGENT_URL-}"'
    command = ["/bin/sh", "-euc", script]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, found, "")
