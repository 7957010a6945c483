"""Two agents as Nix renders them: sockets, turns in the right place, environment, addresses."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from tests.nix.installed_agents import FOLDERS, InstalledAgent, install, journal_of, render, units_of
from tests.stub.steps import dump, held, success
from tests.support.processes import eventually
from tests.systemd.managers import CGROUPS, OTHER_USER, SYSTEM, USER, cgroup_of, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nix.in_namespaces.conftest import MakeAgent

URL = "http://127.0.0.1:9000/mcp"
SECRET = "a-secret-of-root-and-a-token"
SUM_TASKS = 200


@pytest.fixture
def agents(make_agent: MakeAgent, open_folder: Path) -> list[InstalledAgent]:
    """Install two agents, whose daemons do not run yet; only the first has limits, a secret and a server."""
    secret = open_folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    servers = {"docs": {"url": URL, "availableToSubagents": True}, "private": {"command": "/bin/true"}}
    coder = make_agent(
        "coder",
        USER,
        mcpServers=servers,
        sliceConfig={"TasksMax": SUM_TASKS},
        secretEnvironment={"SECRET": str(secret)},
        credentials={"token": str(secret)},
        settings={"umask": "0027", "auth": {"token_file": "$CREDENTIALS_DIRECTORY/token"}},
    )
    made = [coder, make_agent("re-viewer", OTHER_USER)]
    render(*made)
    install(*made)
    for agent in made:
        for name in (*units_of(agent, "system", "socket"), f"hive-subagents-address-{agent.name}.service"):
            SYSTEM.systemctl("start", "--", name)
    return made


def slice_path(agent: InstalledAgent) -> str:
    """Return the cgroup of all turns of an agent; a dash in a slice's name nests it."""
    escaped = agent.name.replace("-", "\\x2d")
    return f"{agent.form.manager.cgroup}/hive\\x2dsubagent.slice/hive\\x2dsubagent-{escaped}.slice"


