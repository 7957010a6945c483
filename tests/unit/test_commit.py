"""`--version` names the commit where it can be known, and nothing where it cannot."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import __version__, daemon_main
from hive_subagent_daemon.commit import FILE_NAME, built_commit, checkout_commit, version_text

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *words: str) -> None:
    """Run git as somebody."""
    settings = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, timeout=20)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "file").write_text("first\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=First")
    return root


def test_a_checkout_is_named_by_twelve_digits(checkout: Path) -> None:
    assert re.fullmatch(r"[0-9a-f]{12}", str(checkout_commit(checkout)))


def test_a_checkout_with_changes_says_so(checkout: Path) -> None:
    clean = checkout_commit(checkout)
    (checkout / "file").write_text("second\n")
    assert checkout_commit(checkout) == f"{clean}-dirty"


def test_a_tag_does_not_hide_the_commit(checkout: Path) -> None:
    git(checkout, "tag", "--annotate", "--message=One", "v1")
    assert re.fullmatch(r"[0-9a-f]{12}", str(checkout_commit(checkout)))


def test_a_release_unpacked_inside_a_repository_is_not_of_that_repository(checkout: Path) -> None:
    inside = checkout / "unpacked"
    inside.mkdir()
    assert checkout_commit(inside) is None


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert checkout_commit(checkout) is None


@pytest.mark.parametrize("text", ["", "not a commit\n", "0123456\n; rm", "\N{SNOWMAN}"])
def test_a_note_that_is_no_commit_is_not_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(text, encoding="utf-8")
    assert built_commit(tmp_path) is None


def test_the_note_of_a_build_is_shown(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("0123456789ab-dirty\n")
    assert built_commit(tmp_path) == "0123456789ab-dirty"


def test_the_daemon_shows_version_and_commit_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        daemon_main.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"hive-subagent-daemon {version_text(__version__)}\n"
