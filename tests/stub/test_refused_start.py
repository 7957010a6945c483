"""Starts that must be refused: nothing is spawned, archived or changed, and the daemon lives on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.steps import endless, init, result, success
from tests.support.daemon_harness import WITHOUT_OVERRIDE, Setting
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon


def make_fifo(path: Path) -> None:
    """Put a FIFO there, on which a reader would hang for ever."""
    os.mkfifo(path)


def make_device_link(path: Path) -> None:
    """Put a link to an endless device there."""
    path.symlink_to("/dev/zero")


def make_large_file(path: Path) -> None:
    """Put a sparse file of 100 MB there."""
    path.touch()
    os.truncate(path, 100_000_000)


def make_one_too_large(path: Path) -> None:
    """Put a file one byte above the limit there."""
    path.write_bytes(b"x" * 10_000_001)


def make_empty_folder(path: Path) -> None:
    """Put a folder there."""
    path.mkdir()


def make_nothing(path: Path) -> None:
    """Leave the place empty."""
    path.unlink(missing_ok=True)


def make_loop(path: Path) -> None:
    """Put a link to itself there."""
    path.symlink_to(path)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make_fifo, id="facts-10-a-fifo-hangs-for-ever"),
        pytest.param(make_empty_folder, id="facts-7-a-folder"),
        pytest.param(make_nothing, id="facts-7-not-there"),
        pytest.param(make_large_file, id="case-G5-100-MB"),
        pytest.param(make_one_too_large, id="case-G5-one-byte-too-large"),
        pytest.param(make_device_link, id="a-device"),
        pytest.param(make_loop, id="a-link-to-itself"),
    ],
)
def test_a_prompt_file_that_cannot_be_used_is_refused_at_once(
    daemon: Daemon, name: str, make: Callable[[Path], None]
) -> None:
    """The refusal names the file; a name that was free stays free."""
    path = daemon.work / f"{name}.md"
    make(path)
    before = daemon.turn_folders()
    answer = daemon.call("start", name=name, prompt_file=str(path))
    assert answer.is_error
    assert str(path) in answer.text
    assert answer.seconds < 2
    assert daemon.turn_folders() == before
    assert daemon.status_of(name)["state"] == "unknown"
    assert daemon.play(name, success())["outcome"] == "completed"


@about("facts-7-eacces")
def test_an_unreadable_prompt_file_is_refused(make_daemon: MakeDaemon) -> None:
    """The reason is named."""
    daemon = make_daemon(Setting(prefix=WITHOUT_OVERRIDE)).boot()
    recipe = daemon.work / "secret.md"
    recipe.write_text("x")
    recipe.chmod(0o000)
    text = daemon.refused("start", name="a", prompt_file=str(recipe))
    assert str(recipe) in text
    assert "denied" in text or "not readable" in text or "permission" in text.lower()
    assert daemon.play("a", success())["outcome"] == "completed"


@about("decision-8")
@pytest.mark.parametrize("wrong", ["not-there", "recipe.md"])
def test_a_directory_that_is_none_is_refused_and_named(daemon: Daemon, name: str, wrong: str) -> None:
    """Both tools say which directory does not exist."""
    path = str(daemon.work / wrong)
    recipe = str(daemon.work / "recipe.md")
    assert path in daemon.refused("start", name=name, prompt_file=recipe, dir=path)
    assert path in daemon.refused("start", name=name, prompt_file=recipe, dir=wrong)
    assert path in daemon.refused("continue", name=name, prompt="x", dir=path)


@about("facts-6-cwd-deleted")
def test_a_working_directory_that_was_deleted_is_refused_until_it_is_back(daemon: Daemon, name: str) -> None:
    """No turn is made of it, and the remembered directory counts."""
    place = daemon.work / f"place-{name}"
    place.mkdir()
    daemon.play(name, success("one"), success("two"), dir=str(place))
    place.rmdir()
    assert str(place) in daemon.refused("continue", name=name, prompt="x")
    assert len(daemon.loose_ends(name)) == 1
    place.mkdir()
    assert daemon.resume(name)["text"] == "two"


@about("case-G5")
@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("", id="facts-5-empty-stdin"),
        pytest.param(" \t\r\n\u00a0 ", id="facts-5-whitespace-only"),
        pytest.param("x" * 10_000_001, id="facts-5-over-10-MB"),
        pytest.param("\u00e9" * 5_000_001, id="facts-5-bytes-count-not-characters"),
    ],
)
def test_an_empty_or_too_large_prompt_is_refused(daemon: Daemon, name: str, prompt: str) -> None:
    """The refusal is clear and nothing is spawned."""
    daemon.play(name, success())
    before = daemon.turn_folders()
    text = daemon.refused("continue", name=name, prompt=prompt)
    assert "prompt" in text
    assert daemon.turn_folders() == before
    if prompt.strip():
        recipe = str(daemon.work / "recipe.md")
        assert "trigger" in daemon.refused("start", name=name, prompt_file=recipe, trigger=prompt)


@about("decision-10")
def test_max_prompt_bytes_may_lower_the_limit(make_daemon: MakeDaemon) -> None:
    """It holds for prompts and prompt files; the refusal names the limit."""
    daemon = make_daemon(Setting(limits={"max_prompt_bytes": 1000})).boot()
    big = daemon.work / "big.md"
    big.write_bytes(b"x" * 1001)
    daemon.play("a", success())
    for text in (
        daemon.refused("continue", name="a", prompt="x" * 1001),
        daemon.refused("start", name="a", prompt_file=str(big)),
    ):
        assert "1,000" in text or "1000" in text
    assert daemon.resume("a", "x" * 1000)["outcome"] == "completed"


def unlink(program: Path) -> None:
    """Take the program away."""
    program.unlink()


def make_not_executable(program: Path) -> None:
    """Take the right to execute it away."""
    program.chmod(0o644)


def make_folder(program: Path) -> None:
    """Put a folder in its place."""
    program.unlink()
    program.mkdir()


def make_bad_interpreter(program: Path) -> None:
    """Let it ask for an interpreter that does not exist."""
    program.write_text("#!/no/such/interpreter\n")


def make_garbage(program: Path) -> None:
    """Make it a file that the kernel cannot execute."""
    program.write_bytes(b"\x7fELFgarbage")


@about("decision-7")
@pytest.mark.parametrize(
    "spoil", [unlink, make_not_executable, make_folder, make_bad_interpreter, make_garbage]
)
def test_a_claude_that_cannot_be_executed_is_a_refused_call(
    make_daemon: MakeDaemon, own_claude: Path, spoil: Callable[[Path], None]
) -> None:
    """Nothing is archived, there is no turn and no loose end, and later calls work again."""
    daemon = make_daemon(claude=own_claude).boot()
    content = own_claude.read_bytes()
    daemon.play("a", success())
    before = daemon.transcripts()
    spoil(own_claude)
    recipe = str(daemon.work / "recipe.md")
    assert str(own_claude) in daemon.refused("start", name="a", prompt_file=recipe)
    assert str(own_claude) in daemon.refused("continue", name="a", prompt="x")
    assert daemon.transcripts() == before, "the archive of the earlier session must be undone"
    assert len(daemon.loose_ends("a")) == 1
    assert daemon.status_of("a")["state"] == "idle"
    if own_claude.is_dir():
        own_claude.rmdir()
    own_claude.write_bytes(content)
    own_claude.chmod(0o755)
    assert daemon.resume("a")["outcome"] == "completed"


def test_a_daemon_whose_claude_is_missing_at_start_up_still_serves(
    make_daemon: MakeDaemon, own_claude: Path
) -> None:
    """It says so in each refusal, and works once claude is there."""
    content = own_claude.read_bytes()
    own_claude.unlink()
    daemon = make_daemon(claude=own_claude).boot()
    recipe = str(daemon.work / "recipe.md")
    assert str(own_claude) in daemon.refused("start", name="a", prompt_file=recipe)
    own_claude.write_bytes(content)
    own_claude.chmod(0o755)
    assert daemon.play("a", success())["outcome"] == "completed"


@about("decision-7")
def test_a_short_turn_that_ends_with_126_or_127_is_a_turn(daemon: Daemon, name: str) -> None:
    """Only the gate's own marker makes such a code a refused call."""
    end = daemon.play(name, [init(), {"do": "exit", "code": 127}])
    assert end["outcome"] == "failed"
    end = daemon.play(name, [{"do": "exit", "code": 126}])
    assert end["outcome"] == "failed"


def test_a_refused_start_leaves_the_running_turn_alone(daemon: Daemon, name: str) -> None:
    """It goes on and ends as it would have."""
    daemon.start(name, endless(), [init(), result()])
    pid = daemon.status_of(name)["turn"]
    daemon.refused("start", name=name, prompt_file=str(daemon.work / "nothing.md"))
    daemon.refused("continue", name=name, prompt="more")
    assert daemon.status_of(name)["turn"] == pid
    daemon.ok("interrupt", name=name, force=True)
    eventually(lambda: daemon.status_of(name)["state"] == "killed")
