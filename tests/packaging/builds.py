"""A copy of this repository as a repository of its own, and what is built of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zipfile import ZipFile

from tests.style.texts import REPOSITORY, repository_files

if TYPE_CHECKING:
    from pathlib import Path

GIT = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
LEFT_BY_WORK = (".cache/npm/x", ".venv/bin/x", ".demo/x", "dist/x", "hive_subagent_daemon/__pycache__/x.pyc")
"""Files that a checkout in use has and a release must not."""


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Run a short program to its end and return what it printed."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def copied_repository(target: Path) -> str:
    """Copy what git has, or will have, commit it, and leave the traces of work; return the commit."""
    for source in repository_files(REPOSITORY):
        copy = target / source.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    run(*GIT, "init", "--quiet", cwd=target)
    run(*GIT, "add", "--all", cwd=target)
    run(*GIT, "commit", "--quiet", "--message=Copy", cwd=target)
    for name in LEFT_BY_WORK:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).touch()
    return run(*GIT, "rev-parse", "--short=12", "HEAD", cwd=target).strip()


def build(root: Path, output: Path, *targets: str, **environment: str) -> list[Path]:
    """Build wheel or sdist of a folder, as pip would after it has made an environment for it."""
    options = [word for target in targets for word in ("--target", target)]
    run(
        sys.executable, "-m", "hatchling", "build", "--directory", str(output), *options,
        cwd=root, **environment,
    )  # fmt: skip
    return sorted(output.iterdir())


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist and return its top folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def contents(wheel: Path) -> dict[str, bytes]:
    """Return every file of a wheel."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@dataclass(frozen=True)
class Built:
    """One wheel and one sdist, and the commit that they were made of."""

    commit: str
    wheel: Path
    sdist: Path
