"""A disk that is full, read-only or spoiled: a clear word, no loss, and a daemon that lives on."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import assistant, flood, held, init, reach, result, success, wait_for
from tests.support.daemon_harness import WITHOUT_OVERRIDE, Daemon, Setting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon

MIB = 1 << 20


def free_bytes(folder: Path) -> int:
    """Return what is free on the file system of this folder."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def fill(folder: Path, leave: int) -> Path:
    """Fill the disk until only this much is free; return the file that fills it."""
    filler = folder / "filler"
    with filler.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(free_bytes(folder) - leave, 4096))
    if leave == 0:
        with filler.open("ab", buffering=0) as stream:
            try:
                while stream.write(b"x" * 4096):
                    continue
            except OSError:
                return filler
    return filler


def on_disk(make_daemon: MakeDaemon, disk: Path) -> Daemon:
    """Boot a daemon whose state directory lies on the small disk."""
    return make_daemon(Setting(top={"state_dir": disk / "state"})).boot()


def test_below_64_mib_free_nothing_is_started(make_daemon: MakeDaemon, small_disk: Path) -> None:
    """Both tools say so; with space again they work."""
    daemon = on_disk(make_daemon, small_disk)
    daemon.play("a", success())
    filler = fill(small_disk, 60 * MIB)
    recipe = str(daemon.work / "recipe.md")
    for text in (
        daemon.refused("start", name="a", prompt_file=recipe),
        daemon.refused("continue", name="a", prompt="x"),
    ):
        assert "64" in text
        assert "free" in text or "space" in text
    assert len(daemon.loose_ends("a")) == 1
    filler.unlink()
    assert daemon.resume("a")["outcome"] == "completed"


def test_a_disk_that_fills_up_in_mid_turn_still_stores_the_outcome(
    make_daemon: MakeDaemon, small_disk: Path
) -> None:
    """The ballast gives the room, for several turns at once; nothing is lost by a restart."""
    daemon = on_disk(make_daemon, small_disk)
    names = ["a", "b", "c"]
    for name in names:
        daemon.start(name, [init(), result(f"of {name}"), reach(f"{name}.up"), wait_for("go")])
        daemon.reached(f"{name}.up")
    assert (daemon.state / "ballast").stat().st_blocks > 0
    filler = fill(small_disk, 0)
    daemon.open_gate("go")
    for name in names:
        assert daemon.loose_end(name)["text"] == f"of {name}"
    assert daemon.ok("status").content["warnings"], "a full disk deserves a warning"
    daemon.kill()
    daemon.boot()
    for name in names:
        assert [end["text"] for end in daemon.loose_ends(name)] == [f"of {name}"]
    filler.unlink()
    assert daemon.play("a", success())["outcome"] == "completed"


def test_a_turn_that_fills_the_disk_itself_ends_with_its_loose_end(
    make_daemon: MakeDaemon, small_disk: Path
) -> None:
    """What it wrote before is kept as far as it goes, and the daemon lives on."""
    daemon = on_disk(make_daemon, small_disk)
    daemon.start("a", [init(), assistant("before the flood"), reach("up"), wait_for("go"), flood(90 * MIB)])
    daemon.reached("up")
    fill(small_disk, 2 * MIB)
    daemon.open_gate("go")
    end = daemon.loose_end("a", within=20)
    assert end["outcome"] == "failed"
    assert "before the flood" in end["text"]
    assert daemon.status_of("a")["state"] == "idle"


def test_a_full_disk_at_start_up_is_survived(make_daemon: MakeDaemon, small_disk: Path) -> None:
    """What is in the inbox can be read and closed."""
    daemon = on_disk(make_daemon, small_disk)
    end = daemon.play("a", success())
    daemon.stop()
    filler = fill(small_disk, 0)
    daemon.boot()
    assert daemon.loose_ends("a") == [end]
    assert daemon.ok("close_loose_ends", ids=[end["id"]]).content["closed"] == [end["id"]]
    filler.unlink()


