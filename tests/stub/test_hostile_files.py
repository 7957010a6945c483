"""Files that somebody else has put, spoiled or filled: a clear word, nothing outside, no hang, no loss."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import dump, forever, held, init, reach, success
from tests.stub.test_bad_state import fill
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon


def rewrite(path: Path, **changes: object) -> None:
    """Change fields of a stored record."""
    content: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"started_at": "garbage"}, id="no-time"),
        pytest.param({"started_at": "2026-01-31T12:00:00"}, id="a-time-without-a-zone"),
        pytest.param({"dir": "/a\0b"}, id="a-directory-with-a-nul"),
        pytest.param({"name": "../../x"}, id="a-name-that-leads-outside"),
    ],
)
def test_a_turn_record_that_nobody_wrote_is_set_aside(own_daemon: Daemon, changes: dict[str, str]) -> None:
    """Its folder still tells the name; nothing is written outside the state directory."""
    daemon = own_daemon
    turn = daemon.start("a", held("go")).content["turn"]
    daemon.kill()
    rewrite(daemon.turn_folder(turn) / "record.json", **changes)
    daemon.boot()
    [end] = daemon.loose_ends("a")
    assert (end["turn"], end["outcome"], end["cause"]) == (turn, "killed", "daemon stopped")
    assert not (daemon.state.parent / "x.json").exists()
    assert any("set aside" in warning for warning in daemon.ok("status").content["warnings"])


def test_spoiled_times_and_fifos_among_the_records_stop_no_start(own_daemon: Daemon) -> None:
    """Neither a crash at each start nor one that waits for ever."""
    daemon = own_daemon
    daemon.play("a", success())
    daemon.play("b", success())
    [end] = daemon.loose_ends("b")
    daemon.stop()
    [a] = (daemon.state / "loose-ends").glob(f"*{daemon_turn(daemon, 'a')}*")
    rewrite(a, closed_at="garbage")
    rewrite(daemon.state / "names" / "a.json", last_turn={})
    os.mkfifo(daemon.state / "loose-ends" / "20260101_000000_000_0000.json")
    (daemon.state / "prompts" / "folder").mkdir()
    (daemon.state / ".probe").mkdir()
    daemon.boot()
    assert daemon.loose_ends("b") == [end]
    assert daemon.play("a", success("again"))["text"] == "again"


def daemon_turn(daemon: Daemon, name: str) -> str:
    """Return the last turn of a name from what is stored."""
    content = json.loads((daemon.state / "names" / f"{name}.json").read_text())
    turn: str = content["last_turn"]["turn"]
    return turn


@pytest.mark.parametrize("kind", ["fifo", "nul", "large"])
def test_an_environment_file_that_cannot_be_a_value_refuses_the_start(
    make_daemon: MakeDaemon, tmp_path: Path, kind: str
) -> None:
    """At once, naming the key; the earlier session stays where it is and no turn is left."""
    value = tmp_path / "value"
    value.write_text("fine")
    daemon = make_daemon(Setting(environment={"TOKEN": {"file": str(value)}})).boot()
    daemon.play("a", success())
    before = daemon.transcripts()
    value.unlink()
    if kind == "fifo":
        os.mkfifo(value)
    else:
        value.write_bytes(b"a\0b" if kind == "nul" else b"x" * 200_000)
    answer = daemon.call("start", name="a", prompt_file=str(daemon.work / "recipe.md"))
    assert answer.is_error
    assert "environment.TOKEN" in answer.text
    assert answer.seconds < 2
    assert daemon.transcripts() == before
    assert daemon.turn_folders() == []
    assert len(daemon.loose_ends("a")) == 1


def test_a_dir_behind_a_link_is_the_one_that_the_kernel_means(daemon: Daemon, name: str) -> None:
    """`link/..` is above where the link leads, not above the link."""
    real = daemon.folder / f"real-{name}"
    (real / "sub").mkdir(parents=True)
    (real / "sibling").mkdir()
    (daemon.work / f"link-{name}").symlink_to(real / "sub")
    daemon.script(name, [dump(f"{name}.dump"), *success()])
    daemon.start(name, dir=f"link-{name}/../sibling")
    assert daemon.seen(f"{name}.dump")["cwd"] == str(real / "sibling")
    daemon.finished(name)


def test_a_stop_ends_although_the_disk_takes_nothing(make_daemon: MakeDaemon, small_disk: Path) -> None:
    """What could not be stored is settled by the next start."""
    daemon = make_daemon(Setting(top={"state_dir": small_disk / "state"})).boot()
    turn = daemon.start("a", [init(), reach("up"), forever()]).content["turn"]
    daemon.reached("up")
    eventually((daemon.state / "ballast").exists)
    filler = fill(small_disk, 0)
    (daemon.state / "ballast").rename(daemon.state / "held")  # nothing to free, and no room for another
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ends(within=15) == 0
    filler.unlink()
    daemon.boot()
    assert [end["turn"] for end in daemon.loose_ends("a")] == [turn]


def test_sighup_renews_the_largest_prompt_too(make_daemon: MakeDaemon) -> None:
    """It is checked at the spawn, so the reload reaches it."""
    daemon = make_daemon(Setting(limits={"max_prompt_bytes": 100})).boot()
    daemon.play("a", success(), success())
    config = daemon.folder / "config.toml"
    config.write_text(config.read_text().replace('"max_prompt_bytes" = 100', '"max_prompt_bytes" = 5'))
    assert daemon.process is not None
    offset = len(daemon.log)
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: "read again" in daemon.log[offset:])
    assert "max_prompt_bytes" in daemon.refused("continue", name="a", prompt="123456")
    assert daemon.resume("a", "12345")["outcome"] == "completed"


def test_a_reload_says_what_only_a_restart_takes_up(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(Setting(limits={"max_running": 7})).boot()
    config = daemon.folder / "config.toml"
    changed = config.read_text().replace('"max_running" = 7', '"max_running" = 8')
    config.write_text(f'umask = "0077"\n{changed}\n[scopes]\nmemory_max = "1G"\n')
    assert daemon.process is not None
    offset = len(daemon.log)
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: "read again" in daemon.log[offset:])
    eventually(lambda: "only a restart takes it up: umask, scopes.memory_max" in daemon.log[offset:])
