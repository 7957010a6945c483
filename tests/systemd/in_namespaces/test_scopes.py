"""Every turn in a scope of its own: where it is, what it is given, and that nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import (
    Step,
    assistant,
    die_by,
    endless,
    exit_with,
    forever,
    held,
    init,
    on_signal,
    reach,
    spawn,
    success,
)
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import CGROUPS, cgroup_of, processes_in

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service

LIMITS = {
    "memory_max": "512M",
    "memory_high": 400_000_000,
    "memory_swap_max": 0,
    "tasks_max": 77,
    "cpu_weight": 42,
}
AS_SHOWN = {
    "MemoryMax": "536870912",
    "MemoryHigh": "400000000",
    "MemorySwapMax": "0",
    "TasksMax": "77",
    "CPUWeight": "42",
    "OOMPolicy": "continue",
    "CollectMode": "inactive-or-failed",
}


def hostile(record: str) -> Step:
    """Start a child that is hard to find and to end."""
    ignored = ["SIGINT", "SIGTERM", "SIGHUP"]
    return spawn(record, own_session=True, double_fork=True, ignores=ignored)


def running(service: Service, name: str, *steps: Step) -> dict[str, Any]:
    """Start a turn that plays these steps and stays; return the answer of `start` when it is that far."""
    turn = [init(), assistant("so far", stop_reason=None), *steps, reach(f"{name}.up"), forever()]
    answer = service.start(name, turn).content
    service.reached(f"{name}.up")
    return answer


def test_a_turn_runs_in_a_scope_inside_a_slice_of_its_own(service: Service, form: Form) -> None:
    turn = service.start("x", endless()).content
    name = rf"hive\x2dsubagent-stub-{service.instance}\x2d{turn['turn']}"
    assert turn["scope"] == f"{name}.scope"
    parents = r"hive\x2dsubagent.slice/hive\x2dsubagent-stub.slice"
    whole = f"{form.manager.cgroup}/{parents}/{name}.slice/{name}.scope"
    # The prefix of a name with two dashes is a slice, too.
    assert [part for part in cgroup_of(turn["pid"]).split("/") if part] == [
        part for part in whole.split("/") if part
    ]
    assert service.turn_units() == {f"{name}.slice", f"{name}.scope"}
    assert service.ok("status").content["launcher"] == form.launcher
    assert cgroup_of(service.main_pid) == f"/system.slice/{service.unit}"


def test_the_scope_has_the_properties_of_the_configuration(make_service: MakeService, form: Form) -> None:
    service = make_service(Setting(tables={"scopes": LIMITS})).boot()
    scope = service.start("x", endless()).content["scope"]
    assert {name: form.manager.show(scope, name) for name in AS_SHOWN} == AS_SHOWN
    assert re.search(r"\bx\b", form.manager.show(scope, "Description"))


def test_a_scope_is_stopped_after_the_daemon_where_the_same_manager_runs_both(
    service: Service, form: Form
) -> None:
    """At a shutdown: the daemon tells how its turns ended. Of another manager's unit nothing is made up."""
    scope = service.start("x", endless()).content["scope"]
    before = form.manager.show(scope, "Before").split()
    assert (service.unit in before) is (form.uid == 0)
    assert service.unit not in form.manager.units() or form.uid == 0


def test_the_whole_of_everything_is_a_limit_that_systemd_takes(make_service: MakeService, form: Form) -> None:
    names = ("memory_max", "memory_high", "memory_swap_max", "tasks_max")
    service = make_service(Setting(tables={"scopes": dict.fromkeys(names, "100%")})).boot()
    scope = service.start("x", endless()).content["scope"]
    assert form.manager.show(scope, "TasksMax") == "infinity"


def test_that_limits_have_no_effect_here_is_said(make_service: MakeService) -> None:
    """This machine has no memory controller; systemd takes the limits all the same."""
    service = make_service(Setting(tables={"scopes": LIMITS})).boot()
    assert "no memory controller" in service.log
    assert any("no memory controller" in warning for warning in service.ok("status").content["warnings"])
    service.start("x", endless())
    assert service.status_of("x")["memory_limit_bytes"] is None


def test_the_kernel_prefers_a_turn_to_the_daemon(service: Service) -> None:
    pid = service.start("x", endless()).content["pid"]

    def score(process: int) -> int:
        return int(Path(f"/proc/{process}/oom_score_adj").read_text())

    assert score(pid) == 500 > score(service.main_pid)


