"""From a request to a running turn: a refused one leaves nothing behind, whatever it had prepared."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive_subagent_daemon.config_values import Limits
from hive_subagent_daemon.errors import RefusedError
from tests.unit.support_turns import NO_SPACE, Parts, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use the parts with an earlier session of the name that tests start."""
    made = Parts(tmp_path)
    made.earlier_session()
    return made


def record_of(parts: Parts) -> dict[str, Any]:
    """Return the record of the only turn on disk."""
    [folder] = (parts.state / "turns").iterdir()
    content: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return content


def make_fifo(parts: Parts) -> None:
    """Put a FIFO where the prompt file should be: it would block whoever opens it."""
    os.mkfifo(parts.work / "fifo")


def make_large(parts: Parts) -> None:
    """Make a prompt file one byte above the limit."""
    with (parts.work / "large.md").open("wb") as file:
        file.truncate(101)


def remove_claude(parts: Parts) -> None:
    """Let the program be gone."""
    (parts.folder / "claude").unlink()


def forbid_claude(parts: Parts) -> None:
    """Let the program not be executable."""
    (parts.folder / "claude").chmod(0o644)


def use_session(parts: Parts) -> None:
    """Let the earlier session be live outside of the daemon."""
    sessions = parts.home / ".claude" / "sessions"
    sessions.mkdir()
    [transcript] = parts.project.iterdir()
    start = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    entry = {"pid": os.getpid(), "sessionId": transcript.stem, "procStart": start, "cwd": str(parts.work)}
    (sessions / f"{os.getpid()}.json").write_text(json.dumps(entry))


def nothing(parts: Parts) -> None:
    """Let everything be as usual."""
    assert parts.files()


PLANS = [
    pytest.param(nothing, {"prompt_file": "missing.md"}, "missing.md", id="no-prompt-file"),
    pytest.param(make_fifo, {"prompt_file": "fifo"}, "not a regular file", id="fifo"),
    pytest.param(nothing, {"prompt_file": "."}, "not a regular file", id="folder-as-prompt-file"),
    pytest.param(make_large, {"prompt_file": "large.md"}, "at most 100", id="large-prompt-file"),
    pytest.param(nothing, {"dir": "gone"}, "does not exist", id="no-dir"),
    pytest.param(nothing, {"dir": "recipe.md"}, "not a directory", id="file-as-dir"),
    pytest.param(remove_claude, {}, "does not exist", id="no-claude"),
    pytest.param(forbid_claude, {}, "not executable", id="forbidden-claude"),
    pytest.param(use_session, {}, "running now outside this daemon", id="live-session"),
]


@pytest.mark.parametrize(("prepare", "arguments", "reason"), PLANS)
async def test_a_start_that_cannot_be_planned_touches_nothing(
    tmp_path: Path, prepare: Callable[[Parts], None], arguments: dict[str, str], reason: str
) -> None:
    """It is refused before the first write, and the launcher is not asked."""
    parts = Parts(tmp_path, limits=Limits(max_prompt_bytes=100))
    parts.earlier_session()
    prepare(parts)
    before, descriptors = parts.files(), open_descriptors()
    async with parts.running():
        with pytest.raises(RefusedError, match=reason):
            await parts.start(**arguments)
    assert parts.files() == before
    assert open_descriptors() == descriptors
    assert parts.launcher.specs == []


def no_process(parts: Parts) -> None:
    """Let the system create no process."""
    parts.launcher.fails = "create"


def no_exec(parts: Parts) -> None:
    """Let the recorded process not execute the program."""
    parts.launcher.fails = "exec"


def no_scope(parts: Parts) -> None:
    """Let systemd make no scope for the process."""
    parts.launcher.fails = "place"


def full_at_the_record(parts: Parts) -> None:
    """Let the disk be full for the record of the turn."""
    parts.storage.broken = "turns"


def full_at_the_prompt(parts: Parts) -> None:
    """Let the disk be full for the prompt copy, after the record was written."""
    parts.storage.broken = "prompts"


def full_at_the_gate(parts: Parts) -> None:
    """Let the disk be full when the pid is recorded."""
    parts.launcher.created = lambda: full_at_the_record(parts)


def archive_refused(parts: Parts) -> None:
    """Let the second of two earlier sessions not be renamed."""
    parts.storage.fixed = parts.earlier_session(number=2)


FAILURES = [
    no_process,
    no_exec,
    no_scope,
    full_at_the_record,
    full_at_the_prompt,
    full_at_the_gate,
    archive_refused,
]


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("fail", FAILURES, ids=[fail.__name__ for fail in FAILURES])
async def test_a_start_that_fails_on_the_way_leaves_nothing_behind(
    parts: Parts, fail: Callable[[Parts], None], *, known: bool
) -> None:
    """No prompt copy, no turn folder, no archive, no open file; what was remembered stays."""
    async with parts.running():
        if known:
            await parts.play()
        fail(parts)
        before, descriptors = parts.files(), open_descriptors()
        remembered = dict(parts.known)
        with pytest.raises(RefusedError):
            await parts.start()
        assert parts.files() == before
        assert open_descriptors() == descriptors
        assert parts.known == remembered
        assert parts.registry.running == {}
        parts.heal()
        await parts.play()


