"""A machine whose clock is set anew, and one in which no more processes may be had: nothing is faked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import Step, held, init, reach, result, success
from tests.support.processes import eventually
from tests.support.scripted_daemon import Setting
from tests.systemd.hungry_claude import multiply
from tests.systemd.managers import SYSTEM, USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.conftest import MakeService
    from tests.systemd.service_harness import Service

HOUR_SECONDS = 3600.0
JUMPS_HOURS = (2, 24 * 400, -24 * 401)
MOST_TASKS = 40
pytestmark = pytest.mark.timeout(120)  # inside
only_as_user = pytest.mark.parametrize("form", [USER], ids=["user"])


def jump(hours: float) -> None:
    """Set the clock of this machine."""
    time.clock_settime(time.CLOCK_REALTIME, time.time() + hours * HOUR_SECONDS)


@pytest.fixture
def setting_clocks(make_service: MakeService) -> Iterator[MakeService]:
    """Lend services of a machine whose clock is right again afterwards: the journal hangs on one set back."""
    off = time.time() - time.monotonic()
    yield make_service
    time.clock_settime(time.CLOCK_REALTIME, time.monotonic() + off)


@only_as_user
def test_a_clock_that_is_set_while_turns_run_changes_no_age_and_loses_nothing(
    setting_clocks: MakeService,
) -> None:
    """Ahead and back, by hours and by more than a year; ids go on sorting by time, a restart keeps all."""
    service = setting_clocks().boot()
    turns = [service.play("before", success())["turn"]]
    for number, hours in enumerate(JUMPS_HOURS):
        name = f"n{number}"
        turn = service.start(name, [init(), reach(f"{name}.up"), *held(f"{name}.go")[1:]]).content["turn"]
        service.reached(f"{name}.up", within=30)
        jump(hours)
        running = service.status_of(name)
        assert 0 <= running["age_seconds"] < 120
        assert 0 <= running["running_seconds"] < 120
        service.open_gate(f"{name}.go")
        end = service.loose_end(name, turn=turn, within=30)
        assert end["outcome"] == "completed"
        assert 0 <= end["duration_seconds"] < 120
        turns.append(turn)
    assert turns == sorted(turns)
    for _ in range(2):
        service.restart()
        told = service.ok("get_loose_ends", limit=100).content["loose_ends"]
        assert [one["turn"] for one in told] == turns
        jump(-48)
    assert service.play("after", success())["turn"] > turns[-1]


@only_as_user
def test_a_daemon_whose_own_tasks_are_used_up_refuses_and_recovers(make_service: MakeService) -> None:
    """TasksMax of the service: its threads count too. What runs goes on, in a scope of its own."""
    service = make_service().boot()
    service.play("warm", success())
    service.start("a", held("go"))
    taken = int(service.show("TasksCurrent"))
    SYSTEM.systemctl("set-property", "--runtime", "--", service.unit, f"TasksMax={taken}")
    refusals = [refusal(service, f"b{number}") for number in range(3)]
    assert any("no process could be created" in one or "try again" in one for one in refusals), refusals
    service.ok("status")
    service.open_gate("go")
    assert service.loose_end("a", within=30)["outcome"] == "completed"
    SYSTEM.systemctl("set-property", "--runtime", "--", service.unit, "TasksMax=infinity")
    eventually(lambda: not service.turn_units(), within=20, what="no unit of a turn")
    assert service.play("c", success())["outcome"] == "completed"
    told = service.ok("get_loose_ends", limit=100).content["loose_ends"]
    assert {"warm", "a", "c"} <= {end["name"] for end in told}


def refusal(service: Service, name: str) -> str:
    """Start, and return the sentence of the refusal, nothing when it was started."""
    service.script(name, success())
    answer = service.call("start", name=name, prompt_file=str(service.work / "recipe.md"))
    assert "Internal error" not in answer.text, answer.text
    return answer.text if answer.is_error else ""


@only_as_user
def test_a_turn_that_multiplies_is_held_and_can_be_emptied(make_service: MakeService) -> None:
    """`tasks_max` of its scope: the daemon and other turns have theirs."""
    setting = Setting(tables={"scopes": {"tasks_max": MOST_TASKS}})
    service = make_service(setting).boot()
    hold: Step = {"do": "wait_for", "gate": "never"}
    service.start("bomb", [init(), multiply("born"), hold, result()])
    born = int(service.recorded_pid("born"))
    assert MOST_TASKS / 2 < born < MOST_TASKS
    assert service.play("other", success())["outcome"] == "completed"
    answer = service.ok("interrupt", name="bomb", force=True)
    assert answer.content["remaining_processes"] == []
    assert service.loose_end("bomb")["cause"] == "forced interrupt"
    assert service.processes() == []
