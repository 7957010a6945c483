"""Archiving earlier sessions: planned first, all or nothing, and undone whatever happened in between."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import archive
from hive_subagent_daemon.archive import Rename, Unrestored, plan_archive
from hive_subagent_daemon.errors import RefusedError


class KilledError(BaseException):
    """The daemon dies here."""


def rename_without_replacing(source: Path, target: Path) -> None:
    """Rename as the storage module promises to."""
    if os.path.lexists(target):
        raise FileExistsError(17, "File exists", str(source), None, str(target))
    source.rename(target)


class Renames:
    """Renames until the one with the given number, which fails before or after it has happened."""

    def __init__(
        self, *, fails_at: int | None = None, error: BaseException | None = None, afterwards: bool = False
    ) -> None:
        """Take what fails: the first is number 0."""
        self.fails_at = fails_at
        self.error = error or PermissionError(13, "Permission denied")
        self.afterwards = afterwards
        self.count = 0

    def rename(self, source: Path, target: Path) -> None:
        """Rename one file, or fail."""
        self.count += 1
        if self.count - 1 != self.fails_at:
            rename_without_replacing(source, target)
            return
        if self.afterwards:
            rename_without_replacing(source, target)
        raise self.error


def transcripts(folder: Path, *names: str) -> list[Path]:
    """Write one file per name with its name as content."""
    paths = [folder / f"{name}.jsonl" for name in names]
    for path in paths:
        path.write_text(path.name)
    return paths


def contents(folder: Path) -> dict[str, str]:
    """Return all files with their contents."""
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_first_free_name_is_chosen(tmp_path: Path) -> None:
    """`.archived`, then `.archived.1` and so on (decision 18); a dangling link takes a name too."""
    path, *_ = transcripts(tmp_path, "a")
    expected = [f"{path}.archived", f"{path}.archived.1", f"{path}.archived.2", f"{path}.archived.3"]
    for target in map(Path, expected):
        assert plan_archive([path]) == (Rename(path, target),)
        if target.name.endswith(".1"):
            target.symlink_to("nowhere")
        else:
            target.write_text("kept")


def test_a_plan_changes_nothing_and_names_each_transcript_once(tmp_path: Path) -> None:
    """It is stored in the turn record before anything happens."""
    a, b = transcripts(tmp_path, "a", "b")
    before = contents(tmp_path)
    assert [rename.source for rename in plan_archive([a, b, a])] == [a, b]
    assert plan_archive([]) == ()
    assert contents(tmp_path) == before


def test_all_are_renamed_and_brought_back(tmp_path: Path) -> None:
    """Content and the folder of the session stay as they are."""
    (tmp_path / "a").mkdir()
    plan = plan_archive(transcripts(tmp_path, "a", "b"))
    archive.apply(plan, Renames())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.jsonl.archived", "b.jsonl.archived"]
    assert archive.undo(plan, Renames()) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.jsonl", "b.jsonl"]


def test_both_may_be_repeated(tmp_path: Path) -> None:
    """After a crash nobody knows how far it went."""
    plan = plan_archive(transcripts(tmp_path, "a", "b"))
    before = contents(tmp_path)
    archive.apply(plan, Renames())
    done = contents(tmp_path)
    archive.apply(plan, Renames(fails_at=0))
    assert contents(tmp_path) == done
    archive.undo(plan, Renames())
    assert archive.undo(plan, Renames(fails_at=0)) == ()
    assert contents(tmp_path) == before


def test_a_transcript_that_is_gone_needs_no_archive(tmp_path: Path) -> None:
    """claude deletes transcripts after 30 days, perhaps just now."""
    a, b = transcripts(tmp_path, "a", "b")
    plan = plan_archive([a, b])
    a.unlink()
    archive.apply(plan, Renames())
    assert list(contents(tmp_path)) == ["b.jsonl.archived"]
    assert archive.undo(plan, Renames()) == ()
    assert list(contents(tmp_path)) == ["b.jsonl"]


def test_a_transcript_that_vanishes_in_the_rename_needs_no_archive(tmp_path: Path) -> None:
    """The look and the rename are not one."""
    (path,) = transcripts(tmp_path, "a")
    plan = plan_archive([path])

    class Vanishes:
        """Somebody else is quicker."""

        def rename(self, source: Path, target: Path) -> None:
            """Find no source."""
            source.unlink()
            rename_without_replacing(source, target)

    archive.apply(plan, Vanishes())
    assert contents(tmp_path) == {}


def test_a_failure_undoes_what_was_done_and_is_a_refusal_that_names_the_path(tmp_path: Path) -> None:
    """Nothing is changed by a refused call."""
    paths = transcripts(tmp_path, "a", "b", "c")
    before = contents(tmp_path)
    with pytest.raises(RefusedError, match=rf"{paths[1]} could not be archived \(Permission denied\): let "):
        archive.apply(plan_archive(paths), Renames(fails_at=1))
    assert contents(tmp_path) == before


def test_a_missing_folder_is_a_refusal_too(tmp_path: Path) -> None:
    """Any error of the file system is; here the source stays although the target cannot be."""
    (path,) = transcripts(tmp_path, "a")
    with pytest.raises(RefusedError, match="No such file or directory"):
        archive.apply([Rename(path, tmp_path / "gone" / "a")], Renames())
    assert path.exists()


def test_a_target_that_appears_after_the_plan_is_not_overwritten(tmp_path: Path) -> None:
    """The planned name stands in the turn record, so the start is refused rather than renamed otherwise."""
    a, b = transcripts(tmp_path, "a", "b")
    plan = plan_archive([a, b])
    plan[1].target.write_text("somebody else's")
    before = contents(tmp_path)
    with pytest.raises(RefusedError, match=r"b\.jsonl\.archived was taken .* start again"):
        archive.apply(plan, Renames())
    assert contents(tmp_path) == before
    archive.apply(plan_archive([a, b]), Renames())
    assert "b.jsonl.archived.1" in contents(tmp_path)


def test_undo_leaves_both_where_the_transcript_exists_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither is overwritten; it is reported, and the others come back."""
    a, b = transcripts(tmp_path, "a", "b")
    plan = plan_archive([a, b])
    archive.apply(plan, Renames())
    b.write_text("new")
    assert archive.undo(plan, Renames()) == (Unrestored(plan[1], "the transcript exists again"),)
    assert contents(tmp_path) == {"a.jsonl": "a.jsonl", "b.jsonl": "new", "b.jsonl.archived": "b.jsonl"}
    assert str(plan[1].target) in caplog.text


