"""The inbox: one loose end per turn, read without loss, closed on purpose."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import api_error, assistant, held, init, result, success, wait_for
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

FIELDS = {
    "id", "name", "turn", "outcome", "cause", "signal", "oom", "error_class", "error", "title", "text",
    "text_length", "warnings", "limited_until", "dir", "session_id", "model", "cost_usd", "rounds",
    "duration_seconds", "started_at", "ended_at",
}  # fmt: skip
ANSWER_LIMIT_BYTES = 24 * 1024


def test_a_loose_end_has_all_agreed_fields(daemon: Daemon, name: str) -> None:
    """Null where it does not apply; the file is private."""
    start = daemon.start(name, success("final words")).content
    end = daemon.loose_end(name)
    assert set(end) >= FIELDS
    assert (end["name"], end["turn"], end["session_id"]) == (name, start["turn"], start["session_id"])
    assert (end["text"], end["text_length"], end["dir"]) == ("final words", 11, str(daemon.work))
    assert (end["cause"], end["signal"], end["oom"], end["limited_until"]) == (None, None, None, None)
    assert end["warnings"] == []
    assert name in end["title"]
    [stored] = [path for path in (daemon.state / "loose-ends").iterdir() if end["id"] in path.name]
    assert stored.stat().st_mode & 0o777 == 0o600


def test_reading_loses_nothing_and_closing_is_idempotent(daemon: Daemon, name: str) -> None:
    """Closed ones are told, unknown ones too; a closed one does not come back."""
    end = daemon.play(name, success(), success())
    assert daemon.loose_ends(name) == daemon.loose_ends(name)
    answer = daemon.ok("close_loose_ends", ids=[end["id"], "no-such-id"]).content
    assert (answer["closed"], answer["unknown"]) == ([end["id"]], ["no-such-id"])
    assert daemon.loose_ends(name) == []
    again = daemon.ok("close_loose_ends", ids=[end["id"]]).content
    assert (again["closed"], again["unknown"]) == ([end["id"]], [])
    daemon.resume(name)
    assert len(daemon.loose_ends(name)) == 1


@about("case-E3")
def test_closing_survives_a_restart(own_daemon: Daemon) -> None:
    """And so does an open one: closing is final."""
    closed = own_daemon.play("a", success())
    kept = own_daemon.play("b", success())
    own_daemon.ok("close_loose_ends", ids=[closed["id"]])
    own_daemon.kill()
    own_daemon.boot()
    ends = own_daemon.ok("get_loose_ends").content["loose_ends"]
    assert ends == [kept]
    assert own_daemon.ok("close_loose_ends", ids=[closed["id"]]).content["closed"] == [closed["id"]]


@about("case-E1")
def test_ten_turns_that_end_together_give_ten_loose_ends(daemon: Daemon, name: str) -> None:
    """None is swallowed."""
    names = [f"{name}-{number}" for number in range(10)]
    for one in names:
        daemon.start(one, [init(), wait_for(f"{name}.go"), result(one)])
    daemon.open_gate(f"{name}.go")
    for one in names:
        assert daemon.loose_end(one)["text"] == one
        assert len(daemon.loose_ends(one)) == 1


def test_the_oldest_come_first_with_a_limit_and_the_rest_is_counted(daemon: Daemon, name: str) -> None:
    """`limit` is 10 when not given; `name` restricts to one subagent."""
    daemon.play(name, *[success(f"turn {number}") for number in range(12)])
    for _ in range(11):
        daemon.resume(name)
    by_default = daemon.ok("get_loose_ends", name=name).content
    texts = [end["text"] for end in by_default["loose_ends"]]
    assert texts == [f"turn {number}" for number in range(10)]
    assert by_default["remaining"] == 2
    two = daemon.ok("get_loose_ends", name=name, limit=2).content
    assert [end["text"] for end in two["loose_ends"]] == ["turn 0", "turn 1"]
    assert two["remaining"] == 10
    assert {end["name"] for end in by_default["loose_ends"]} == {name}


def test_an_answer_stays_under_24_kb(daemon: Daemon, name: str) -> None:
    """A parent is shown no more of it by its client; what does not fit is counted."""
    wide = "\u4e16" * 4000
    daemon.start(name, *[success(wide)] * 8)
    for _ in range(7):
        daemon.finished(name)
        daemon.ok("continue", name=name, prompt="more")
    daemon.finished(name)
    content = daemon.ok("get_loose_ends", name=name).content
    assert content["loose_ends"]
    assert len(json.dumps(content, ensure_ascii=False).encode()) <= ANSWER_LIMIT_BYTES
    assert len(content["loose_ends"]) + content["remaining"] == 8


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        pytest.param(4000, 4000, id="just-fits"),
        pytest.param(4001, 4000, id="one-too-many"),
        pytest.param(3_000_000, 4000, id="facts-5-three-megabytes-of-text"),
    ],
)
def test_the_text_is_cut_at_4000_characters_with_its_length(
    daemon: Daemon, name: str, length: int, shown: int
) -> None:
    """With `ids` up to 20,000 characters of it are given."""
    end = daemon.play(name, [init(), result("e\u0301" * (length // 2) + "x" * (length % 2))])
    assert end["text_length"] == length
    assert shown <= len(end["text"]) <= shown + 1
    [full] = daemon.ok("get_loose_ends", ids=[end["id"]]).content["loose_ends"]
    expected = min(length, 20_000)
    assert expected <= len(full["text"]) <= expected + 1


def test_ids_that_are_unknown_are_simply_not_there(daemon: Daemon, name: str) -> None:
    """And closed ones can still be looked at by id or not, but nothing breaks."""
    end = daemon.play(name, success())
    content = daemon.ok("get_loose_ends", ids=["nope", end["id"], "../../etc/passwd"]).content
    assert [one["id"] for one in content["loose_ends"]] == [end["id"]]


def test_closing_a_path_closes_nothing(daemon: Daemon, name: str) -> None:
    """An id is never taken as a file name of somewhere else."""
    end = daemon.play(name, success())
    for wrong in ("../names/x", "/etc/passwd", "", "a\x00b", "." * 300, f"../loose-ends/{end['id']}"):
        answer = daemon.call("close_loose_ends", ids=[wrong])
        assert answer.is_error or answer.content == {"closed": [], "unknown": [wrong]}
    assert daemon.loose_ends(name) == [end]


def test_parallel_readers_and_closers_agree(daemon: Daemon, name: str) -> None:
    """Each loose end is closed once and for all."""
    daemon.play(name, *[success()] * 5)
    for _ in range(4):
        daemon.resume(name)
    ids = [end["id"] for end in daemon.loose_ends(name)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: daemon.call("close_loose_ends", ids=ids), range(8)))
    assert all(answer.content["closed"] == ids for answer in answers)
    assert daemon.loose_ends(name) == []


@about("case-E4")
def test_the_loose_end_is_there_before_the_name_is_free(daemon: Daemon, name: str) -> None:
    """Whoever sees the name as ended finds the notice."""
    daemon.start(name, held(f"{name}.go"))
    daemon.open_gate(f"{name}.go")
    eventually(lambda: daemon.status_of(name)["state"] != "running")
    assert len(daemon.loose_ends(name)) == 1


def test_a_turn_folder_holds_no_output_after_its_loose_end(daemon: Daemon, name: str) -> None:
    """The three files live as long as the turn, then go."""
    turn = daemon.start(name, held(f"{name}.go")).content["turn"]
    folder = daemon.turn_folder(turn)
    files = {path.name: path.stat().st_mode & 0o7777 for path in folder.iterdir()}
    assert {"stdin", "stdout", "stderr", "record.json"} <= set(files)
    assert set(files.values()) == {0o100600 & 0o7777}
    assert folder.stat().st_mode & 0o7777 == 0o700
    daemon.open_gate(f"{name}.go")
    daemon.loose_end(name)
    eventually(lambda: not (folder / "stdout").exists() and not (folder / "stdin").exists())
    assert not (folder / "stderr").exists()


def test_a_failed_turns_notice_is_short_and_names_the_error(daemon: Daemon, name: str) -> None:
    """The title can be read alone; the answer's text names the subagent for people."""
    daemon.play(name, [init(), assistant("x"), *api_error(529, "API Error: Overloaded")])
    answer = daemon.ok("get_loose_ends", name=name)
    [end] = answer.content["loose_ends"]
    assert "failed" in end["title"]
    assert len(end["title"]) < 200
    assert name in answer.text