async def test_the_refusal_of_a_full_disk_says_so(parts: Parts) -> None:
    """Not that claude could not be executed."""
    full_at_the_gate(parts)
    async with parts.running():
        with pytest.raises(RefusedError) as refused:
            await parts.start()
    assert str(NO_SPACE.strerror) in str(refused.value)
    assert "could not be executed" not in str(refused.value)


async def test_a_turn_is_recorded_whole_before_its_process_executes_anything(parts: Parts) -> None:
    """At the gate the record has the pid and the archive, and everything the child needs is there."""
    seen: list[dict[str, Any]] = []
    scopes: list[str] = []
    [transcript] = parts.project.iterdir()

    def look() -> None:
        """Take note of the record and of what is there."""
        assert not transcript.exists()
        assert parts.launcher.specs[-1].stdin.read_bytes()
        seen.append(record_of(parts))

    parts.launcher.at_the_gate = look
    parts.launcher.created = lambda: scopes.append(record_of(parts)["scope"])
    parts.launcher.scopes = True
    parts.launcher.limit = 4096
    async with parts.running():
        answer = await parts.start()
    [record] = seen
    assert scopes == [answer["scope"]]  # by it the units are found again, should the daemon die now
    assert (record["scope"], record["memory_limit_bytes"]) == (answer["scope"], 4096)
    assert record["cgroup"] == f"/unit-{answer['turn']}.slice"  # by it, also without a manager
    assert (record["pid"], record["pid_start"]) == (answer["pid"], 7)
    assert record["archived"] == [{"source": str(transcript), "target": f"{transcript}.archived"}]
    assert record["turn"] == answer["turn"]
    assert record["prompt_copy"]


async def test_what_is_written_for_a_turn_is_private(parts: Parts) -> None:
    """Folders 0700, files 0600, whatever the umask of the daemon."""
    async with parts.running():
        await parts.start()
        for path in [*(parts.state / "turns").rglob("*"), *(parts.state / "prompts").iterdir()]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


async def test_an_undo_that_fails_still_refuses_and_frees_the_name(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    """What is left is reported in the log, and undone before the next turn of the name."""
    parts.launcher.fails = "exec"
    parts.storage.removals_fail = True
    async with parts.running():
        with pytest.raises(RefusedError):
            await parts.start()
        assert "could not be undone" in caplog.text
        parts.launcher.fails = None
        with pytest.raises(RefusedError, match="cannot be undone yet"):
            await parts.start()
        parts.heal()
        await parts.play()
    assert list((parts.state / "turns").iterdir()) == []


async def test_a_new_turn_sorts_after_the_last_known_one_though_the_clock_was_set_back(parts: Parts) -> None:
    """Order of ids is order of turns (decision 19)."""
    parts.spawner.continue_ids_after("29991231_235959_999_ffff")
    async with parts.running():
        first = await parts.play()
        second = await parts.play()
    assert "29991231_235959_999_ffff" < first < second


async def test_a_continue_passes_on_what_is_remembered(parts: Parts) -> None:
    """Session, directory, model and the private copy of the instructions."""
    other = parts.work / "other"
    other.mkdir()
    (other / "recipe.md").write_text("Be quick.\n")
    async with parts.running():
        started = await parts.start(model="opus", dir="other")
        parts.launcher.children[-1].succeed()
        await parts.ended(started["turn"])
        (other / "recipe.md").unlink()
        await parts.resume()
    first, second = (spec.argv for spec in parts.launcher.specs)
    [copy] = (parts.state / "prompts").iterdir()
    assert copy.read_text() == "Be quick.\n"
    assert f"--session-id={started['session_id']}" in first
    assert f"--resume={started['session_id']}" in second
    for argv in (first, second):
        assert {f"--append-system-prompt-file={copy}", "--model=opus"} <= set(argv)
    assert [spec.dir for spec in parts.launcher.specs] == [other, other]


async def test_a_name_that_nobody_remembers_is_continued_by_its_title(parts: Parts) -> None:
    """claude is the authority on whether there is such a session."""
    async with parts.running():
        answer = await parts.resume("stranger")
    [spec] = parts.launcher.specs
    assert "--resume=stranger" in spec.argv
    assert not any(word.startswith("--append-system-prompt-file") for word in spec.argv)
    assert answer["session_id"] is None


async def test_another_start_takes_the_place_of_the_instructions(parts: Parts) -> None:
    """Of a name there is one prompt copy, the newest one's."""
    async with parts.running():
        await parts.play()
        (parts.work / "recipe.md").write_text("Be new.\n")
        await parts.play()
        [copy] = (parts.state / "prompts").iterdir()
    assert copy.read_text() == "Be new.\n"
