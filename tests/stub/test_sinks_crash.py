"""A daemon that is killed between storing, delivering and noting delivers at least once, under one key (E4).

The sink lives on, as a sink does, and remembers everything that it was sent.
"""

from __future__ import annotations

import json
import random
import shlex
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.conftest import write_claude
from tests.stub.daemon_forks import Forks
from tests.stub.kill_load import PARENTS, Parent, check_after, kill_under_load
from tests.stub.kill_story import GONE, stored_ends, write_recording_claude
from tests.stub.steps import success
from tests.support.daemon_harness import Daemon, Setting
from tests.support.processes import eventually
from tests.support.receivers import Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 20260102
USUAL_KILLS = 8
LONG_KILLS = 100
# Of one turn with two sinks: its loose end is stored, and each of the sinks noted.
WRITES = [
    f"{moment} loose-ends #{number}"
    for number in (1, 2, 3)
    for moment in ("before write", "inside open loose-ends/partial", "inside os.rename", "after write")
]


class Sinks:
    """A sink over HTTP and one that is a program, and what they have got."""

    def __init__(self, folder: Path, receiver: Receiver, port: int) -> None:
        """Let the program write a file for each attempt."""
        self.receiver = receiver
        self.folder = folder / "got"
        self.folder.mkdir()
        name = f"{shlex.quote(str(self.folder))}/$HIVE_SUBAGENT_LOOSE_END.$$"
        # Half-written when its daemon dies, it got nothing.
        script = f"cat >{name}.part && mv {name}.part {name}"
        self.setting = Setting(
            limits={"max_running": 8},
            tables={
                "loose_ends": {
                    "sinks": [
                        {"type": "http", "url": f"http://127.0.0.1:{port}/"},
                        {"type": "command", "argv": ["sh", "-c", script]},
                    ]
                }
            },
        )

    def posted(self) -> dict[str, list[dict[str, Any]]]:
        """Return by key what was posted."""
        found: dict[str, list[dict[str, Any]]] = {}
        for request in list(self.receiver.requests):
            found.setdefault(request.key, []).append(request.content)
        return found

    def written(self) -> dict[str, list[dict[str, Any]]]:
        """Return by key what the program has written."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in self.folder.iterdir():
            if path.suffix != ".part":
                found.setdefault(path.stem, []).append(json.loads(path.read_text()))
        return found

    def check(self, daemon: Daemon, *, most: int) -> int:
        """Check that what is stored came to both, under its own key, at most so often; return how often."""
        all_delivered(daemon)
        ends = stored_ends(daemon)
        assert not any(end["undelivered"] for end in ends.values())
        for got in (self.posted(), self.written()):
            assert got.keys() == ends.keys()
            for key, contents in got.items():
                assert {content["id"] for content in contents} == {key}, "one key, one loose end"
                assert {content["turn"] for content in contents} == {key}
                assert len(contents) <= most, f"{key} came {len(contents)} times"
        return sum(len(contents) for got in (self.posted(), self.written()) for contents in got.values())


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return what forks daemons."""
    with Forks() as program:
        yield program


@pytest.fixture
def sinks(tmp_path: Path) -> Iterator[Sinks]:
    """Receive while the test lasts, whatever becomes of the daemon."""
    with receiving() as (receiver, port):
        yield Sinks(tmp_path, receiver, port)


def all_delivered(daemon: Daemon) -> None:
    """Wait until nothing is delivered or noted any more."""

    def nothing_owed() -> bool:
        return bool(daemon.ok("status").content["undelivered"] == 0)

    eventually(nothing_owed, within=20, what="everything delivered")


def play(daemon: Daemon) -> None:
    """Play one turn to its end, as far as the daemon lives."""
    with suppress(*GONE):
        daemon.play("a", success())


def test_the_writes_of_a_turn_with_two_sinks_are_those_that_are_watched(
    forks: Forks, sinks: Sinks, tmp_path: Path
) -> None:
    """Every durable step of a delivery is one at which the other test kills."""
    daemon = Daemon(tmp_path / "d", write_claude(tmp_path / "claude"), sinks.setting)
    fork = forks.boot(daemon, trace=tmp_path / "trace")
    play(daemon)
    assert sinks.check(daemon, most=1) == 2
    assert fork.stop() == 0
    trace = (tmp_path / "trace").read_text().splitlines()
    writes = [instant for instant in trace if "write loose-ends #" in instant]
    assert writes == [instant for instant in WRITES if "write" in instant]


@pytest.mark.parametrize("instant", [one for one in WRITES if "write" in one or "rename" in one])
def test_a_kill_around_any_write_of_a_delivery_loses_nothing(
    forks: Forks, sinks: Sinks, tmp_path: Path, instant: str
) -> None:
    """Between store and delivery, and between delivery and the note of it: it comes once or twice."""
    daemon = Daemon(tmp_path / "d", write_claude(tmp_path / "claude"), sinks.setting)
    fork = forks.boot(daemon, instant=instant)
    play(daemon)
    assert fork.is_gone(within=10), f"{instant} was not reached"
    fork.kill()
    fork = forks.boot(daemon)
    count = sinks.check(daemon, most=2)
    assert 2 <= count <= 4
    assert fork.stop() == 0
    daemon.shut()


def kill_at_random(forks: Forks, sinks: Sinks, folder: Path, *, kills: int) -> str:
    """Kill a daemon at random moments while six subagents work and sinks are served; return the figures."""
    daemon = Daemon(folder / "d", write_recording_claude(folder / "claude"), sinks.setting)
    chance = random.Random(SEED)
    parents = [Parent(daemon, f"load-{n}", random.Random(f"{SEED} {n}")) for n in range(PARENTS)]
    for _ in range(kills):
        fork = forks.boot(daemon)
        with ExitStack() as always:
            always.callback(kill_under_load, parents, fork, chance)
            all_delivered(daemon)
            check_after(daemon, parents)
    fork = forks.boot(daemon)
    count = sinks.check(daemon, most=kills + 1)
    assert fork.stop() == 0
    daemon.shut()
    ends = len(stored_ends(daemon))
    assert ends >= kills // 2, "the load did not come to anything"
    return f"{kills} kills, {ends} loose ends, each delivered to both sinks; {count - 2 * ends} came again"


def test_kills_at_random_moments_lose_no_delivery(
    forks: Forks, sinks: Sinks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = kill_at_random(forks, sinks, tmp_path, kills=USUAL_KILLS)
    with capsys.disabled():
        print(f"\ndeliveries: {figures}")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_kills_at_random_moments_lose_no_delivery(
    forks: Forks, sinks: Sinks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = kill_at_random(forks, sinks, tmp_path, kills=LONG_KILLS)
    with capsys.disabled():
        print(f"\ndeliveries: {figures}")
