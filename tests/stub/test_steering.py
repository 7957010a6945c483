"""Messages to running turns: read, refused or told as unread, whatever child and daemon do meanwhile."""

from __future__ import annotations

import hashlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import (
    assistant,
    dump,
    forever,
    held,
    init,
    listen,
    on_signal,
    reach,
    result,
    success,
    take,
    wait_for,
)
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

LARGE = "0123456789abcde\n" * 600_000


def late(claude: Path) -> Path:
    """Write a claude that is executed at once and begins to read when the gate is opened."""
    path = claude.with_name("late")
    waits = 'until [ -e "$STUB_SCRIPTS/ready" ]; do sleep 0.02; done'
    path.write_text(f'#!/bin/sh\n{waits}\nexec {claude} "$@"\n')
    path.chmod(0o755)
    return path


def test_a_message_reaches_a_turn_in_its_middle(daemon: Daemon, name: str) -> None:
    """It is read once, and the input ends with the result; nothing of it stands in the journal."""
    steps = [init(), take(), assistant("with it"), result("with it")]
    turn = daemon.start(name, steps, steerable=True).content["turn"]
    answer = daemon.ok("steer", name=name, text="the word is basalt")
    assert answer.content == {"name": name, "turn": turn, "sent": True, "unread_messages": 1}
    end = daemon.loose_end(name, turn=turn)
    assert (end["outcome"], end["text"], end["warnings"]) == ("completed", "with it", [])
    assert "basalt" not in daemon.log
    assert not daemon.turn_folders()


def test_a_message_after_the_last_answer_is_a_further_round(daemon: Daemon, name: str) -> None:
    """Accepted before the result is seen, answered in the same turn."""
    daemon.start(name, [*held(f"{name}.go", "the report"), listen()], steerable=True)
    daemon.ok("steer", name=name, text="also")
    daemon.open_gate(f"{name}.go")
    end = daemon.loose_end(name)
    assert (end["outcome"], end["warnings"]) == ("completed", [])
    assert end["text"] == "heard also\n\nBefore that, in the same turn:\n\nthe report"


def test_a_leading_slash_reaches_the_model_as_text(daemon: Daemon, name: str) -> None:
    """As the prompt and as a message."""
    steps = [init(), dump(f"{name}.seen"), take(), *success()[1:]]
    daemon.start(name, steps, trigger="/clear é\u2028", steerable=True)
    daemon.ok("steer", name=name, text="/compact")
    assert daemon.loose_end(name)["outcome"] == "completed"
    assert daemon.seen(f"{name}.seen")["stdin"] == " /clear é\u2028"


def test_a_prompt_of_ten_megabytes_waits_for_a_child_that_reads_late(
    make_daemon: MakeDaemon, own_claude: Path, name: str
) -> None:
    """Calls are answered at once meanwhile, messages are refused, and the prompt arrives whole."""
    daemon = make_daemon(claude=late(own_claude)).boot()
    started = daemon.start(name, [init(), dump("seen"), *success()[1:]], trigger=LARGE, steerable=True)
    assert started.seconds < 2
    assert daemon.ok("status", name=name).seconds < 2
    assert "does not read what is said" in daemon.refused("steer", name=name, text="less")
    daemon.open_gate("ready")
    assert daemon.loose_end(name)["outcome"] == "completed"
    assert daemon.seen("seen")["stdin_sha256"] == hashlib.sha256(LARGE.encode()).hexdigest()


def test_a_child_that_never_reads_holds_up_nobody(daemon: Daemon, name: str) -> None:
    """Its pipe is full at some time: then messages are refused in time, and SIGINT ends it."""
    daemon.start(name, [init(), reach(f"{name}.up"), forever()], steerable=True)
    daemon.reached(f"{name}.up")
    daemon.ok("steer", name=name, text="x" * 2_000_000)  # a part of it is in the pipe: it would follow
    answer = daemon.call("steer", name=name, text="less")
    assert (answer.is_error, answer.seconds < 2) == (True, True)
    stopped = daemon.ok("interrupt", name=name)
    assert stopped.seconds < 5
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"]) == ("killed", "SIGINT", "interrupt")
    assert any("A message that was handed to it" in warning for warning in end["warnings"])