def test_undo_goes_on_after_an_error(tmp_path: Path) -> None:
    """One that cannot be brought back is reported and may be tried again."""
    plan = plan_archive(transcripts(tmp_path, "a", "b"))
    archive.apply(plan, Renames())
    assert archive.undo(plan, Renames(fails_at=0)) == (Unrestored(plan[1], "Permission denied"),)
    assert sorted(contents(tmp_path)) == ["a.jsonl", "b.jsonl.archived"]
    assert archive.undo(plan, Renames()) == ()
    assert sorted(contents(tmp_path)) == ["a.jsonl", "b.jsonl"]


FAILURES = st.builds(
    Renames,
    fails_at=st.integers(0, 5),
    error=st.sampled_from([KilledError(), OSError(5, "Input/output error"), PermissionError(13, "denied")]),
    afterwards=st.booleans(),
)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), FAILURES, FAILURES)
def test_after_a_failure_at_any_step_the_rest_can_be_done_or_undone(
    tmp_path_factory: pytest.TempPathFactory, taken: list[int], first: Renames, second: Renames
) -> None:
    """Nothing is lost or overwritten, wherever the archive and then its undo are cut off."""
    folder = tmp_path_factory.mktemp("archive")
    paths = transcripts(folder, *(f"session-{number}" for number in range(len(taken))))
    for path, count in zip(paths, taken, strict=True):
        for suffix in (".archived", ".archived.1")[:count]:
            Path(f"{path}{suffix}").write_text(f"kept {path.name}{suffix}")
    before = contents(folder)
    plan = plan_archive(paths)
    try:
        archive.apply(plan, first)
    except RefusedError:
        assert contents(folder) == before
    except KilledError:
        assert sorted(contents(folder).values()) == sorted(before.values())
    with contextlib.suppress(KilledError):
        archive.undo(plan, second)
    assert archive.undo(plan, Renames()) == ()
    assert contents(folder) == before
    archive.apply(plan, Renames())
    assert sorted(contents(folder).values()) == sorted(before.values())
    assert not any(path.exists() for path in paths)
