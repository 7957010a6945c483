"""Several subagents at once: each its own, and claude's one shared file stays whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.claude.real_daemon import RealDaemon
    from tests.support.offline_model import OfflineModel

MANY_SECONDS = 150.0


@pytest.mark.shows("facts-12-several-at-once")
def test_four_subagents_run_at_the_same_time_and_do_not_mix(daemon: RealDaemon, model: OfflineModel) -> None:
    names = [f"worker-{number}" for number in range(4)]
    for name in names:
        daemon.begin(name, f"the word is {name}-word [[hold: go]] [[bash: echo {name} printed this]]")
    for name in names:
        model.wait_for_request(f"{name}-word", limit_seconds=60)
    running = daemon.ok("status").content["subagents"]
    assert [one["state"] for one in running] == ["running"] * 4
    assert len({one["session_id"] for one in running}) == 4
    model.release("go")
    ends = {name: daemon.loose_end(name) for name in names}
    assert {end["outcome"] for end in ends.values()} == {"completed"}
    assert all(end["text"].endswith(f"{name} printed this") for name, end in ends.items())
    turns = {
        name: daemon.ok("continue", name=name, prompt=f"[[recall: {other}-word]]").content["turn"]
        for name, other in zip(names, [names[0], names[0], names[2], names[2]], strict=True)
    }
    told = [daemon.loose_end(name, turn=turn)["text"].rpartition(": ")[2] for name, turn in turns.items()]
    assert told == ["yes", "no", "yes", "no"]


@pytest.mark.shows("case-H1")
@pytest.mark.parametrize("count", [6, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
def test_many_first_starts_at_once_leave_the_config_file_whole(daemon: RealDaemon, count: int) -> None:
    names = [f"worker-{number}" for number in range(count)]
    for name in names:
        daemon.begin(name, f"[[bash: echo {name}]] [[say: {name} is done]]")
    ends = [daemon.loose_end(name, within=MANY_SECONDS) for name in names]
    assert [(end["outcome"], end["text"]) for end in ends] == [
        ("completed", f"{name} is done") for name in names
    ]
    assert isinstance(json.loads(daemon.config_file.read_text()), dict)
    assert len(daemon.transcripts()) == count
    eventually(lambda: not daemon.at_home(), what="no process being left")
