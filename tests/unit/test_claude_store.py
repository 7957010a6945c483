"""Which sessions in a project folder carry a title, whatever happens in that folder meanwhile."""

from __future__ import annotations

import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.claude_store import ClaudeStore
from hive_subagent_daemon.errors import RefusedError
from tests.support.other_user import as_user, needs_root

if TYPE_CHECKING:
    from pathlib import Path


class Folder:
    """A project folder with transcripts."""

    def __init__(self, root: Path) -> None:
        """Make it below `root`, which is also the working directory."""
        self.work = root
        self.store = ClaudeStore({"HOME": str(root)})
        self.path = self.store.project_folder(root)
        self.path.mkdir(parents=True)

    def write(self, title: str, name: str = "") -> Path:
        """Write a transcript with a title and return its path."""
        path = self.path / (name or f"{uuid.uuid4()}.jsonl")
        path.write_text(record(title))
        return path

    def titled(self, title: str) -> list[Path]:
        """Return what the store finds."""
        return self.store.titled(title, self.work)


def record(title: str) -> str:
    """Return a title record as claude writes it."""
    return (
        json.dumps({"type": "custom-title", "customTitle": title, "sessionId": "x"}, separators=(",", ":"))
        + "\n"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return an empty project folder."""
    return Folder(tmp_path)


def test_every_transcript_with_the_title_is_found(folder: Folder) -> None:
    """More than one is what makes `--resume` by title ambiguous."""
    expected = sorted([folder.write("worker"), folder.write(" Worker ")])
    folder.write("worker2")
    assert folder.titled("worker") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0a5e0e2c-9f36-4d7b-8f31-0c1e6a5b7d21.jsonl", True),
        ("0A5E0E2C-9F36-4D7B-8F31-0C1E6A5B7D21.jsonl", True),
        ("00000000-0000-0000-0000-000000000000.jsonl", True),
        ("0a5e0e2c9f364d7b8f310c1e6a5b7d21.jsonl", False),
        ("0a5e0e2c-9f36-4d7b-8f31-0c1e6a5b7d21.JSONL-", False),
        ("0a5e0e2c-9f36-4d7b-8f31-0c1e6a5b7d21.jsonl.archived", False),
        ("x0a5e0e2c-9f36-4d7b-8f31-0c1e6a5b7d21.jsonl", False),
        ("abc.jsonl", False),
        ("agent-12.jsonl", False),
    ],
)
def test_only_files_named_like_a_session_count(folder: Folder, name: str, expected: bool) -> None:
    """As measured: any UUID in upper or lower case."""
    path = folder.write("worker", name)
    assert folder.titled("worker") == ([path] if expected else [])


def test_what_is_no_regular_file_is_passed_over_without_waiting(folder: Folder, tmp_path: Path) -> None:
    """claude follows no links there either; a FIFO must not hang a start."""
    path = folder.write("worker")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(record("worker"))
    (folder.path / f"{uuid.uuid4()}.jsonl").symlink_to(elsewhere)
    (folder.path / f"{uuid.uuid4()}.jsonl").mkdir()
    os.mkfifo(folder.path / f"{uuid.uuid4()}.jsonl")
    assert folder.titled("worker") == [path]


def test_a_folder_that_does_not_exist_has_no_sessions(tmp_path: Path) -> None:
    """The first start in a directory."""
    store = ClaudeStore({"HOME": str(tmp_path)})
    assert store.titled("worker", tmp_path) == []
    (tmp_path / ".claude").write_text("not a folder")
    assert store.titled("worker", tmp_path) == []
    store.warm(tmp_path)


def test_what_changes_after_the_first_look_is_seen(folder: Folder) -> None:
    """Appended, rewritten, renamed away, deleted and new transcripts."""
    path, other = folder.write("worker"), folder.write("other")
    assert folder.titled("worker") == [path]
    with path.open("a") as stream:
        stream.write(record("renamed"))
    other.write_text(record("worker"))
    assert folder.titled("worker") == [other]
    assert folder.titled("renamed") == [path]
    other.rename(f"{other}.archived")
    path.unlink()
    third = folder.write("worker")
    assert folder.titled("worker") == [third]
    assert folder.titled("renamed") == []


def test_a_transcript_that_did_not_change_is_not_read_again(folder: Folder) -> None:
    """With 500 large transcripts a start must not become slow: a warm look opens no file."""
    path = folder.write("worker")
    folder.store.warm(folder.work)
    before = path.stat()
    path.write_text(record("others"))  # the same length
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert folder.titled("worker") == [path]


def test_a_change_of_length_or_of_time_alone_is_seen(folder: Folder) -> None:
    """A file system with coarse times shows an append by the length only."""
    path = folder.write("worker")
    before = path.stat()
    assert folder.titled("worker") == [path]
    path.write_text(record("others"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    assert folder.titled("others") == [path]
    with path.open("a") as stream:
        stream.write(record("worker"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    assert folder.titled("worker") == [path]


def test_a_folder_that_goes_and_comes_back_is_read_anew(folder: Folder) -> None:
    """Nothing is remembered of files that are no more."""
    folder.write("worker").unlink()
    path = folder.write("worker")
    assert folder.titled("worker") == [path]
    path.unlink()
    folder.path.rmdir()
    assert folder.titled("worker") == []
    folder.path.mkdir()
    assert folder.titled("worker") == []


def test_the_end_of_a_large_transcript_counts_before_its_beginning(folder: Folder) -> None:
    """And nothing between the two is read."""
    path = folder.write("beginning")
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "x" * 1000}}) + "\n"
    with path.open("a") as stream:
        stream.write(line * 100 + record("middle") + line * 100)
    assert folder.titled("beginning") == [path]
    with path.open("a") as stream:
        stream.write(record("end") + line)
    assert [folder.titled(title) for title in ("beginning", "middle", "end")] == [[], [], [path]]


PIECES = [
    record("alpha"),
    record("beta"),
    "x" * 40_000 + "\n",
    '{"type":"custom-title","customTitle":"al',
    "\n",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=3), min_size=1, max_size=6))
def test_a_transcript_that_grows_has_the_titles_of_one_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[str]]
) -> None:
    """Whatever is remembered between the steps makes no difference."""
    folder = Folder(tmp_path_factory.mktemp("grows"))
    path = folder.path / f"{uuid.uuid4()}.jsonl"
    for step in steps:
        with path.open("a") as stream:
            stream.write("".join(step))
        fresh = ClaudeStore({"HOME": str(folder.work)})
        for title in ("alpha", "beta"):
            assert folder.titled(title) == fresh.titled(title, folder.work)


def test_many_threads_get_the_same_answer(folder: Folder) -> None:
    """Starts run in worker threads, and the warm-up runs beside them."""
    expected = sorted(folder.write(f"worker-{number % 5}") for number in range(0, 100, 5))
    for number in range(100):
        folder.write(f"worker-{number % 5 or 7}")

    def look(number: int) -> list[Path]:
        if number % 3 == 0:
            folder.store.warm(folder.work)
        return folder.titled("WORKER-0")

    with ThreadPoolExecutor(8) as threads:
        assert all(found == expected for found in threads.map(look, range(40)))


def test_many_directories_do_not_fill_the_memory(tmp_path: Path) -> None:
    """The folders looked at longest ago are forgotten, and read again when they come back."""
    store = ClaudeStore({"HOME": str(tmp_path)})
    for number in range(200):
        directory = tmp_path / str(number)
        folder = store.project_folder(directory)
        folder.mkdir(parents=True)
        (folder / f"{uuid.UUID(int=number)}.jsonl").write_text(record("worker"))
        assert len(store.titled("worker", directory)) == 1
    assert len(store.titled("worker", tmp_path / "0")) == 1
    assert repr(store).endswith(" 64 folders remembered>")


def test_a_project_folder_that_cannot_be_read_refuses_the_start(folder: Folder) -> None:
    """Silence could leave a second session with the title; the refusal names the folder."""
    folder.path.rmdir()
    folder.path.symlink_to(folder.path)
    with pytest.raises(RefusedError, match=f"{folder.path} cannot be read .*readable"):
        folder.titled("worker")
    folder.store.warm(folder.work)


@needs_root
def test_a_transcript_of_another_user_is_passed_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    """claude cannot read it either; it is looked at again when it has become readable."""
    folder = Folder(tmp_path_factory.mktemp("shared"))
    for path in (folder.path, *folder.path.parents[: len(folder.path.relative_to("/").parts) - 2]):
        path.chmod(0o755)
    hidden = folder.write("worker")
    hidden.chmod(0o600)

    def look() -> bytes:
        before = len(folder.titled("worker"))
        os.write(asked, b".")
        os.read(allowed, 1)
        return f"{before}, then {len(folder.titled('worker'))}".encode()

    question, asked = os.pipe()
    allowed, answer = os.pipe()
    with as_user(look) as other:
        assert os.read(question, 1) == b"."
        hidden.chmod(0o644)
        os.write(answer, b".")
        assert other.result() == b"0, then 1"
    for descriptor in (question, asked, allowed, answer):
        os.close(descriptor)
