"""Daemons of several agents, whose names are parts of each other: none touches what belongs to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import endless
from tests.support.processes import eventually, is_alive
from tests.support.scripted_daemon import Setting
from tests.systemd.managers import OTHER_USER

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService
    from tests.systemd.managers import Form
    from tests.systemd.service_harness import Service

AGENTS = ("a", "a-b", "-p")


@pytest.fixture
def services(make_service: MakeService) -> list[Service]:
    """Run a daemon for each agent."""
    return [make_service(Setting(top={"agent": agent})).boot() for agent in AGENTS]


def start_all(services: list[Service]) -> list[dict[str, Any]]:
    """Start a turn of the same name everywhere."""
    return [service.start("same", endless()).content for service in services]


def test_each_has_units_of_its_own(services: list[Service]) -> None:
    turns = start_all(services)
    assert len({turn["scope"] for turn in turns}) == len(AGENTS)
    for service, turn in zip(services, turns, strict=True):
        assert turn["scope"] in service.turn_units()


@pytest.mark.parametrize("how", ["stop", "crash", "slice"])
def test_the_turns_of_one_end_and_all_others_stay(services: list[Service], form: Form, how: str) -> None:
    turns = start_all(services)
    first = services[0]
    match how:
        case "stop":
            first.stop()
        case "crash":
            daemon = first.main_pid
            first.kill()
            first.is_back(daemon)
        case _:
            form.manager.systemctl("stop", r"hive\x2dsubagent-a.slice")
    eventually(lambda: not is_alive(turns[0]["pid"]), what="the end of the first")
    assert [is_alive(turn["pid"]) for turn in turns] == [False, True, True]
    for service, turn in zip(services[1:], turns[1:], strict=True):
        assert service.status_of("same")["state"] == "running"
        assert turn["scope"] in service.turn_units()
        assert service.loose_ends("same") == []


def test_a_daemon_of_another_user_is_not_touched(make_service: MakeService) -> None:
    """Not even one of the same agent's name, which is another user's there."""
    mine = make_service(Setting(top={"agent": "a"})).boot()
    other = make_service(Setting(top={"agent": "a-b"}), form=OTHER_USER).boot()
    turns = start_all([mine, other])
    daemon = mine.main_pid
    mine.kill()
    mine.is_back(daemon)
    assert [is_alive(turn["pid"]) for turn in turns] == [False, True]
    assert other.status_of("same")["state"] == "running"
