"""The daemon goes and comes back while claude works (`on_restart = "adopt"`): claude does not notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.claude.test_restart import WAYS, only_end
from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.claude.real_daemon import MakeDaemon, RealDaemon
    from tests.support.daemon_harness import Daemon
    from tests.support.offline_model import OfflineModel

WAITS = "echo began > began; until [ -e go ]; do sleep 0.1; done; echo the command went on > proof"


@pytest.fixture
def adopting(make_daemon: MakeDaemon) -> RealDaemon:
    """Run a daemon that adopts."""
    return make_daemon(top={"on_restart": "adopt"}).boot()


@WAYS
def test_turns_go_on_that_wait_for_the_model_or_are_in_the_middle_of_a_command(
    adopting: RealDaemon, model: OfflineModel, end: Callable[[Daemon], None]
) -> None:
    """Each ends with its result, is told about once, and its session goes on."""
    words = "the word is basalt"
    begun = {
        "worker": adopting.begin("worker", f"{words} [[bash: {WAITS}]] [[say: worked]]"),
        "waiter": adopting.begin("waiter", f"{words} [[hold: go]] [[say: waited]]"),
    }
    eventually((adopting.work / "began").exists, within=60, what="the command running")
    model.wait_for_request("[[hold: go]]", limit_seconds=60)
    end(adopting)
    assert all(is_alive(answer["pid"]) for answer in begun.values())
    adopting.boot()
    for name, answer in begun.items():
        found = adopting.status_of(name)
        assert (found["state"], found["turn"]) == ("running", answer["turn"])
    assert adopting.status_of("worker")["activity"]["tool"] == "Bash"
    (adopting.work / "go").touch()
    model.release("go")
    for name, text in (("worker", "worked"), ("waiter", "waited")):
        adopting.loose_end(name)
        told = only_end(adopting, name)
        assert (told["outcome"], told["text"], told["warnings"]) == ("completed", text, [])
        assert adopting.continued(name, "[[recall: basalt]]")["text"].endswith("conversation: yes")
    assert (adopting.work / "proof").exists()
