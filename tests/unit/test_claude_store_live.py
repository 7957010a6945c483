"""Which sessions a running claude holds, from its registry `sessions/<pid>.json`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import procfs
from hive_subagent_daemon.claude_store import ClaudeStore
from hive_subagent_daemon.live_sessions import LiveSession, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SID = "e66b3f17-15ec-4d37-ad47-2f01dadc9f94"
LIMIT_SECONDS = 30.0


def entry(process: procfs.Process, **changed: object) -> dict[str, object]:
    """Return an entry as claude 2.1.197 writes it; a field changed to None is left out."""
    written: dict[str, object] = {
        "pid": process.pid,
        "sessionId": SID,
        "cwd": "/tmp/slug/live",
        "startedAt": int(time.time() * 1000),
        "procStart": str(process.start),
        "version": "2.1.197",
        "peerProtocol": 1,
        "kind": "interactive",
        "entrypoint": "sdk-cli",
        "name": "Live One",
        "updatedAt": 1796053714301,
    }
    return {key: value for key, value in {**written, **changed}.items() if value is not None}


@pytest.fixture
def me() -> procfs.Process:
    """Return this process."""
    process = procfs.process(os.getpid())
    assert process is not None
    return process


def write(folder: Path, content: dict[str, object], pid: int) -> None:
    """Write one entry of the registry."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{pid}.json").write_text(json.dumps(content))


def test_an_entry_of_a_running_process_is_a_live_session(tmp_path: Path, me: procfs.Process) -> None:
    """`procStart` is field 22 of /proc/PID/stat as text."""
    write(tmp_path / ".claude" / "sessions", entry(me), me.pid)
    store = ClaudeStore({"HOME": str(tmp_path)})
    assert store.live_sessions() == [LiveSession(me.pid, SID, "/tmp/slug/live", "Live One")]


def test_the_registry_is_that_of_the_config_directory(tmp_path: Path, me: procfs.Process) -> None:
    """CLAUDE_CONFIG_DIR moves it too; a relative one depends on the directory."""
    write(tmp_path / "c" / "sessions", entry(me), me.pid)
    assert ClaudeStore({"HOME": str(tmp_path)}).live_sessions() == []
    assert len(ClaudeStore({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}).live_sessions()) == 1
    assert len(ClaudeStore({"CLAUDE_CONFIG_DIR": "c"}).live_sessions(tmp_path)) == 1


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Return a child that lives until it is killed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def test_an_entry_left_behind_by_a_killed_process_is_stale(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    """Also while the process waits to be reaped, as one of our own turns does for a moment."""
    process = procfs.process(child.pid)
    assert process is not None
    write(tmp_path, entry(process), child.pid)
    assert [session.pid for session in read(tmp_path)] == [child.pid]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = procfs.process(child.pid)
    assert zombie is not None
    assert zombie.dead
    assert read(tmp_path) == []
    child.wait(LIMIT_SECONDS)
    assert read(tmp_path) == []


@pytest.mark.parametrize("start", ["1", "", "Mon Nov 30 15:48:34 2026", [], {}, True])
def test_an_entry_whose_process_id_was_reused_is_stale(
    tmp_path: Path, me: procfs.Process, start: object
) -> None:
    """The start time guards against it."""
    write(tmp_path, entry(me, procStart=start), me.pid)
    assert read(tmp_path) == []


@pytest.mark.parametrize(
    ("written_at", "expected"), [("now", True), ("before this process", False), (None, True), ("text", True)]
)
def test_an_entry_without_a_start_time_counts_when_its_process_was_there_before_it(
    tmp_path: Path, me: procfs.Process, written_at: str | None, expected: bool
) -> None:
    """A live session that is archived loses its history, so doubt counts as life."""
    now = int(time.time() * 1000)
    times: dict[str | None, object] = {"now": now, "before this process": now - 7 * 86_400_000, "text": "x"}
    write(tmp_path, entry(me, procStart=None, startedAt=times.get(written_at)), me.pid)
    assert bool(read(tmp_path)) is expected


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"pid": 1, "sess',
        '{"sessionId": 5}',
        "[" * 100_000,
        "\udcff\udcfe",
        "9" * 5000,
    ],
)
def test_damaged_entries_are_skipped(tmp_path: Path, me: procfs.Process, content: str) -> None:
    """Half-written files of other claude processes harm nobody."""
    (tmp_path / f"{me.pid}.json").write_text(content, errors="surrogateescape")
    write(tmp_path, {"sessionId": SID}, 999_999_999)
    assert read(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["x.json", "12.json.tmp", "-1.json", "1" * 30 + ".json", "\u0661.json", ".json"]
)
def test_files_of_other_names_are_passed_over(tmp_path: Path, me: procfs.Process, name: str) -> None:
    """Newer releases keep further files there (`<pid>.<hash>.key`)."""
    write(tmp_path, entry(me), me.pid)
    (tmp_path / name).write_text(json.dumps(entry(me, sessionId="other")))
    (tmp_path / "1.json").mkdir()
    os.mkfifo(tmp_path / "2.json")
    assert [session.session_id for session in read(tmp_path)] == [SID]


def test_there_are_no_live_sessions_without_a_registry(tmp_path: Path) -> None:
    """claude makes the folder with its first session."""
    assert read(tmp_path / "sessions") == []
    (tmp_path / "file").write_text("")
    assert read(tmp_path / "file") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["sessionId", "procStart", "startedAt", "cwd", "name"]), JSON))
def test_fields_of_any_type_are_no_error(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    """The registry belongs to somebody else."""
    folder = tmp_path_factory.mktemp("sessions")
    write(folder, content, os.getpid())
    for session in read(folder):
        assert isinstance(session.session_id, str)
        assert session.name is None or isinstance(session.name, str)