def test_a_soft_interrupt_asks_before_it_signals(daemon: Daemon, name: str) -> None:
    """A claude that would die of SIGINT without a word writes a result instead."""
    steps = [on_signal("SIGINT", [reach(f"{name}.signalled")]), init(), reach(f"{name}.up"), listen()]
    daemon.start(name, steps, steerable=True)
    daemon.reached(f"{name}.up")
    answer = daemon.ok("interrupt", name=name)
    assert (answer.content["ended"], answer.content["signal"]) == (True, "SIGINT")
    end = daemon.loose_end(name)
    assert (end["outcome"], end["signal"], end["cause"], end["rounds"]) == (
        "killed",
        "SIGINT",
        "interrupt",
        2,
    )
    assert not (daemon.scripts / f"{name}.signalled").exists()


def test_a_time_out_asks_first_too(daemon: Daemon, name: str) -> None:
    """With its own cause."""
    daemon.start(name, [init(), listen()], steerable=True, timeout_seconds=0.5)
    end = daemon.loose_end(name)
    assert (end["outcome"], end["cause"], end["rounds"]) == ("killed", "timeout", 2)


def test_a_claude_that_leaves_a_message_after_its_result_is_waited_for_no_longer_than_the_grace(
    daemon: Daemon, name: str
) -> None:
    """Its input ends then; whether it still reads the message is its own affair."""
    daemon.start(name, [*success(), wait_for(f"{name}.go"), listen()], steerable=True)
    while daemon.status_of(name)["unread_messages"] == 0:
        answer = daemon.call("steer", name=name, text="less")
        if answer.is_error:
            pytest.skip("the result was seen before the message came")
    eventually(lambda: not daemon.status_of(name).get("steerable"), what="the end of its input")
    daemon.open_gate(f"{name}.go")
    end = daemon.loose_end(name)
    assert end["outcome"] == "completed"


def test_no_other_child_keeps_the_input_of_a_turn_open(own_daemon: Daemon, name: str) -> None:
    """Neither children of the daemon nor those of other turns have the writing end."""
    first = own_daemon.start(f"{name}-a", [init(), listen()], steerable=True).content["pid"]
    others = []
    for which in ("b", "c"):
        steps = [init(), dump(f"{name}.{which}"), forever()]
        started = own_daemon.start(f"{name}-{which}", steps, steerable=which == "b")
        others.append(started.content["pid"])
    for which in ("b", "c"):
        files = own_daemon.seen(f"{name}.{which}")["files"]
        assert sorted(files) == ["0", "1", "2"]
        assert not any(f"{name}-a" in file["target"] for file in files.values())
    own_daemon.kill()
    eventually(lambda: not is_alive(first), what="the end of its input")
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    own_daemon.boot()


def test_the_daemons_death_lets_the_round_finish(own_daemon: Daemon, name: str) -> None:
    """It ends by itself, and the next daemon judges it by its result; what it was told before is answered."""
    steps = [*held(f"{name}.go", "to the end"), listen()]
    started = own_daemon.start(name, steps, steerable=True).content
    own_daemon.ok("steer", name=name, text="less")
    own_daemon.kill()
    own_daemon.open_gate(f"{name}.go")
    eventually(lambda: not is_alive(started["pid"]), what="claude ending by itself")
    own_daemon.boot()
    end = own_daemon.loose_end(name, turn=started["turn"])
    assert end["outcome"] == "completed"
    assert "to the end" in end["text"]
    assert end["warnings"] == []
    assert own_daemon.resume(name)["outcome"] == "completed"


