"""The daemon as a service: start, turns, restart, stop, and what the journal keeps of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.stub.steps import endless, held, success
from tests.support.processes import eventually, is_alive
from tests.systemd.managers import SYSTEM, cgroup_of, processes_in
from tests.systemd.service_harness import Units

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service


def test_it_is_ready_only_when_it_answers(make_service: MakeService) -> None:
    """`systemctl start` returns at READY=1: from then on no call may fail, also where no socket keeps it."""
    service = make_service(units=Units(has_socket=False))
    for _ in range(3):
        service.boot()
        assert service.ok("status").content["subagents"] == []
        assert service.show("SubState") == "running"
        service.stop()


def test_it_runs_as_its_user(service: Service, form: Form) -> None:
    assert int(service.show("UID")) == form.uid
    assert cgroup_of(service.main_pid) == f"/system.slice/{service.unit}"


def test_a_turn_runs_to_its_end(service: Service) -> None:
    end = service.play("x", success("well done"))
    assert (end["outcome"], end["text"]) == ("completed", "well done")


def test_the_status_text_is_kept_current(service: Service) -> None:
    def says(pattern: str) -> bool:
        return re.search(pattern, service.show("StatusText")) is not None

    service.start("x", held("go"))
    eventually(lambda: says(r"\b1 running"), what="one running turn")
    service.open_gate("go")
    service.loose_end("x")
    eventually(lambda: says(r"\b0 running, 1 loose end"), what="one loose end")


def test_a_reload_takes_up_limits_and_leaves_turns_alone(make_service: MakeService) -> None:
    service = make_service().boot()
    turn = service.start("x", held("go")).content
    config = service.write_config()
    config.write_text(config.read_text().replace('"max_running" = 64', '"max_running" = 1'))
    pid = service.main_pid
    SYSTEM.systemctl("reload", "--", service.unit)
    eventually(lambda: "limits were read again" in service.log, what="the new limits")
    assert "max_running" in service.refused("start", name="y", prompt_file=str(service.work / "recipe.md"))
    assert service.show("ActiveState") == "active"
    assert (service.main_pid, service.status_of("x")["turn"]) == (pid, turn["turn"])
    service.open_gate("go")
    assert service.loose_end("x")["outcome"] == "completed"


def test_a_stop_ends_the_turns_and_leaves_no_process(service: Service) -> None:
    turns = [service.start(name, endless()).content for name in ("x", "y")]
    cgroup = service.show("ControlGroup")
    service.stop()
    assert service.show("ActiveState") == "inactive"
    assert service.show("Result") == "success"
    assert not [turn["pid"] for turn in turns if is_alive(turn["pid"])]
    assert not processes_in(cgroup)
    service.boot()
    ends = [service.loose_end(name) for name in ("x", "y")]
    assert [(end["outcome"], end["cause"]) for end in ends] == [("killed", "daemon stopped")] * 2


def test_a_restart_in_the_middle_of_turns_gives_each_its_loose_end(service: Service) -> None:
    turns = {name: service.start(name, endless()).content for name in ("x", "y")}
    service.restart()
    for name, turn in turns.items():
        [end] = service.loose_ends(name)
        assert (end["turn"], end["outcome"], end["cause"]) == (turn["turn"], "killed", "daemon stopped")
        assert not is_alive(turn["pid"])


def test_the_journal_tells_the_story_of_a_subagent(service: Service) -> None:
    """`journalctl SUBAGENT_NAME=x` finds what happened to it, and to nobody else."""
    turn = service.play("told", success())["turn"]
    service.play("another", success())
    entries = service.journal("SUBAGENT_NAME=told", "SUBAGENT_AGENT=stub", f"_SYSTEMD_UNIT={service.unit}")
    assert {entry["SUBAGENT_TURN"] for entry in entries if "SUBAGENT_TURN" in entry} == {turn}
    assert [entry["SUBAGENT_OUTCOME"] for entry in entries if "SUBAGENT_OUTCOME" in entry] == ["completed"]
    assert {entry["_PID"] for entry in entries} == {str(service.main_pid)}