def remount(disk: Path, mode: str) -> None:
    """Make the small disk read-only or writable."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


def set_modes(folder: Path, mode: int) -> None:
    """Give every folder in and under this one the mode."""
    for path in [folder, *[path for path in folder.rglob("*") if path.is_dir()]]:
        path.chmod(mode)


def test_a_state_directory_that_becomes_read_only_refuses_new_turns(make_daemon: MakeDaemon) -> None:
    """A running turn is judged when writing works again, or at once; it is never lost."""
    daemon = make_daemon(Setting(prefix=WITHOUT_OVERRIDE)).boot()
    daemon.play("a", success())
    daemon.start("b", [init(), result("of b"), reach("up"), wait_for("go")])
    daemon.reached("up")
    set_modes(daemon.state, 0o500)
    recipe = str(daemon.work / "recipe.md")
    assert str(daemon.state) in daemon.refused("start", name="a", prompt_file=recipe)
    assert str(daemon.state) in daemon.refused("continue", name="a", prompt="x")
    assert daemon.status_of("a")["state"] == "idle"
    daemon.open_gate("go")
    eventually(lambda: not daemon.processes())
    set_modes(daemon.state, 0o700)
    assert daemon.loose_end("b")["text"] == "of b"
    assert len(daemon.loose_ends("b")) == 1
    assert daemon.play("a", success())["outcome"] == "completed"


def test_a_read_only_state_directory_at_start_up_is_a_clear_refusal(
    make_daemon: MakeDaemon, small_disk: Path
) -> None:
    """One sentence with the path, no traceback, no crash loop by surprise."""
    (small_disk / "state").mkdir(mode=0o700)
    remount(small_disk, "ro,size=96m")
    daemon = make_daemon(Setting(top={"state_dir": small_disk / "state"}))
    assert daemon.spawn().wait(15) not in {0, None}
    daemon.process = None
    assert str(small_disk / "state") in daemon.log
    assert "Traceback" not in daemon.log


GARBAGE = [
    pytest.param(b"", id="empty"),
    pytest.param(b"{", id="cut"),
    pytest.param(b"\xff\x00\xfe", id="not-text"),
    pytest.param(b"[]", id="another-shape"),
    pytest.param(b"null", id="null"),
    pytest.param(b'{"name": 5}', id="wrong-types"),
    pytest.param(b"[" * 100_000, id="deeply-nested"),
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_spoiled_files_are_set_aside_and_reported(own_daemon: Daemon, garbage: bytes) -> None:
    """Of names, loose ends and turn records alike; what is whole stays, and the daemon serves."""
    daemon = own_daemon
    spoiled_end = daemon.play("spoiled", success())
    kept = daemon.play("kept", success(), success("again"))
    daemon.start("running", held("go"))
    daemon.kill()
    [loose_end] = [path for path in (daemon.state / "loose-ends").iterdir() if spoiled_end["id"] in path.name]
    record = next(path for path in daemon.turn_folders() if (path / "stdout").exists()) / "record.json"
    for path in (loose_end, daemon.state / "names" / "spoiled.json", record):
        path.write_bytes(garbage)
    daemon.open_gate("go")
    daemon.boot()
    aside = [path for path in (daemon.state / "set-aside").rglob("*") if path.is_file()]
    assert len(aside) >= 3
    assert "set aside" in daemon.log
    assert kept in daemon.ok("get_loose_ends", limit=100).content["loose_ends"]
    assert daemon.resume("kept")["text"] == "again"
    assert daemon.status_of("spoiled")["state"] == "unknown"
    assert daemon.play("spoiled", success())["outcome"] == "completed"
    offset = len(daemon.log)
    daemon.restart()
    assert "set aside" not in daemon.log[offset:], "a file is reported once, not at every start"


@pytest.mark.parametrize("where", ["names", "loose-ends", "turns"])
def test_foreign_things_in_the_state_directory_harm_nobody(own_daemon: Daemon, where: str) -> None:
    """Left-over temporary files, folders and links are no reason to fail."""
    daemon = own_daemon
    kept = daemon.play("a", success(), success())
    daemon.stop()
    folder = daemon.state / where
    (folder / "folder.json").mkdir()
    (folder / ".x.json.tmp").write_text("half")
    (folder / "README").write_text("hello")
    (folder / "loop.json").symlink_to("loop.json")
    daemon.boot()
    assert daemon.loose_ends("a") == [kept]
    assert daemon.resume("a")["outcome"] == "completed"


def test_a_missing_ballast_or_folder_is_made_again(own_daemon: Daemon) -> None:
    """Whoever tidies up while the daemon is down does no harm."""
    daemon = own_daemon
    daemon.play("a", success())
    daemon.stop()
    (daemon.state / "ballast").unlink()
    for path in (daemon.state / "turns").iterdir():
        subprocess.run(["rm", "-r", str(path)], check=True)
    (daemon.state / "turns").rmdir()
    daemon.boot()
    assert (daemon.state / "ballast").stat().st_blocks > 0
    assert daemon.play("b", success())["outcome"] == "completed"


def test_a_state_directory_that_others_may_read_keeps_its_content_private(make_daemon: MakeDaemon) -> None:
    """Prompts and answers are nobody else's business; systemd makes such folders 0755."""
    daemon = make_daemon()
    daemon.state.mkdir(mode=0o755)
    daemon.boot()
    daemon.play("a", success())
    readable = [path for path in daemon.state.iterdir() if path.stat().st_mode & 0o077]
    assert readable == []
