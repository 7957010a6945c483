"""Control groups as the kernel shows them, on a folder with the files that it would have."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import cgroups
from hive_subagent_daemon.cgroups import OomCounters
from tests.support.processes import eventually, is_alive
from tests.unit.support_started import Started, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVENTS = "low 0\nhigh 0\nmax 17\noom 2\noom_kill 3\noom_group_kill 1\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the control groups into a folder of the test."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    monkeypatch.setattr(cgroups, "ROOT", folder)
    return folder


@pytest.fixture
def sleeper() -> Iterator[Started]:
    """Run a child that only sleeps."""
    started = start("sleep", "600")
    yield started
    if is_alive(started.pid):
        os.kill(started.pid, 9)
    os.waitid(os.P_PID, started.pid, os.WEXITED)
    os.close(started.pidfd)


def cgroup(folder: Path, **files: str) -> Path:
    """Make a control group with these files; the dots of their names are written `__`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


# Where they are


def test_the_second_version_is_told_by_its_file_at_the_root(root: Path) -> None:
    assert not cgroups.is_unified()
    cgroup(root, cgroup__controllers="cpu memory\n")
    assert cgroups.is_unified()


def test_a_root_that_may_not_be_entered_is_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup(root, cgroup__controllers="cpu memory\n")

    def refuse(path: Path, **_: bool) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.stat", refuse)
        assert not cgroups.is_unified()


def test_the_ids_of_a_cgroup_and_of_all_below_it_are_told(root: Path) -> None:
    top = cgroup(root / "a.slice")
    assert not cgroups.has_children(top)
    inner = cgroup(top / "b.scope" / "c")
    cgroup(root / "other.slice")
    assert cgroups.has_children(top)
    assert not cgroups.has_children(inner)
    assert cgroups.ids_in(top) == {folder.stat().st_ino for folder in (top, inner.parent, inner)}
    gone = root / "gone.slice"
    assert (cgroups.has_children(gone), cgroups.ids_in(gone), cgroups.id_of(gone)) == (False, set(), None)


@pytest.mark.parametrize("path", ["/", "/a.slice", "/a.slice/b.scope"])
def test_a_path_is_named_as_it_was_given(root: Path, path: str) -> None:
    assert cgroups.at(path).is_relative_to(root)
    assert cgroups.path_of(cgroups.at(path)) == path


@pytest.mark.parametrize("path", ["/a.slice/b.scope", "a.slice/b.scope"])
def test_a_path_is_found_below_the_root(root: Path, path: str) -> None:
    assert cgroups.at(path) == root / "a.slice/b.scope"
    assert cgroups.at("/") == root


def test_the_cgroup_of_a_process_is_told_as_long_as_it_lives(root: Path, sleeper: Started) -> None:
    assert cgroups.of_process(sleeper.pid) == cgroups.of_process(os.getpid())
    found = cgroups.of_process(sleeper.pid)
    assert found is None or found.is_relative_to(root)
    assert cgroups.of_process(2**22 - 1) is None


# Processes


def test_the_processes_of_a_cgroup_are_those_of_all_below_it_that_live(root: Path, sleeper: Started) -> None:
    outer = cgroup(root / "outer", cgroup__procs=f"{os.getpid()}\n")
    cgroup(outer / "inner", cgroup__procs=f"{sleeper.pid}\n{2**22 - 1}\n")
    (outer / "empty").mkdir()
    assert {found.pid for found in cgroups.processes(outer)} == {os.getpid(), sleeper.pid}
    assert [found.pid for found in cgroups.processes(outer / "inner")] == [sleeper.pid]
    os.kill(sleeper.pid, 9)
    eventually(lambda: not is_alive(sleeper.pid))
    assert cgroups.processes(outer / "inner") == []  # it is not reaped yet, but dead
    assert cgroups.processes(root / "gone") == []


