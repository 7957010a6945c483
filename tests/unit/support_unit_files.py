"""Made-up daemons for unit files, a reader of unit files, and systemd's own opinion of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config_values import TcpAddress, UnixAddress
from hive_subagent_daemon.unit_files import Account, UnitFiles, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable

ALICE = Account("alice", 1001)
ROOT = Account("root", 0)
TCP = TcpAddress("127.0.0.1", 7310)
UNIX = UnixAddress(Path("/run/hive-subagent/a.sock"))
PROGRAM = Path("/opt/hive/bin/hive-subagent-daemon")
BASE = Wanted(account=ALICE, program=PROGRAM, listen=(TCP,), path="/usr/bin:/bin")
# systemd would refuse or misread these where they are not quoted as each setting wants it.
ODD_AGENTS = ("-p", "a-b", "ü x", 'a"b', "50%", "$HOME", "a\\b", ".a", "@UID@")
VERIFY_SECONDS = 30

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def program_in(folder: Path) -> Path:
    """Make a program whose path has to be quoted, too."""
    program = folder / "a b%" / "hive-subagent-daemon"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def text_of(made: UnitFiles, kind: str) -> str:
    """Return the text of the socket or the service."""
    [text] = [file.text for file in made.files if file.name.endswith(f".{kind}")]
    return text


def settings(made: UnitFiles, kind: str) -> dict[str, list[str]]:
    """Return the values of each `Section.Key` of the socket or the service."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in text_of(made, kind).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def complaints(texts: Iterable[tuple[str, str]], folder: Path, *, user: bool) -> str:
    """Return what systemd-analyze says of unit files by name and text; nothing when they are fine."""
    folder.mkdir(exist_ok=True)
    paths = [folder / name for name, _ in texts]
    for path, (_, text) in zip(paths, texts, strict=True):
        path.write_text(text)
    manager = ("--user",) if user else ("--system",)
    # A short name: the sockets of other packages' units are below it, and have paths of at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="hsr.", dir="/tmp") as runtime:
        ran = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *manager, *map(str, paths)],
            env=os.environ | {"XDG_RUNTIME_DIR": runtime},
            capture_output=True,
            text=True,
            timeout=VERIFY_SECONDS,
            check=False,
        )
    return ran.stdout + ran.stderr + (f"\ncode {ran.returncode}" if ran.returncode else "")