def test_a_message_that_was_not_read_is_told_after_a_crash_too(own_daemon: Daemon, name: str) -> None:
    """Its id was stored before it was written."""
    started = own_daemon.start(name, [init(), reach(f"{name}.up"), forever()], steerable=True).content
    own_daemon.reached(f"{name}.up")
    own_daemon.ok("steer", name=name, text="less")
    own_daemon.kill()
    own_daemon.boot()
    end = own_daemon.loose_end(name, turn=started["turn"])
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")
    assert any("A message that was handed to it" in warning for warning in end["warnings"])


def test_a_prompt_that_was_on_its_way_when_the_daemon_died_is_told_without_its_text(
    make_daemon: MakeDaemon, own_claude: Path, name: str
) -> None:
    """Half a line is the end of claude; a smaller prompt is in the pipe before the daemon can die."""
    daemon = make_daemon(claude=late(own_claude)).boot()
    begun = {
        which: daemon.start(f"{name}-{which}", success(), trigger=trigger, steerable=True).content
        for which, trigger in (("large", LARGE), ("small", "basalt"))
    }
    daemon.kill()
    daemon.open_gate("ready")
    pids = [started["pid"] for started in begun.values()]
    eventually(lambda: not any(map(is_alive, pids)), what="both ending by themselves")
    daemon.boot()
    assert daemon.loose_end(f"{name}-small")["outcome"] == "completed"
    end = daemon.loose_end(f"{name}-large")
    assert (end["outcome"], end["error_class"]) == ("failed", "setup")
    assert "before claude had read its prompt" in end["error"]
    assert "0123456789" not in end["error"]


@pytest.mark.parametrize("leave", ["stop", "kill"])
def test_an_adopted_turn_goes_on_to_its_end_and_takes_no_more_messages(
    make_daemon: MakeDaemon, name: str, leave: str
) -> None:
    """What went through its input before is read."""
    # An orphan's end is told when it is reaped, which an init may do seconds later.
    patient = {"exit_grace_seconds": 20}
    daemon = make_daemon(Setting(top={"on_restart": "adopt"}, limits=patient)).boot()
    started = daemon.start(
        name, [*held(f"{name}.go", "the report"), listen()], trigger=LARGE, steerable=True
    ).content
    eventually(lambda: daemon.call("steer", name=name, text="also").is_error is False, what="a reader")
    daemon.stop() if leave == "stop" else daemon.kill()
    daemon.boot()
    found = daemon.status_of(name)
    assert (found["state"], found["steerable"], found["unread_messages"]) == ("running", False, 1)
    assert "a daemon that has ended" in daemon.refused("steer", name=name, text="less")
    daemon.open_gate(f"{name}.go")
    end = daemon.loose_end(name, turn=started["turn"])
    assert (end["outcome"], end["warnings"]) == ("completed", [])
    assert end["text"].startswith("heard also")


def test_an_adopted_turn_can_be_interrupted(make_daemon: MakeDaemon, name: str) -> None:
    """By SIGINT, as nothing can be said to it."""
    daemon = make_daemon(Setting(top={"on_restart": "adopt"})).boot()
    daemon.start(name, [init(), reach(f"{name}.up"), forever()], steerable=True)
    daemon.reached(f"{name}.up")
    daemon.restart()
    assert daemon.ok("interrupt", name=name).content["ended"] is True
    assert daemon.loose_end(name)["cause"] == "interrupt"


def test_a_start_that_is_refused_leaves_nothing(own_daemon: Daemon, name: str) -> None:
    """No FIFO, no folder, no process."""
    program = own_daemon.claude.read_bytes()
    own_daemon.claude.write_text("#!/nonexistent/interpreter\n")
    try:
        recipe = str(own_daemon.work / "recipe.md")
        assert "executed" in own_daemon.refused("start", name=name, prompt_file=recipe, steerable=True)
    finally:
        own_daemon.claude.write_bytes(program)
    assert not own_daemon.turn_folders()
    assert own_daemon.processes() == []