def is_listening(port: int) -> bool:
    """Tell whether anybody accepts connections at this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_systemd_finds_nothing_wrong_with_the_units(agents: list[InstalledAgent]) -> None:
    for agent in agents:
        files = [str(FOLDERS["system"] / name) for name in agent.rendered["units"]["system"]]
        verified = run("systemd-analyze", "verify", "--man=no", *files)
        assert (verified.returncode, verified.stderr) == (0, "")


def test_the_first_connection_starts_a_daemon_as_its_user(agents: list[InstalledAgent]) -> None:
    for agent in agents:
        assert SYSTEM.show(f"{agent.unit}.service", "ActiveState") == "inactive"
        assert agent.ok("status").content["launcher"] == "user scope"
        assert int(SYSTEM.show(f"{agent.unit}.service", "UID")) == agent.form.uid


def test_turns_run_in_the_slice_of_their_agent_in_their_user_s_manager(agents: list[InstalledAgent]) -> None:
    for agent in agents:
        turn = agent.start("x", held("go")).content
        path = cgroup_of(turn["pid"])
        assert path.startswith(f"{slice_path(agent)}/")
        assert path.endswith(f"/{turn['scope']}")
        agent.open_gate("go")
        assert agent.loose_end("x")["outcome"] == "completed"


def test_the_sum_slice_with_its_limit_contains_the_turn(agents: list[InstalledAgent]) -> None:
    coder = agents[0]
    [slice_name] = units_of(coder, "user", "slice")
    turn = coder.start("x", held("go")).content
    manager = coder.form.manager
    assert manager.show(slice_name, "TasksMax") == str(SUM_TASKS)
    assert manager.show(slice_name, "FragmentPath") == str(FOLDERS["user"] / slice_name)
    folder = manager.folder_of(slice_name)
    assert (CGROUPS / cgroup_of(turn["pid"]).lstrip("/")).is_relative_to(folder)
    limit = folder / "pids.max"
    assert not limit.exists() or limit.read_text().strip() == str(SUM_TASKS)
    coder.open_gate("go")


def test_two_agents_of_one_user_share_a_slice_and_its_sum(make_agent: MakeAgent) -> None:
    limits = {"slice": "agents.slice"}
    made = [
        make_agent("one", USER, limits=limits, sliceConfig={"TasksMax": SUM_TASKS}),
        make_agent("two", USER, limits=limits, sliceConfig={"CPUWeight": 50}),
    ]
    render(*made)
    install(*made)
    manager = USER.manager
    for agent in made:
        SYSTEM.systemctl("start", f"{agent.unit}.socket")
        turn = agent.start("x", held("go")).content
        assert cgroup_of(turn["pid"]).startswith(f"{manager.cgroup}/agents.slice/")
    found = [manager.show("agents.slice", name) for name in ("TasksMax", "CPUWeight", "Description")]
    assert found == [str(SUM_TASKS), "50", "Subagents of one and two"]
    for agent in made:
        agent.open_gate("go")
        assert agent.loose_end("x")["outcome"] == "completed"


def test_a_new_sum_is_in_force_for_running_turns_after_a_reload(agents: list[InstalledAgent]) -> None:
    coder = agents[0]
    [slice_name] = units_of(coder, "user", "slice")
    coder.start("x", held("go"))
    coder.options["sliceConfig"] = {"TasksMax": SUM_TASKS + 1}
    render(coder)
    install(coder)
    manager = coder.form.manager
    assert manager.show(slice_name, "TasksMax") == str(SUM_TASKS + 1)
    limit = manager.folder_of(slice_name) / "pids.max"
    wanted = str(SUM_TASKS + 1)
    eventually(lambda: not limit.exists() or limit.read_text().strip() == wanted, what="the new sum")
    coder.open_gate("go")


def test_turns_see_what_their_agent_was_given(agents: list[InstalledAgent]) -> None:
    coder, reviewer = agents
    seen = {}
    for agent in agents:
        agent.play("x", [dump("seen"), *success()])
        seen[agent.name] = agent.seen("seen")
    of_coder, of_reviewer = seen[coder.name], seen[reviewer.name]
    assert of_coder["mcp_config"]["content"]["mcpServers"].keys() == {"docs"}
    assert of_reviewer["mcp_config"] is None
    assert (of_coder["umask"], of_reviewer["umask"]) == ("0027", "0022")
    assert of_coder["environment"]["SECRET"] == SECRET
    assert "SECRET" not in of_reviewer["environment"]
    assert of_coder["environment"]["PATH"].startswith("/run/wrappers/bin:/usr/bin:")
    assert f"/etc/profiles/per-user/{USER.user}/bin" in of_coder["environment"]["PATH"].split(":")
    assert of_coder["environment"]["HOME"] == str(coder.home)


def test_a_reload_takes_up_limits_and_leaves_turns_alone(agents: list[InstalledAgent]) -> None:
    coder = agents[0]
    turn = coder.start("x", held("go")).content
    coder.options["settings"] = {"limits": {"max_running": 1}}
    render(coder)
    install(coder)
    SYSTEM.systemctl("reload", f"{coder.unit}.service")
    eventually(lambda: "limits were read again" in journal_of(coder), what="the new limits")
    assert "max_running" in coder.refused("start", name="y", prompt_file=str(coder.work / "recipe.md"))
    assert coder.status_of("x")["turn"] == turn["turn"]
    coder.open_gate("go")
    assert coder.loose_end("x")["outcome"] == "completed"


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "idle"])
def test_a_new_address_is_listened_at_after_what_a_switch_does(
    agents: list[InstalledAgent], *, is_running: bool
) -> None:
    """A switch leaves changed sockets alone, reloads by reload triggers, restarts services that run."""
    coder = agents[0]
    if is_running:
        coder.ok("status")
    old = coder.port
    coder.options["port"] = old + 1
    render(coder)
    install(coder)
    assert not is_listening(coder.port)
    SYSTEM.systemctl("reload", f"hive-subagents-address-{coder.name}.service")
    if is_running:
        SYSTEM.systemctl("restart", f"{coder.unit}.service")
    assert coder.ok("status").content["subagents"] == []
    assert not is_listening(old)
    # The socket has it, not only the daemon, which can bind the configured address itself.
    SYSTEM.systemctl("stop", f"{coder.unit}.service")
    assert coder.ok("status").content["subagents"] == []


def test_a_user_s_own_units_listen_in_that_user_s_manager_alone(make_agent: MakeAgent) -> None:
    agent = make_agent("own", USER, manager="user")
    render(agent)
    install(agent)
    OTHER_USER.manager.systemctl("daemon-reload")
    for form in (OTHER_USER, USER):
        form.manager.systemctl("start", f"{agent.unit}.socket")
    assert OTHER_USER.manager.show(f"{agent.unit}.socket", "ActiveState") == "inactive"
    turn = agent.start("x", held("go")).content
    assert cgroup_of(turn["pid"]).startswith(f"{slice_path(agent)}/")
    agent.open_gate("go")
    assert agent.loose_end("x")["outcome"] == "completed"


def test_a_user_s_own_daemon_has_the_secrets_that_the_user_can_read(
    make_agent: MakeAgent, open_folder: Path
) -> None:
    secret = open_folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    os.chown(secret, USER.uid, USER.uid)
    agent = make_agent("own", USER, manager="user", secretEnvironment={"SECRET": str(secret)})
    render(agent)
    install(agent)
    USER.manager.systemctl("start", f"{agent.unit}.socket")
    agent.play("x", [dump("seen"), *success()])
    assert agent.seen("seen")["environment"]["SECRET"] == SECRET
