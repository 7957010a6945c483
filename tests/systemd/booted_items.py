"""A test that is run by booting a machine and running the test of the same name inside."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from tests.systemd.machines import NO_ANSWER, NOT_POSSIBLE, UML, UML_LIMIT_SECONDS, command

if TYPE_CHECKING:
    from pathlib import Path

TRIES = 2  # a guest of User Mode Linux hangs now and then
CLEAN_UP_SECONDS = 20
SHOWN_CHARACTERS = 20_000


class InnerFailureError(Exception):
    """The test inside failed, or could not be run."""


class Booted(pytest.Item):
    """Stands for a test function in whose place it was put."""

    @classmethod
    def standing_for(cls, item: pytest.Item) -> Booted:
        """Take the place of a test: its name, its marks, its node id."""
        assert item.parent is not None
        made: Booted = cls.from_parent(item.parent, name=item.name)
        made.own_markers.extend(item.own_markers)
        limit = TRIES * (UML_LIMIT_SECONDS + CLEAN_UP_SECONDS)
        made.add_marker(pytest.mark.timeout(limit))
        return made

    @override
    def runtest(self) -> None:
        """Boot, run, and fail or be skipped as the test inside."""
        if os.geteuid() != 0:
            pytest.skip("booting a machine needs root")
        flags = [flag for flag in ("--long", "--require-all") if self.config.getoption(flag)]
        words = command(UML, ["--color=no", *flags, self.nodeid])
        for attempt in range(1, TRIES + 1):
            code, output = run(words)
            if code != NO_ANSWER:
                break
            self.add_report_section("call", f"attempt {attempt}", output)
        if code == NOT_POSSIBLE:
            pytest.skip(output.strip())
        if code != 0:
            message = f"the test inside ended with {code}:\n{output[-SHOWN_CHARACTERS:]}"
            raise InnerFailureError(message)
        if skipped := re.search(r"^SKIPPED \[1\] (.*)$", output, re.MULTILINE):
            pytest.skip(f"inside: {skipped[1]}")
        if not re.search(r"\b1 passed\b", output):
            message = f"no test was run inside:\n{output[-SHOWN_CHARACTERS:]}"
            raise InnerFailureError(message)

    @override
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """Show what was printed inside, not this file."""
        return str(excinfo.value)

    @override
    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Name the test inside."""
        return self.path, None, self.name


def run(words: list[str]) -> tuple[int, str]:
    """Run a command that keeps to a time limit of its own; return its code and what it printed."""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=UML_LIMIT_SECONDS + CLEAN_UP_SECONDS / 2)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate(timeout=CLEAN_UP_SECONDS / 2)
            return NO_ANSWER, output
    return process.returncode, output
