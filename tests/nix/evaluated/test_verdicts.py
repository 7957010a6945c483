"""The core refuses at the evaluation what the daemon refuses at its start, and nothing else."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import tomli_w

from hive_subagent_daemon.config_checks import FaultsError, Kind, Places
from hive_subagent_daemon.config_listen import listen_addresses, reach_fault
from hive_subagent_daemon.config_mcp import mcp_servers
from hive_subagent_daemon.config_schema import KEYS, Key
from hive_subagent_daemon.daemon_main import main
from tests.nix import samples
from tests.nix.evaluation import HERE, core, evaluate, needs_nix
from tests.nix.random_samples import random_agent

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_nix

CHECKED_KEYS = [key for key in KEYS if key.name not in samples.FROM_OPTIONS]
AGENTS = HERE / "judged_agents.nix"


@pytest.mark.parametrize("key", CHECKED_KEYS, ids=lambda key: key.name)
def test_a_value_is_refused_where_the_daemon_refuses_it(key: Key) -> None:
    values = [*samples.VALUES, *samples.VALUES_OF.get(key.name, [])]
    settings = [samples.nested(key.place, value) for value in values]
    faults = core('map (core.settingsFaults "settings") settings', settings=settings)
    verdicts = {repr(value): bool(each) for value, each in zip(values, faults, strict=True)}
    assert verdicts == {repr(value): is_refused(key.kind, value) for value in values}


def test_an_entry_of_an_mcp_server_is_refused_where_the_daemon_refuses_it() -> None:
    entries = samples.ENTRIES
    faults = core('map (docs: core.serverFaults "mcpServers" { inherit docs; }) entries', entries=entries)
    verdicts = {repr(entry): bool(each) for entry, each in zip(entries, faults, strict=True)}
    assert verdicts == {repr(entry): is_refused(mcp_servers(), {"docs": entry}) for entry in entries}


def test_the_name_of_an_mcp_server_is_refused_where_the_daemon_refuses_it() -> None:
    names, entry = samples.SERVER_NAMES, samples.ENTRIES[0]
    faults = core('map (n: core.serverFaults "s" { ${n} = entry; }) names', names=names, entry=entry)
    verdicts = {name: bool(each) for name, each in zip(names, faults, strict=True)}
    assert verdicts == {name: is_refused(mcp_servers(), {name: entry}) for name in names}


@pytest.mark.parametrize("token", [False, True], ids=["without a token", "with a token"])
def test_an_address_is_refused_where_the_daemon_refuses_it(*, token: bool) -> None:
    settings = {"auth": {"token_file": "/run/x"}} if token else {}
    call = 'core.listenAddressFaults { option = "a"; inherit address settings; }'
    addresses = samples.ADDRESSES
    faults = core(f"map (address: {call}) addresses", addresses=addresses, settings=settings)
    verdicts = {address: bool(each) for address, each in zip(addresses, faults, strict=True)}
    assert verdicts == {address: is_address_refused(address, token=token) for address in addresses}


def test_a_whole_agent_is_refused_where_the_daemon_refuses_what_is_written_for_it(
    tmp_path: Path,
) -> None:
    """With the command that the modules run when a system is built."""
    agents = samples.AGENTS
    judged = evaluate(AGENTS, agents=agents)
    verdicts = {name: bool(each["faults"]) for name, each in judged.items()}
    refused = {}
    for name, each in judged.items():
        file = tmp_path / "config.toml"
        file.write_text(tomli_w.dumps(each["configuration"]))
        code = main(["--config", str(file), "--work-dir", "/", "--check"])
        refused[name] = code != 0
    assert verdicts == refused
    assert 10 < sum(refused.values()) < len(refused) - 10


def test_no_agent_as_it_should_be_is_refused_by_the_daemon(tmp_path: Path) -> None:
    everything: dict[str, Any] = {}
    for changes in samples.AGENTS_THAT_ARE_WELL.values():
        everything = merged(everything, changes)
    [judged] = evaluate(AGENTS, agents={"all": everything}).values()
    assert judged["faults"] == []
    file = tmp_path / "config.toml"
    file.write_text(tomli_w.dumps(judged["configuration"]))
    assert main(["--config", str(file), "--work-dir", "/", "--check"]) == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_shape_of_values_is_too_strange_to_be_judged(seed: int) -> None:
    choose = Random(seed)
    agents = {str(number): random_agent(choose) for number in range(40)}
    judged = evaluate(AGENTS, agents=agents)
    assert sum(bool(each["faults"]) for each in judged.values()) > 20


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return two nested tables as one."""
    both = {name for name in one.keys() & other.keys() if isinstance(one[name], dict)}
    return {**one, **other, **{name: merged(one[name], other[name]) for name in both}}


def is_refused(kind: Kind, value: object) -> bool:
    """Tell whether the daemon refuses this value."""
    try:
        kind.read(value, Places(HERE, HERE))
    except FaultsError:
        return True
    return False


def is_address_refused(address: str, *, token: bool) -> bool:
    """Tell whether the daemon refuses to listen there."""
    text = f"[{address}]:7310" if ":" in address else f"{address}:7310"
    if is_refused(listen_addresses(), [text]):
        return True
    listen = listen_addresses().read([text], Places(HERE, HERE))
    return not token and reach_fault(listen) is not None