def test_a_child_that_forks_twice_stays_in_the_scope_and_ends_with_the_turn(service: Service) -> None:
    turn = [init(), hostile("child"), reach("up"), *held("go")[1:]]
    cgroup = cgroup_of(service.start("x", turn).content["pid"])
    child = service.recorded_pid("child")
    assert cgroup_of(child) == cgroup
    service.reached("up")
    service.open_gate("go")
    end = service.loose_end("x")
    assert end["outcome"] == "completed"
    assert any(str(child) in warning for warning in end["warnings"])
    assert not is_alive(child)
    assert not service.turn_units()


def test_a_forced_interrupt_returns_when_the_scope_is_empty(service: Service) -> None:
    """Whatever ignores signals, forks twice, and has a session of its own."""
    ignoring = [on_signal(name) for name in ("SIGINT", "SIGTERM")]
    children = [hostile(f"child.{number}") for number in range(5)]
    turn = running(service, "x", *ignoring, *children)
    pids = [turn["pid"], *(service.recorded_pid(f"child.{number}") for number in range(5))]
    cgroup = cgroup_of(turn["pid"])
    assert sorted(processes_in(cgroup)) == sorted(pids)
    answer = service.ok("interrupt", name="x", force=True)
    assert not processes_in(cgroup)
    assert not [pid for pid in pids if is_alive(pid)]
    assert (answer.content["ended"], answer.content["signal"]) == (True, "SIGKILL")
    end = service.loose_end("x")
    assert (end["outcome"], end["cause"]) == ("killed", "forced interrupt")
    assert not service.turn_units()


ENDS = {
    "completed": success(),
    "failed": [init(), exit_with(1)],
    "killed": [init(), die_by("SIGKILL")],
    "left-a-child": [init(), hostile("left"), *success()[1:]],
    "said-nothing": [exit_with(0)],
}


def test_no_way_to_end_leaves_a_unit(service: Service, form: Form) -> None:
    before = form.manager.units()
    for name, steps in ENDS.items():
        service.play(name, steps)
        assert not service.turn_units(), name
    for name, force in (("asked", False), ("forced", True)):
        running(service, name)
        service.ok("interrupt", name=name, force=force)
        service.loose_end(name)
        assert not service.turn_units(), name
    service.claude.write_text("#!/nowhere\n")
    assert service.refused("start", name="gone", prompt_file=str(service.work / "recipe.md"))
    eventually(lambda: not service.turn_units(), within=15, what="no unit after a refused start")
    new = {unit for unit in form.manager.units() - before if unit.startswith("hive")}
    assert new <= {r"hive\x2dsubagent.slice", r"hive\x2dsubagent-stub.slice"}
    assert not form.manager.failed_units()


def test_a_claude_that_leaves_its_scope_is_told(service: Service, form: Form) -> None:
    """In status, in the loose end and in the journal; and it is ended all the same."""
    pid = running(service, "x")["pid"]
    folder = CGROUPS / form.manager.cgroup.lstrip("/") / "elsewhere.scope"
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(pid))

        def warns() -> bool:
            return any("left its scope" in warning for warning in service.ok("status").content["warnings"])

        eventually(warns, within=20, what="a warning in status")
        service.ok("interrupt", name="x", force=True)
        assert not is_alive(pid)
        assert any("left its scope" in warning for warning in service.loose_end("x")["warnings"])
        told = service.journal("SUBAGENT_NAME=x", f"_SYSTEMD_UNIT={service.unit}")
        assert any("left its scope" in entry["MESSAGE"] for entry in told)
    finally:
        eventually(lambda: not processes_in(str(folder.relative_to(CGROUPS))), what="an empty cgroup")
        folder.rmdir()


def test_a_kill_from_outside_is_not_taken_for_another_cause(service: Service) -> None:
    pid = running(service, "x")["pid"]
    os.kill(pid, signal.SIGKILL)
    end = service.loose_end("x")
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGKILL", "unknown")


@pytest.mark.parametrize("kills", [True, False], ids=["crash", "restart"])
def test_turns_that_an_earlier_daemon_left_are_ended_once(service: Service, kills: bool) -> None:
    turns = {name: running(service, name, hostile(f"{name}.child")) for name in ("x", "y")}
    pids = [turn["pid"] for turn in turns.values()]
    pids += [service.recorded_pid(f"{name}.child") for name in turns]
    daemon = service.main_pid
    if kills:
        service.kill()
        service.is_back(daemon)
    else:
        service.restart()
    for name, turn in turns.items():
        [end] = service.loose_ends(name)
        assert (end["turn"], end["outcome"], end["cause"]) == (turn["turn"], "killed", "daemon stopped")
    assert not [pid for pid in pids if is_alive(pid)]
    assert not service.turn_units()
    service.script("x", success("taken up again"))
    assert service.resume("x")["text"] == "taken up again"
