"""The commit that this is, for `--version`: only the Python standard library, since the build runs it too."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

FILE_NAME = "COMMIT"
"""Stands beside this file in what was built from git, and in an sdist; never in a checkout."""

_COMMIT = re.compile(r"[0-9a-f]{7,40}(-dirty)?")
_DESCRIBE = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
_GIT_SECONDS = 10


def version_text(version: str) -> str:
    """Return the version with the commit behind it, where that can be known; asks git in a checkout."""
    package = Path(__file__).parent
    commit = built_commit(package) or checkout_commit(package.parent)
    return f"{version} ({commit})" if commit else version


def built_commit(package: Path) -> str | None:
    """Return the commit that the build has noted."""
    try:
        return _checked((package / FILE_NAME).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def checkout_commit(root: Path) -> str | None:
    """Return the commit of a git checkout, with `-dirty` when a tracked file differs from it.

    None for a folder that is not the top of a checkout: a release that is unpacked inside somebody's
    repository is not of that repository.
    """
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), *_DESCRIBE]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # no git here, or it does not trust the owner of the folder
    return _checked(shown.stdout)


def _checked(text: str) -> str | None:
    return text.strip() if _COMMIT.fullmatch(text.strip()) else None
