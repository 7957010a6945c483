"""The machine is what the other tests take it for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.scripted_daemon import REPOSITORY
from tests.systemd.managers import OTHER_USER, SYSTEM, USER, cgroup_of, output_of, unified

if TYPE_CHECKING:
    from tests.systemd.managers import Form, Manager


def test_systemd_is_the_first_process_and_nothing_has_failed() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert not SYSTEM.failed_units()


def test_the_managers_of_both_users_run_without_a_login(managers: list[Manager]) -> None:
    for form in (USER, OTHER_USER):
        assert form.manager in managers
        pid = int(SYSTEM.show(f"user@{form.uid}.service", "MainPID"))
        assert cgroup_of(pid).startswith(form.manager.cgroup)


def test_a_scope_of_each_manager_lies_below_it(form: Form, managers: list[Manager]) -> None:
    assert form.manager in managers
    done = form.manager.systemd_run("--scope", "--unit=probe.scope", "cat", "/proc/self/cgroup")
    assert done.returncode == 0, done.stderr
    cgroup = unified(done.stdout)
    assert cgroup.startswith(f"{form.manager.cgroup}/")
    assert cgroup.endswith("/probe.scope")


def test_the_agent_can_run_this_python_and_the_package() -> None:
    words = [sys.executable, "-c", "import hive_subagent_daemon; print(hive_subagent_daemon.__file__)"]
    printed = output_of(*words, uid=USER.uid, environment={"PYTHONPATH": str(REPOSITORY)})
    assert printed.strip() == str(REPOSITORY / "hive_subagent_daemon" / "__init__.py")
