"""Every Nix file is one."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.nix.evaluation import REPOSITORY, needs_nix
from tests.style.texts import repository_files

if TYPE_CHECKING:
    from pathlib import Path

NIX_FILES = [path for path in repository_files(REPOSITORY) if path.suffix == ".nix"]


def test_there_are_nix_files() -> None:
    assert len(NIX_FILES) > 10


@needs_nix
@pytest.mark.parametrize("path", NIX_FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_it_parses(path: Path) -> None:
    command = ["nix-instantiate", "--store", "dummy://", "--parse", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", NIX_FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_it_has_no_tabs_no_trailing_blanks_and_a_last_newline(path: Path) -> None:
    text = path.read_text()
    assert "\t" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not [line for line in text.splitlines() if line != line.rstrip()]
