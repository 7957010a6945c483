"""Six parents at work at once on one daemon, until it is killed; and what must hold afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.stub.kill_story import COULD_NOT_START, GONE, Confirmed, check_folders, stored_ends
from tests.stub.steps import endless, init, result, sleep, success

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.stub.daemon_forks import Fork
    from tests.stub.steps import Step
    from tests.support.daemon_harness import Daemon

PARENTS = 6
LONGEST_LIFE_SECONDS = 0.6


class Parent:
    """One parent with one subagent; what it does is drawn from its own random numbers."""

    def __init__(self, daemon: Daemon, name: str, chance: random.Random) -> None:
        """Begin with nothing confirmed."""
        self.daemon = daemon
        self.name = name
        self.chance = chance
        self.confirmed = Confirmed()

    def work(self) -> None:
        """Start, continue, interrupt and close until the daemon is gone."""
        with suppress(*GONE):
            while True:
                turn = self.spawn()
                self.confirmed.turns.append(turn)
                if self.chance.random() < 0.4:
                    self.daemon.call("interrupt", name=self.name, force=self.chance.random() < 0.5)
                end = self.daemon.loose_end(self.name, turn=turn, within=20)
                self.confirmed.was_told(end)
                if self.chance.random() < 0.5:
                    answer = self.daemon.ok("close_loose_ends", ids=[end["id"]])
                    self.confirmed.closed.extend(answer.content["closed"])

    def spawn(self) -> str:
        """Start the subagent afresh or continue it, and return the turn."""
        self.daemon.script(self.name, self.steps())
        if self.confirmed.turns and self.chance.random() < 0.5:
            answer = self.daemon.ok("continue", name=self.name, prompt="go on")
        else:
            answer = self.daemon.start(self.name)
        turn: str = answer.content["turn"]
        return turn

    def steps(self) -> Sequence[Step]:
        """Return a turn that ends at once, ends soon, or ends only by a signal within the grace."""
        soon = [init(), sleep(self.chance.uniform(0.0, 0.2)), result("soon")]
        stays = [*success("stays"), sleep(self.chance.uniform(0.0, 0.2))]
        return self.chance.choice((success("at once"), soon, stays, [*endless()[:-1], sleep(0.3)]))


def kill_under_load(parents: list[Parent], fork: Fork, chance: random.Random) -> None:
    """Let all parents work and kill the daemon at a random moment of that."""
    with ThreadPoolExecutor(len(parents)) as pool:
        working = [pool.submit(parent.work) for parent in parents]
        fork.is_gone(within=chance.uniform(0.0, LONGEST_LIFE_SECONDS))
        fork.kill()
        for one in working:
            one.result(timeout=30)


def check_after(daemon: Daemon, parents: list[Parent]) -> None:
    """Check a daemon that was just booted after such a kill, before anybody works again."""
    assert daemon.processes() == [], "a process outlived the daemon that answers for it"
    check_folders(daemon)
    ends = stored_ends(daemon)
    ran = {note.stem for note in daemon.scripts.glob("*.ran")}
    confirmed = {turn for parent in parents for turn in parent.confirmed.turns}
    assert not (ran | confirmed) - ends.keys(), "a turn is without its loose end"
    for turn in ends.keys() - ran:
        verdict = ends[turn]["outcome"]["verdict"]
        # One whose start was confirmed was executed, and then a signal came before its own first line.
        possible = {"killed", "lost"} if turn in confirmed else {"killed", COULD_NOT_START}
        assert verdict["kind"] in possible, f"turn {turn} never ran, but: {verdict}"
    opened = {turn for turn, end in ends.items() if end["closed_at"] is None}
    closed = {turn for parent in parents for turn in parent.confirmed.closed}
    assert not closed & opened, "a closed loose end is open again"
    for parent in parents:
        parent.confirmed.check_told(daemon)
    shown = daemon.ok("get_loose_ends", limit=100).content
    assert len(shown["loose_ends"]) + shown["remaining"] == len(opened)
    for subagent in daemon.ok("status").content["subagents"]:
        own = [turn for turn, end in ends.items() if end["outcome"]["name"] == subagent["name"]]
        assert subagent["state"] in {"idle", "killed"}
        assert subagent["last_turn"]["turn"] == max(own)
