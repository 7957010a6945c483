"""Durable operations: whole files after a crash, nothing overwritten, possible on a full disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import storage as storage_module
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.storage import FREE_BYTES_TO_START, Storage, give_back, open_state_dir
from tests.unit.support_output import on_tmpfs
from tests.unit.support_storage import OTHER_HOLDER, WRITER, Crash, Faults, ending, other_python

if TYPE_CHECKING:
    from collections.abc import Iterator

BALLAST_BYTES = 1_000_000
MIB = 1024 * 1024


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Let chosen system calls of the storage fail."""
    return Faults(monkeypatch)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Use a state directory that is a fresh folder."""
    return Storage(tmp_path, ballast_bytes=BALLAST_BYTES)


def names_in(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


# Writing


def test_a_file_is_replaced_as_a_whole_and_private(storage: Storage) -> None:
    path = storage.root / "f"
    before = os.umask(0)
    try:
        for content in (b"old" * 1_000, b"new"):
            storage.write(path, content)
            assert path.read_bytes() == content
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names_in(storage.root) == ["f"]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "fsync folder"])
def test_a_crash_at_any_moment_of_a_write_leaves_the_old_or_the_new_content(
    storage: Storage, faults: Faults, call: str
) -> None:
    path = storage.root / "f"
    storage.write(path, b"old" * 50_000)
    faults.set(call, Crash())
    with pytest.raises(Crash):
        storage.write(path, b"new" * 50_000)
    assert path.read_bytes() in (b"old" * 50_000, b"new" * 50_000)
    assert (path.read_bytes()[:3] == b"new") == (call == "fsync folder")


def test_a_file_is_on_the_disk_before_it_takes_the_name_and_the_name_before_the_write_returns(
    storage: Storage, faults: Faults
) -> None:
    storage.write(storage.root / "f", b"content")
    assert faults.calls == ["open", "write", "fsync", "rename", "open folder", "fsync folder"]


def test_a_process_that_is_killed_while_it_writes_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for _ in range(4):
        with other_python(WRITER, str(path)) as writer:
            for _ in range(20):
                writer.wait_for_line()
        content = path.read_bytes()
        assert len(content) == 300_000
        assert len(set(content)) == 1


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    storage: Storage, faults: Faults, call: str, number: int
) -> None:
    path = storage.root / "f"
    storage.write(path, b"old")
    faults.set(call, OSError(number, os.strerror(number)))
    with pytest.raises(OSError, match=os.strerror(number)):
        storage.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert names_in(storage.root) == ["f"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL])
def test_a_folder_that_cannot_be_synced_is_an_error_only_where_it_matters(
    storage: Storage, faults: Faults, number: int
) -> None:
    """Some network file systems cannot sync a folder at all."""
    faults.set("fsync folder", OSError(number, os.strerror(number)))
    if number == errno.EINVAL:
        storage.write(storage.root / "f", b"new")
        assert (storage.root / "f").read_bytes() == b"new"
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            storage.write(storage.root / "f", b"new")


# The ballast


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_on_a_full_disk_the_ballast_makes_room_for_what_must_not_be_lost(
    storage: Storage, faults: Faults, call: str, number: int
) -> None:
    storage.restore_ballast()
    ballast = storage.root / "ballast"
    faults.set(call, OSError(number, os.strerror(number)), while_exists=ballast)
    storage.write(storage.root / "f", b"new")
    assert (storage.root / "f").read_bytes() == b"new"
    assert not ballast.exists()


def test_an_error_that_is_not_about_room_keeps_the_ballast(storage: Storage, faults: Faults) -> None:
    storage.restore_ballast()
    faults.set("fsync", OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        storage.write(storage.root / "f", b"new")
    assert (storage.root / "ballast").exists()


def test_the_ballast_takes_real_room_and_is_restored_when_there_is_some(storage: Storage) -> None:
    storage.restore_ballast()
    ballast = storage.root / "ballast"
    assert ballast.stat().st_blocks * 512 >= BALLAST_BYTES
    ballast.unlink()
    storage.restore_ballast()
    assert ballast.exists()


def test_the_ballast_is_not_made_where_it_would_take_the_room_of_a_turn(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = FREE_BYTES_TO_START + BALLAST_BYTES
    monkeypatch.setattr(Storage, "free_bytes", lambda _: free - 1)
    storage.restore_ballast()
    assert names_in(storage.root) == []
    monkeypatch.setattr(Storage, "free_bytes", lambda _: free)
    storage.restore_ballast()
    assert names_in(storage.root) == ["ballast"]


def test_a_ballast_that_cannot_be_made_is_no_error(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    storage.restore_ballast()
    assert names_in(storage.root) == []


def test_the_free_room_is_what_an_ordinary_user_may_take(storage: Storage) -> None:
    """Some blocks are reserved for root, who must not take them either."""
    told, free = storage.free_bytes(), os.statvfs(storage.root)
    assert abs(told - free.f_bavail * free.f_frsize) < 512 * MIB


def test_a_disk_that_takes_nothing_is_told_before_anything_is_lost(storage: Storage, faults: Faults) -> None:
    storage.check_writable()
    assert names_in(storage.root) == []
    for number in (errno.ENOSPC, errno.EROFS):
        faults.set("open", OSError(number, os.strerror(number)))
        with pytest.raises(OSError, match=os.strerror(number)):
            storage.check_writable()


# Renaming and removing


def test_a_rename_never_overwrites(storage: Storage) -> None:
    (storage.root / "folder").mkdir()
    (storage.root / "file").write_text("kept")
    (storage.root / "link").symlink_to("nowhere")
    (storage.root / "source").write_text("source")
    for target in ("file", "folder", "link"):
        with pytest.raises(FileExistsError):
            storage.rename(storage.root / "source", storage.root / target)
    assert names_in(storage.root) == ["file", "folder", "link", "source"]
    assert (storage.root / "file").read_text() == "kept"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_a_rename_never_overwrites_where_the_kernel_cannot_promise_it(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(storage_module, "_libc", ending(number))
    source, target = storage.root / "source", storage.root / "target"
    source.write_text("source")
    storage.rename(source, target)
    assert names_in(storage.root) == ["target"]
    source.write_text("another")
    with pytest.raises(FileExistsError):
        storage.rename(source, target)
    assert (source.read_text(), target.read_text()) == ("another", "source")


def test_a_rename_that_could_only_be_done_by_half_is_undone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "_libc", ending(errno.EINVAL))
    source, target = storage.root / "source", storage.root / "target"
    source.write_text("source")
    unlink = Path.unlink

    def refused(path: Path, *, missing_ok: bool = False) -> None:
        if path == source:
            raise OSError(errno.EIO, "broken")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(OSError, match="broken"):
        storage.rename(source, target)
    assert names_in(storage.root) == ["source"]


def test_a_rename_of_what_is_not_there_names_it(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError) as error:
        storage.rename(storage.root / "gone", storage.root / "target")
    assert error.value.filename == str(storage.root / "gone")


def test_a_rename_between_folders_is_synced_in_both(storage: Storage, faults: Faults) -> None:
    storage.make_folder(storage.root / "a")
    (storage.root / "f").write_text("x")
    faults.calls.clear()
    storage.rename(storage.root / "f", storage.root / "a" / "f")
    assert faults.calls.count("fsync folder") == 2


def test_removing_what_is_not_there_is_fine(storage: Storage) -> None:
    storage.remove(storage.root / "gone")
    storage.remove_folder(storage.root / "gone")
    storage.make_folder(storage.root / "a")
    (storage.root / "a" / "f").write_text("x")
    storage.remove_folder(storage.root / "a")
    assert names_in(storage.root) == []


def test_a_folder_is_private_and_never_taken_over(storage: Storage) -> None:
    storage.make_folder(storage.root / "a")
    assert stat.S_IMODE((storage.root / "a").stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        storage.make_folder(storage.root / "a")


def test_what_is_set_aside_is_kept_each_time_under_a_name_of_its_own(storage: Storage) -> None:
    places = set()
    for content in ("one", "two"):
        (storage.root / "f").write_text(content)
        places.add(storage.set_aside(storage.root / "f"))
    (storage.root / "d").mkdir()
    places.add(storage.set_aside(storage.root / "d"))
    assert len(places) == 3
    assert all(place.parent == storage.root / "set-aside" for place in places)
    assert sorted(place.read_text() for place in places if place.is_file()) == ["one", "two"]


# Giving back


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Give a folder on tmpfs where there is one."""
    with on_tmpfs() as folder:
        yield folder


