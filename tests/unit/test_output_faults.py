"""A disk that fails while a turn's output is followed costs the turn neither its result nor its age."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import output as output_module
from tests.unit.support_output import append, files_in, following
from tests.unit.support_streams import init, lines, result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHOLE = lines(init(), result("one"))


def failing(monkeypatch: pytest.MonkeyPatch, name: str, *, times: int) -> None:
    """Let a system call fail so many times from now on."""
    call: Callable[..., object] = getattr(os, name)
    left = [times]

    def fails(*arguments: object) -> object:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(*arguments)

    monkeypatch.setattr(os, name, fails)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(output_module, "_READ_AGAIN_SECONDS", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("name", ["pread", "fstat"])
def test_a_read_that_fails_for_a_moment_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, WHOLE)
        failing(monkeypatch, name, times=2)
        output.look()
        output.finish()
        assert output.seen.result is not None
        assert output.seen.result.text == "one"
        assert output.trouble is None, "it was read in the end"


def test_a_read_that_goes_on_failing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, WHOLE)
        failing(monkeypatch, "pread", times=100)
        output.finish()
        assert output.seen.result is None
        assert output.trouble is not None
        assert "Input/output error" in output.trouble


def test_size_and_age_are_told_as_last_seen_while_the_disk_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked on the event loop, where an error would end the daemon."""
    with following(files_in(tmp_path)) as output:
        append(output.files.stdout, WHOLE)
        output.look()
        assert output.age_seconds() >= 0
        failing(monkeypatch, "fstat", times=3)
        assert output.stdout_bytes == len(WHOLE)
        assert output.age_seconds() >= 0
