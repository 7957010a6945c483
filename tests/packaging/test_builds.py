"""What a wheel and an sdist hold, and what they know of their origin."""

from __future__ import annotations

import re
import sys
from email import message_from_bytes
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import __version__
from tests.packaging.builds import Built, build, contents, run, unpacked
from tests.style.texts import REPOSITORY, repository_files

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "hive_subagent_daemon/"
COMMIT = f"{PACKAGE}COMMIT"
DIST = f"hive_subagent_daemon-{__version__}.dist-info/"
RECORD = f"{DIST}RECORD"
DATA = f"hive_subagent_daemon-{__version__}.data/data/"
SHARED = {
    "share/": "share/",
    ".claude-plugin/": "share/hive-subagent/.claude-plugin/",
    "plugin/": "share/hive-subagent/plugin/",
    "plugin-stdio/": "share/hive-subagent/plugin-stdio/",
}
"""Folders of the repository that a wheel puts below the prefix, and where."""
ONLY_FOR_OUR_CI = (".ci/",)


def of_repository() -> set[str]:
    """Return the path of every file that git has, or will have."""
    return {str(path.relative_to(REPOSITORY)) for path in repository_files(REPOSITORY)}


def files_of(folder: Path) -> set[str]:
    """Return the path of every file in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def shared() -> set[str]:
    """Return what a wheel puts below the prefix."""
    return {
        name.replace(source, target, 1)
        for name in of_repository()
        for source, target in SHARED.items()
        if name.startswith(source)
    }


def test_a_wheel_holds_package_manual_completions_plugin_and_nothing_else(built: Built) -> None:
    package = {name for name in of_repository() if name.startswith(PACKAGE)}
    found = {name for name in contents(built.wheel) if not name.startswith(DIST)}
    assert found == package | {COMMIT} | {f"{DATA}{name}" for name in shared()}


def test_its_metadata_has_the_version_of_the_package_and_the_licence(built: Built) -> None:
    files = contents(built.wheel)
    metadata = message_from_bytes(files[f"{DIST}METADATA"])
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert files[f"{DIST}licenses/LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()


def test_an_sdist_holds_what_git_has_and_nothing_that_work_has_left(release: Path) -> None:
    wanted = {name for name in of_repository() if not name.startswith(ONLY_FOR_OUR_CI)}
    assert files_of(release) == wanted | {COMMIT, "PKG-INFO"}


def test_wheel_and_sdist_of_a_checkout_name_its_commit(built: Built, release: Path) -> None:
    assert contents(built.wheel)[COMMIT].decode() == f"{built.commit}\n"
    assert (release / COMMIT).read_text() == f"{built.commit}\n"


def test_a_wheel_of_the_sdist_is_the_wheel_of_the_checkout(
    built: Built, release: Path, tmp_path: Path
) -> None:
    (wheel,) = build(release, tmp_path / "wheel", "wheel")
    first, second = contents(built.wheel), contents(wheel)
    for files in (first, second):
        files[RECORD] = b"".join(sorted(files[RECORD].splitlines()))  # its order is that of the build
    assert second == first


def test_a_build_without_a_repository_takes_the_commit_that_it_is_given(built: Built, tmp_path: Path) -> None:
    root = unpacked(built.sdist, tmp_path / "source")
    (root / COMMIT).unlink()
    revision = "0123456789" * 4
    (wheel,) = build(root, tmp_path / "wheel", "wheel", HIVE_SUBAGENT_COMMIT=revision)
    assert contents(wheel)[COMMIT].decode() == f"{revision}\n"


def test_a_build_that_knows_no_commit_names_none(built: Built, tmp_path: Path) -> None:
    root = unpacked(built.sdist, tmp_path / "source")
    (root / COMMIT).unlink()
    (wheel,) = build(root, tmp_path / "wheel", "wheel")
    assert COMMIT not in contents(wheel)


@pytest.mark.long
def test_pip_builds_the_sdist_in_an_environment_of_its_own(built: Built, tmp_path: Path) -> None:
    run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir=wheel", str(built.sdist), cwd=tmp_path
    )
    (wheel,) = (tmp_path / "wheel").iterdir()
    assert contents(wheel)[COMMIT].decode() == f"{built.commit}\n"
    assert re.fullmatch(r"hive_subagent_daemon-[\d.]+-py3-none-any\.whl", wheel.name)