def test_giving_back_frees_the_blocks_keeps_the_size_and_the_rest(in_memory: Path) -> None:
    path = in_memory / "f"
    path.write_bytes(b"x" * 8 * MIB)
    before = path.stat()
    with path.open("rb+") as file:
        give_back(file.fileno(), upto_bytes=6 * MIB)
    after = path.stat()
    assert before.st_blocks * 512 >= 8 * MIB
    assert after.st_blocks * 512 <= 2 * MIB + 8_192
    assert after.st_size == 8 * MIB
    assert path.read_bytes() == b"\0" * 6 * MIB + b"x" * 2 * MIB


def test_giving_back_goes_on_while_a_child_appends(in_memory: Path) -> None:
    path = in_memory / "f"
    with path.open("ab") as child, path.open("wb+") as file:
        child.write(b"a" * 4 * MIB)
        child.flush()
        give_back(file.fileno(), upto_bytes=4 * MIB)
        child.write(b"b" * 10)
    assert path.read_bytes()[4 * MIB :] == b"b" * 10


def test_a_file_system_that_cannot_give_back_keeps_the_blocks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(storage_module, "_libc", ending(errno.EOPNOTSUPP))
    path = tmp_path / "f"
    path.write_bytes(b"kept")
    with path.open("rb+") as file:
        give_back(file.fileno(), upto_bytes=4)
    assert path.read_bytes() == b"kept"


