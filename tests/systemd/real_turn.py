"""One turn of the real claude under a daemon that systemd runs, watched from outside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.claude.real_daemon import claude_environment
from tests.support.claude_versions import VARIABLE, program_under_test
from tests.support.offline_model import OfflineModel
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import cgroup_of, processes_in

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService

# Long enough for the daemon to have compared claude's cgroup with the scope.
COMMAND = "echo $$ > shell; until [ -e go ]; do sleep 0.1; done; cat /proc/self/cgroup"


def assert_a_whole_turn_in_its_scope(make_service: MakeService, *, turn_seconds: float) -> None:
    """Run a turn with a command in it; claude and the command must be in the scope from first to last."""
    program = program_under_test()
    if program is None:
        pytest.skip(f"no real claude: set {VARIABLE} to its path, or let scripts/test fetch one")
    with OfflineModel() as model:
        child = claude_environment(Path(), model)  # its HOME is the daemon's
        setting = Setting(
            top={"agent": "real", "claude": program},
            limits={"exit_grace_seconds": 30},
            environment={name: value for name, value in child.items() if name != "HOME"},
        )
        service = make_service(setting).boot()
        trigger = f"[[bash: {COMMAND}]] [[say: that is all]]"
        turn = service.start("x", trigger=trigger).content
        cgroup = cgroup_of(turn["pid"])
        assert cgroup.endswith(f"/{turn['scope']}")
        shell = service.work / "shell"
        eventually(shell.exists, within=turn_seconds, what="the command of claude")
        eventually(
            lambda: service.status_of("x")["running_seconds"] > 6, within=30, what="a look at the cgroup"
        )
        inside = processes_in(cgroup)
        assert turn["pid"] in inside
        assert int(shell.read_text()) in inside
        (service.work / "go").touch()
        end = service.loose_end("x", within=turn_seconds)
        assert (end["outcome"], end["warnings"]) == ("completed", []), end
        assert end["text"].endswith("that is all")
        assert not service.turn_units()
