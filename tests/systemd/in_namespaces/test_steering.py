"""A steerable turn in a scope: its input comes from the daemon, and ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stub.steps import assistant, forever, held, init, listen, reach, result, take
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import cgroup_of

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService
    from tests.systemd.service_harness import Service


def test_messages_reach_a_turn_in_its_scope(service: Service) -> None:
    turn = service.start(
        "x", [init(), take(), assistant("with it"), result("with it")], steerable=True
    ).content
    assert turn["scope"] in cgroup_of(turn["pid"])
    assert service.ok("steer", name="x", text="more").content["sent"] is True
    end = service.loose_end("x")
    assert (end["outcome"], end["text"], end["warnings"]) == ("completed", "with it", [])
    eventually(lambda: not service.turn_units(), what="no unit of the turn")


def test_a_turn_in_its_scope_is_asked_and_then_signalled(service: Service) -> None:
    service.start("asked", [init(), reach("asked.up"), listen()], steerable=True)
    service.start("deaf", [init(), reach("deaf.up"), forever()], steerable=True)
    for name, rounds in (("asked", 2), ("deaf", None)):
        service.reached(f"{name}.up")
        assert service.ok("interrupt", name=name).content["ended"] is True
        end = service.loose_end(name)
        assert (end["outcome"], end["cause"], end["rounds"]) == ("killed", "interrupt", rounds)
    eventually(lambda: not service.turn_units(), what="no unit of the turns")


def test_an_adopted_turn_in_its_scope_ends_when_it_has_said_all(make_service: MakeService) -> None:
    service = make_service(Setting(top={"on_restart": "adopt"}, limits={"exit_grace_seconds": 20})).boot()
    turn = service.start("x", [*held("go", "the report"), listen()], steerable=True).content
    service.ok("steer", name="x", text="also")
    daemon = service.main_pid
    service.kill()
    service.is_back(daemon)
    found = service.status_of("x")
    assert (found["state"], found["turn"], found["steerable"]) == ("running", turn["turn"], False)
    service.open_gate("go")
    end = service.loose_end("x")
    assert (end["outcome"], end["warnings"]) == ("completed", [])
    assert end["text"].startswith("heard also")
    assert not is_alive(turn["pid"])