@pytest.mark.parametrize(
    ("events", "empty"),
    [
        ("populated 1\nfrozen 0\n", False),
        ("populated 0\nfrozen 0\n", True),
        ("frozen 0\npopulated 0\n", True),
        ("frozen 0\npopulated 1\n", False),
    ],
)
def test_a_cgroup_is_empty_when_the_kernel_says_so(root: Path, events: str, *, empty: bool) -> None:
    assert cgroups.is_empty(cgroup(root / "a", cgroup__events=events)) is empty


def test_a_cgroup_that_is_gone_is_empty(root: Path) -> None:
    assert cgroups.is_empty(root / "gone")


def test_everything_is_killed_at_once_by_the_kernel(root: Path, sleeper: Started) -> None:
    folder = cgroup(root / "a", cgroup__kill="", cgroup__procs=f"{sleeper.pid}\n")
    cgroups.kill(folder)
    assert (folder / "cgroup.kill").read_text() == "1"
    assert is_alive(sleeper.pid)


def test_where_the_kernel_cannot_each_process_is_killed(root: Path, sleeper: Started) -> None:
    folder = cgroup(root / "a" / "b", cgroup__procs=f"{sleeper.pid}\n").parent
    (folder / "cgroup.kill").mkdir()  # writing to it fails, as to a file that may not be written
    cgroups.kill(folder)
    eventually(lambda: not is_alive(sleeper.pid))


def test_killing_in_a_cgroup_that_is_gone_is_fine(root: Path) -> None:
    cgroups.kill(root / "gone")
    assert not (root / "gone").exists()


# Memory


def test_what_the_oom_killer_did_is_told_with_the_peak(root: Path) -> None:
    counted = cgroup(root / "a", memory__events=EVENTS, memory__peak="62922752\n")
    assert cgroups.oom_counters(counted) == OomCounters(3, 62_922_752, by_oomd=False, stops=False)


def test_a_kernel_that_knows_no_peak_still_counts(root: Path) -> None:
    """memory.peak came with Linux 5.19."""
    assert cgroups.oom_counters(cgroup(root / "a", memory__events=EVENTS)) == OomCounters(3, None)


@pytest.mark.parametrize("events", [None, "", "low 0\noom 1\n"])
def test_without_a_memory_controller_nothing_is_counted(root: Path, events: str | None) -> None:
    """Which is not the same as no kill."""
    files = {} if events is None else {"memory__events": events}
    assert cgroups.oom_counters(cgroup(root / "a", **files)) is None


def test_memory_in_use_is_told_where_it_is_counted(root: Path) -> None:
    assert cgroups.memory_bytes(cgroup(root / "a", memory__current="4096\n")) == 4096
    assert cgroups.memory_bytes(cgroup(root / "b")) is None


@pytest.mark.parametrize(
    ("outer", "inner", "limit"),
    [
        ("max", "max", None),
        ("max", "100", 100),
        ("50", "100", 50),
        ("50", "max", 50),
        ("200", "100", 100),
        ("max", "0", 0),
        (None, "100", 100),
        (None, None, None),
    ],
)
def test_the_lowest_limit_on_the_way_up_is_the_one_that_holds(
    root: Path, outer: str | None, inner: str | None, limit: int | None
) -> None:
    folder = root / "outer" / "inner"
    for place, shown in ((folder.parent, outer), (folder, inner)):
        cgroup(place, **({} if shown is None else {"memory__max": f"{shown}\n"}))
    assert cgroups.memory_limit_bytes(folder) == limit


# Controllers and ids


def test_the_controllers_below_a_cgroup_are_told(root: Path) -> None:
    assert cgroups.controllers(cgroup(root / "a", cgroup__controllers="cpu memory pids\n")) == {
        "cpu",
        "memory",
        "pids",
    }
    assert cgroups.controllers(cgroup(root / "b", cgroup__controllers="\n")) == frozenset()
    assert cgroups.controllers(root / "gone") == frozenset()


def test_the_id_of_a_cgroup_is_the_inode_of_its_folder(root: Path) -> None:
    assert cgroups.id_of(cgroup(root / "a")) == (root / "a").stat().st_ino
    assert cgroups.id_of(root / "gone") is None
