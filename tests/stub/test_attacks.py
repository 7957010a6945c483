"""What somebody tries who knows the daemon: to stop turns, to lose their ends, to let it hang."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import event, forever, held, init, raw, reach, result, success
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

AT_ONCE_SECONDS = 2.0


def forged(daemon: Daemon, kind: str, turn: str) -> None:
    """Put a copy of a stored record beside it that claims to be of another turn."""
    if kind == "loose-ends":
        [source] = (daemon.state / "loose-ends").iterdir()
        content: dict[str, Any] = json.loads(source.read_text())
        content |= {"id": turn, "outcome": content["outcome"] | {"turn": turn}}
        target = source.with_name(f"{turn}.json")
    else:
        source = daemon.state / "names" / "a.json"
        content = json.loads(source.read_text())
        content |= {"name": "b", "last_turn": content["last_turn"] | {"turn": turn, "name": "b"}}
        target = source.with_name("b.json")
    target.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param("zzzz", id="no-id"),
        pytest.param("99991231_235959_999_ffff", id="the-end-of-time"),
        pytest.param("99999999_999999_999_ffff", id="the-last-id"),
        pytest.param("20260131_120000_001_ABCD", id="large-letters"),
    ],
)
def test_a_record_with_an_impossible_turn_stops_no_start(own_daemon: Daemon, turn: str) -> None:
    """New ids are counted on from the greatest: it is set aside, and what follows is kept."""
    daemon = own_daemon
    first = daemon.play("a", success())
    daemon.stop()
    for kind in ("loose-ends", "names"):
        forged(daemon, kind, turn)
    daemon.boot()
    second = daemon.play("c", success())
    assert second["turn"] > first["turn"]
    daemon.restart()
    assert daemon.loose_ends("c") == [second]
    assert [one["turn"] for one in daemon.loose_ends("a")] == [first["turn"]]
    assert daemon.play("b", success())["turn"] > second["turn"]


@pytest.mark.parametrize("place", ["loose-ends/TURN.json", "names/a.json"])
def test_a_folder_in_the_way_of_a_record_is_moved_out_of_it(own_daemon: Daemon, place: str) -> None:
    """A subagent knows its turn and its name: the end is stored all the same, and the name is free."""
    daemon = own_daemon
    turn = daemon.start("a", [*held("go")]).content["turn"]
    blocked = daemon.state / place.replace("TURN", turn)
    (blocked / "inside").mkdir(parents=True)
    daemon.open_gate("go")
    assert daemon.loose_end("a", turn=turn)["text"] == "all done"
    daemon.restart()
    assert daemon.loose_end("a", turn=turn)["text"] == "all done"
    assert daemon.play("a", success("again"))["text"] == "again"


def test_a_folder_in_the_way_of_what_a_crash_left_stops_no_start_up(own_daemon: Daemon) -> None:
    daemon = own_daemon
    turn = daemon.start("a", [init(), reach("up"), forever()]).content["turn"]
    daemon.reached("up")
    daemon.kill()
    (daemon.state / "loose-ends" / f"{turn}.json").mkdir()
    daemon.boot()
    assert daemon.loose_end("a", turn=turn)["cause"] == "daemon stopped"


@pytest.mark.parametrize(
    "what", ["folder", "output", "output-is-a-fifo", "output-is-a-folder", "record", "all-turns"]
)
def test_a_turn_that_spoils_its_own_files_ends_with_one_loose_end(own_daemon: Daemon, what: str) -> None:
    """Whatever it says then: not that it was completed, unless its result could still be read."""
    daemon = own_daemon
    turn = daemon.start("a", [init(), reach("up"), *held("go")[1:]]).content["turn"]
    daemon.reached("up")
    folder = daemon.turn_folder(turn)
    match what:
        case "folder":
            shutil.rmtree(folder)
        case "all-turns":
            shutil.rmtree(folder.parent)
        case "record":
            (folder / "record.json").unlink()
        case _:
            (folder / "stdout").unlink()
            if what == "output-is-a-fifo":
                os.mkfifo(folder / "stdout")
            elif what == "output-is-a-folder":
                (folder / "stdout").mkdir()
    daemon.open_gate("go")
    end = daemon.loose_end("a", turn=turn)
    assert end["text"] == "all done"
    assert daemon.processes() == []
    daemon.restart()
    assert [one["turn"] for one in daemon.loose_ends("a")] == [turn]
    assert daemon.play("a", success("again"))["text"] == "again"


NESTED = "[" * 200_000
STRANGE: dict[str, dict[str, Any]] = {
    "rounds": {"num_turns": 10**400},
    "no-number": {"total_cost_usd": float("nan")},
    "infinite": {"total_cost_usd": float("inf")},
    "negative": {"total_cost_usd": -1e308},
    "letters": {"result": "a\0b\ud800\x1b[2J\u202e"},
    "flag": {"session_id": "--dangerous"},
    "path": {"session_id": "../../../etc/passwd"},
    "long-session": {"session_id": "x" * 1_000_000},
    "long-text": {"result": "x" * 5_000_000},
    "errors": {"errors": [{"a": 1}] * 1000, "is_error": True},
}


def test_strange_values_in_a_result_reach_the_parent_as_valid_json(own_daemon: Daemon) -> None:
    """In the loose end, in `status`, after a restart; and the names can be continued."""
    daemon = own_daemon
    ends = {}
    for name, fields in STRANGE.items():
        daemon.start(
            name, [init(), result(**({"text": fields.get("result", "odd")} | fields))], success("again")
        )
        ends[name] = daemon.loose_end(name)
        assert ends[name]["outcome"] in {"completed", "failed"}
        json.dumps([ends[name], daemon.status_of(name)], allow_nan=False)
    json.dumps(daemon.ok("status").content, allow_nan=False)
    daemon.restart()
    for name, end in ends.items():
        assert daemon.loose_ends(name) == [end]
        assert daemon.resume(name)["text"] == "again"


def test_a_line_that_is_nested_without_end_is_skipped(own_daemon: Daemon) -> None:
    end = own_daemon.play("a", [init(), raw(f"{NESTED}\n"), event(type=NESTED[:1000]), result("x")])
    assert (end["outcome"], end["text"]) == ("completed", "x")


@pytest.mark.parametrize("place", ["transcript", "sessions", "transcript-folder", "config-folder"])
def test_what_lies_in_claudes_folders_lets_no_start_hang(own_daemon: Daemon, place: str) -> None:
    """FIFOs, loops of links and folders where files belong."""
    daemon = own_daemon
    daemon.play("a", success())
    [transcript] = daemon.transcripts()
    if place == "transcript":
        os.mkfifo(transcript.with_name("22222222-2222-4222-8222-222222222222.jsonl"))
        transcript.with_name("33333333-3333-4333-8333-333333333333.jsonl").symlink_to("/dev/zero")
        loop = transcript.with_name("44444444-4444-4444-8444-444444444444.jsonl")
        loop.symlink_to(loop)
        transcript.with_name("55555555-5555-4555-8555-555555555555.jsonl").mkdir()
    elif place == "sessions":
        sessions = daemon.home / ".claude" / "sessions"
        sessions.mkdir(exist_ok=True)
        os.mkfifo(sessions / "1.json")
        (sessions / "2.json").symlink_to("/dev/zero")
        for number, content in enumerate(
            ("{", "[]", '{"pid": 1e400}', '{"pid": -1, "sessionId": 5}', NESTED)
        ):
            (sessions / f"{number + 10}.json").write_text(content)
        (sessions / "99999999999999999999.json").write_text('{"pid": 99999999999999999999, "sessionId": "x"}')
    else:
        folder = transcript.parent if place == "transcript-folder" else daemon.home / ".claude"
        folder.rename(daemon.home / "kept")
        if place == "transcript-folder":
            folder.symlink_to(folder)
        else:
            os.mkfifo(folder)
    answer = daemon.call("start", name="a", prompt_file=str(daemon.work / "recipe.md"))
    assert answer.seconds < AT_ONCE_SECONDS, answer.text
    assert "Internal error" not in answer.text
    daemon.end_all_turns()
    assert not daemon.turn_folders()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"prompt_file": "/dev/zero"}, id="a-device"),
        pytest.param({"prompt_file": "/proc/kmsg"}, id="a-file-that-waits"),
        pytest.param({"prompt_file": "/proc/self/mem"}, id="a-file-that-cannot-be-read"),
        pytest.param({"prompt_file": "a\0b"}, id="a-nul"),
        pytest.param({"prompt_file": "x" * 5000}, id="a-long-path"),
        pytest.param({"prompt_file": "recipe.md", "dir": "/proc/self/fd"}, id="a-folder-of-the-daemon"),
        pytest.param({"prompt_file": "recipe.md", "dir": "x" * 5000}, id="a-long-dir"),
        pytest.param({"prompt_file": "recipe.md", "dir": "~nobody-of-this-name"}, id="a-home-of-nobody"),
        pytest.param({"prompt_file": "recipe.md", "name": "a\n"}, id="a-line-break"),
        pytest.param({"prompt_file": "recipe.md", "name": "\u0661"}, id="a-digit-of-another-script"),
        pytest.param({"prompt_file": "recipe.md", "model": "a\0b"}, id="a-model-with-a-nul"),
        pytest.param({"prompt_file": "recipe.md", "model": "x" * 300_000}, id="a-long-model"),
    ],
)
def test_arguments_that_lead_elsewhere_are_answered_at_once(
    daemon: Daemon, name: str, arguments: dict[str, str]
) -> None:
    """With a refusal, or with a turn that runs; never with silence or an internal error."""
    answer = daemon.call("start", **({"name": name} | arguments))
    assert answer.seconds < AT_ONCE_SECONDS, answer.text
    assert "Internal error" not in answer.text
    if not answer.is_error:
        daemon.finished(name)
    assert daemon.call("interrupt", name=name, force=True).is_error


def test_a_state_directory_that_is_closed_for_a_while_loses_nothing(
    make_daemon: MakeDaemon, name: str
) -> None:
    """A file stands in its place: root, which tests may run as, passes by modes."""
    daemon = make_daemon(Setting()).boot()
    turn = daemon.start("a", held("go")).content["turn"]
    kept = daemon.state / "kept"
    (daemon.state / "loose-ends").rename(kept)
    (daemon.state / "loose-ends").write_text(name)
    daemon.open_gate("go")
    eventually(lambda: "cannot be stored yet" in daemon.log, what="trouble")
    assert any("cannot be stored" in one for one in daemon.ok("status").content["warnings"])
    (daemon.state / "loose-ends").unlink()
    kept.rename(daemon.state / "loose-ends")
    assert daemon.loose_end("a", turn=turn, within=20)["text"] == "all done"
