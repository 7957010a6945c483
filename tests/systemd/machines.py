"""Run pytest inside a machine: `python -m tests.systemd.machines namespaces|uml PYTEST ARGUMENTS`.

The exit code is that of pytest inside; 69 where no such machine can be booted, 70 where it did not boot.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from tests.support.claude_versions import VARIABLE
from tests.support.scripted_daemon import REPOSITORY

HERE = Path(__file__).parent
NOT_POSSIBLE = 69
NO_ANSWER = 70
INSIDE = "HIVE_SUBAGENT_TEST_MACHINE"
NAMESPACES = "namespaces"
UML = "uml"
UML_LIMIT_SECONDS = 300
KINDS = {
    NAMESPACES: [str(HERE / "boot_namespaces.sh")],
    # The real claude takes up to 250 MiB; then there are two Pythons and systemd.
    UML: [str(HERE / "boot_uml.sh"), "-m", "1G", "-t", str(UML_LIMIT_SECONDS)],
}


def machine() -> str | None:
    """Return which kind of machine this process is in; None outside."""
    return os.environ.get(INSIDE)


def needed_folders() -> list[Path]:
    """Return the folders of this Python and of the repository that are no part of a system."""
    folders: list[Path] = []
    for folder in (REPOSITORY, Path(sys.prefix), Path(sys.base_prefix).resolve()):
        if not any(folder.is_relative_to(found) for found in (Path("/usr"), *folders)):
            folders.append(folder)
    return folders


def environment(kind: str) -> dict[str, str]:
    """Return what pytest inside is given; nothing else of our own environment gets there."""
    python = Path(sys.executable).parent
    inside = {
        "PATH": f"{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "IS_SANDBOX": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        INSIDE: kind,
    }
    if VARIABLE in os.environ:
        inside[VARIABLE] = os.environ[VARIABLE]
    return inside


def python_inside(kind: str, module: str, *arguments: str) -> list[str]:
    """Return the command that boots a machine, runs a module of Python inside, and ends as that does."""
    words = [*KINDS[kind], "-s", str(HERE / "add_users.sh")]
    for folder in needed_folders():
        words += ["-p", str(folder)]
    words += ["--", "env", f"--chdir={REPOSITORY}"]
    words += [f"{name}={value}" for name, value in environment(kind).items()]
    return [*words, sys.executable, "-m", module, *arguments]


def command(kind: str, arguments: list[str]) -> list[str]:
    """Return the command that boots a machine, runs pytest inside, and ends as that does."""
    return python_inside(kind, "pytest", "-p", "no:cacheprovider", *arguments)


def main() -> NoReturn:
    """Become the machine."""
    if len(sys.argv) < 2 or sys.argv[1] not in KINDS:
        print(f"usage: python -m tests.systemd.machines {'|'.join(KINDS)} ...", file=sys.stderr)
        sys.exit(2)
    words = command(sys.argv[1], sys.argv[2:])
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
