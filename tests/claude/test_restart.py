"""The daemon stops, crashes and comes back: every turn is told about once, every session goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.claude.real_daemon import RealDaemon
    from tests.support.daemon_harness import Daemon
    from tests.support.offline_model import OfflineModel

SLEEPS = "setsid sleep 301 & echo began > began; sleep 300"


def restarted(daemon: Daemon) -> None:
    """Stop the daemon as systemd does."""
    daemon.stop()


def crashed(daemon: Daemon) -> None:
    """Kill the daemon alone."""
    daemon.kill()


WAYS = pytest.mark.parametrize("end", [restarted, crashed], ids=["sigterm", "sigkill"])


def only_end(daemon: RealDaemon, name: str = "worker") -> dict[str, Any]:
    """Return the one loose end of a subagent."""
    [end] = daemon.loose_ends(name)
    return end


@pytest.mark.shows("facts-10-not-persisted", "facts-10-model")
@WAYS
def test_an_idle_subagent_goes_on_after_a_restart_with_all_that_was_remembered(
    daemon: RealDaemon, end: Callable[[Daemon], None]
) -> None:
    folder = daemon.work / "elsewhere"
    folder.mkdir()
    (folder / "recipe.md").write_text("Mention feldspar.\n")
    first = daemon.completed(
        "worker", "the word is basalt [[say: noted]]", prompt_file="recipe.md", dir="elsewhere", model="haiku"
    )
    end(daemon)
    daemon.boot()
    assert daemon.status_of("worker")["last_turn"]["text"] == "noted"
    assert only_end(daemon)["turn"] == first["turn"]
    second = daemon.continued("worker", "[[recall: basalt]]")
    assert second["text"] == "system prompt: no, conversation: yes"
    assert [second[key] for key in ("dir", "session_id", "model")] == [
        first[key] for key in ("dir", "session_id", "model")
    ]
    assert daemon.continued("worker", "[[recall: feldspar]]")["text"].startswith("system prompt: yes")


@pytest.mark.shows("facts-3-sigint-while-bash-runs", "facts-3-sigint-waiting-for-the-api", "case-C5")
@WAYS
def test_what_runs_is_stopped_told_about_once_and_continued(
    daemon: RealDaemon, model: OfflineModel, end: Callable[[Daemon], None]
) -> None:
    begun = [
        daemon.begin("worker", f"the word is basalt [[bash: {SLEEPS}]]"),
        daemon.begin("waiter", "the word is basalt [[silent]]"),
    ]
    eventually((daemon.work / "began").exists, within=60, what="the command running")
    model.wait_for_request("[[silent]]", limit_seconds=60)
    end(daemon)
    daemon.boot()
    assert not any(is_alive(answer["pid"]) for answer in begun)
    assert daemon.at_home() == []
    again = []
    for name in ("worker", "waiter"):
        told = only_end(daemon, name)
        assert (told["outcome"], told["signal"], told["cause"]) == ("killed", "SIGINT", "daemon stopped")
        assert daemon.status_of(name)["state"] == "killed"
        again.append(daemon.ok("continue", name=name, prompt="[[recall: basalt]]").content)
    assert [answer["previous_turn"]["cause"] for answer in again] == ["daemon stopped"] * 2
    ends = [daemon.loose_end(answer["name"], turn=answer["turn"]) for answer in again]
    assert all(one["text"].endswith("conversation: yes") for one in ends)


@pytest.mark.shows("case-D2")
def test_a_turn_that_ends_while_no_daemon_watches_is_judged_by_its_result(
    daemon: RealDaemon, model: OfflineModel
) -> None:
    pid = daemon.begin("worker", "the word is basalt [[hold: go]] [[say: ended alone]]")["pid"]
    model.wait_for_request("basalt", limit_seconds=60)
    daemon.kill()
    assert is_alive(pid)
    model.release("go")
    eventually(lambda: not is_alive(pid), within=60, what="claude ending")
    daemon.boot()
    told = only_end(daemon)
    assert (told["outcome"], told["text"]) == ("completed", "ended alone")
    assert told["cost_usd"] > 0
    assert daemon.continued("worker", "[[recall: basalt]]")["text"].endswith("conversation: yes")
