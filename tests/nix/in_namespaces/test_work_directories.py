"""Working directories as the rules of Nix make them: by systemd-tmpfiles, for the agent's user."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from tests.nix.evaluation import core
from tests.systemd.managers import OTHER_USER, USER, output_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(open_folder: Path) -> Path:
    """Return a home of mode 0700, as NixOS makes one."""
    made = open_folder / "home"
    made.mkdir(mode=0o700)
    os.chown(made, USER.uid, USER.uid)
    return made


def create(folder: Path, home: Path, *work_dirs: Path) -> None:
    """Do what the activation of a system does, with the lines that NixOS writes."""
    agents = [
        {"user": USER.user, "group": None, "home": str(home), "workDir": str(work_dir)}
        for work_dir in work_dirs
    ]
    paths = core("map core.tmpfilesPath (builtins.attrNames (core.workDirectories agents))", agents=agents)
    rules = folder / "rules.conf"
    rules.write_text("".join(f"'d' '{path}' ':0755' ':{USER.user}' '-' '-'\n" for path in paths))
    output_of("systemd-tmpfiles", "--create", str(rules))


def test_every_new_folder_below_the_home_is_the_user_s(home: Path, open_folder: Path) -> None:
    work = home / "a" / "50% o'clock \\"
    create(open_folder, home, work)
    for made in (work, work.parent):
        assert (made.stat().st_uid, stat.S_IMODE(made.stat().st_mode)) == (USER.uid, 0o755)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_what_is_there_stays_as_it_is_at_the_next_start(home: Path, open_folder: Path) -> None:
    work = home / "a" / "b"
    create(open_folder, home, work)
    work.parent.chmod(0o750)
    os.chown(work, OTHER_USER.uid, OTHER_USER.uid)
    create(open_folder, home, work.parent)
    assert stat.S_IMODE(work.parent.stat().st_mode) == 0o750
    assert work.stat().st_uid == OTHER_USER.uid


def test_the_home_itself_is_left_alone(home: Path, open_folder: Path) -> None:
    create(open_folder, home, home)
    assert (home.stat().st_uid, stat.S_IMODE(home.stat().st_mode)) == (USER.uid, 0o700)


def test_folders_elsewhere_are_the_user_s_below_root_s(home: Path, open_folder: Path) -> None:
    work = open_folder / "srv" / "agents" / "coder"
    create(open_folder, home, work)
    assert (work.stat().st_uid, work.parent.stat().st_uid) == (USER.uid, 0)
