"""The unit files that the package makes, as systemd reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import endless
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import SYSTEM, USER, cgroup_of, output_of, run
from tests.systemd.service_harness import Service, write_program

if TYPE_CHECKING:
    from tests.systemd.managers import Manager

SYSTEM_FORM = ["--system", "--run-as", "hs-agent"]
ROOT_FORM = ["--system", "--run-as", "root"]


@pytest.mark.parametrize("agent", ["a", "a-b", "-p"])
@pytest.mark.parametrize("words", [SYSTEM_FORM, ROOT_FORM, ["--user"]], ids=["system", "root", "user"])
def test_systemd_finds_no_fault_in_them(words: list[str], agent: str, open_folder: Path) -> None:
    program = write_program(open_folder / "bin")
    output_of(
        str(program), "units", *words, f"--agent={agent}", "--listen=127.0.0.1:7311", "--listen=[::1]:7311",
        f"--listen=unix:{open_folder}/s", "--output", str(open_folder),
    )  # fmt: skip
    files = [str(path) for path in open_folder.iterdir() if path.suffix in (".service", ".socket")]
    assert len(files) == 2
    mode = "--user" if "--user" in words else "--system"
    environment = USER.manager.environment if mode == "--user" else {}
    done = run("systemd-analyze", mode, "verify", *files, environment=environment)
    # Of other units of the machine, systemd-analyze may have something to say.
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "hive" in line]
    assert not ours
    assert done.returncode == 0, done.stderr


def test_the_units_of_a_users_own_manager_work(
    managers: list[Manager], claude_program: Path, open_folder: Path
) -> None:
    """The user form: everything in one manager, which the agent alone has set up."""
    manager = USER.manager
    assert manager in managers
    service = Service(open_folder / "d", claude_program, Setting(top={"agent": "own"}), form=USER)
    config = service.write_config()
    units = Path(f"/run/user/{USER.uid}/systemd/user")
    words = ["--agent=own", f"--listen=127.0.0.1:{service.port}", "--config", str(config)]
    as_agent = manager.environment | {"HOME": str(service.home)}
    output_of(
        str(service.program), "units", "--user", *words, "--output", str(units), uid=USER.uid,
        environment=as_agent,
    )  # fmt: skip
    manager.systemctl("daemon-reload")
    manager.systemctl("start", service.socket_unit)
    try:
        turn = service.start("x", endless()).content
        assert service.ok("status").content["launcher"] == "user scope"
        assert cgroup_of(turn["pid"]).startswith(rf"{manager.cgroup}/hive\x2dsubagent.slice/")
        daemon = int(manager.show(service.unit, "MainPID"))
        assert re.fullmatch(rf"{manager.cgroup}/app\.slice/{service.unit}", cgroup_of(daemon))
        assert SYSTEM.show(service.unit, "LoadState") == "not-found"
        service.end_all_turns()
        assert not service.turn_units()
    finally:
        manager.systemctl("stop", service.socket_unit, service.unit)
        for unit in (service.unit, service.socket_unit):
            (units / unit).unlink()
        manager.systemctl("daemon-reload")
    assert not service.processes()
