"""Short programs are run to their end and never mixed up with the children of turns."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.children import Children

if TYPE_CHECKING:
    from pytest_subprocess import FakeProcess


async def test_the_output_of_a_short_program_is_returned(fp: FakeProcess) -> None:
    """As the probe of claude's version needs it."""
    fp.register(["/opt/claude", "--version"], stdout="2.1.197 (Claude Code)\n")
    ended = await Children().run(("/opt/claude", "--version"), environment={}, timeout_seconds=5)
    assert (ended.returncode, ended.stdout.split()[0]) == (0, "2.1.197")
    assert fp.call_count(["/opt/claude", "--version"]) == 1


async def test_a_short_program_that_fails_is_no_exception(fp: FakeProcess) -> None:
    """A claude that cannot even tell its version is reported, not an accident."""
    fp.register(["claude", "--version"], returncode=3, stderr="no such thing")
    ended = await Children().run(("claude", "--version"), environment={}, timeout_seconds=5)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "no such thing")


async def test_a_program_that_hangs_is_given_up(fp: FakeProcess) -> None:
    """The daemon goes on without the version."""

    def hang(_: object) -> None:
        """Behave as `subprocess` does at its time-out."""
        raise subprocess.TimeoutExpired(cmd="claude", timeout=0.1)

    fp.register(["claude", "--version"], callback=hang)
    with pytest.raises(subprocess.TimeoutExpired):
        await Children().run(("claude", "--version"), environment={}, timeout_seconds=0.1)


async def test_a_real_program_is_reaped_by_the_one_who_runs_it() -> None:
    """The reaping of orphans must not take its exit status away."""
    children = Children()
    for _ in range(20):
        ended = await children.run(("/bin/sh", "-c", "exit 7"), environment={}, timeout_seconds=5)
        assert ended.returncode == 7