# The lock


def test_a_state_directory_is_made_private_with_all_its_folders(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    descriptor = open_state_dir(state)
    os.close(descriptor)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    folders = ["loose-ends", "names", "notices", "prompts", "set-aside", "slices", "turns"]
    assert names_in(state) == sorted([*folders, "lock"])
    assert {stat.S_IMODE((state / folder).stat().st_mode) for folder in folders} == {0o700}
    assert stat.S_IMODE((state / "lock").stat().st_mode) == 0o600


def test_a_state_directory_that_another_daemon_holds_is_refused_by_name_and_pid(tmp_path: Path) -> None:
    with other_python(OTHER_HOLDER, str(tmp_path)) as holder:
        holder.wait_for_line()
        with pytest.raises(StartUpError) as refusal:
            open_state_dir(tmp_path)
    assert str(tmp_path) in str(refusal.value)
    assert f"pid {holder.pid}" in str(refusal.value)
    os.close(open_state_dir(tmp_path))  # the kernel gave it free with the death of its holder


def test_the_lock_is_not_passed_on_to_programs(tmp_path: Path) -> None:
    """A turn that outlives its daemon must not keep the next daemon from starting."""
    descriptor = open_state_dir(tmp_path)
    try:
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["file", "file-above"])
def test_a_state_directory_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path, kind: str) -> None:
    (tmp_path / "f").write_text("x")
    state = tmp_path / "f" if kind == "file" else tmp_path / "f" / "state"
    with pytest.raises(StartUpError, match="set state_dir") as refusal:
        open_state_dir(state)
    assert str(state) in str(refusal.value)


def test_a_lock_that_may_not_be_opened_is_refused_and_not_broken(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StartUpError, match="cannot be used"):
        open_state_dir(tmp_path)
