"""Texts that must not stand in the repository: `python -m tests.style.texts` names each place.

Paths of somebody's home folder or of the checkout work on one machine only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HOME = re.compile(r"(?<![\w.$}~-])/(?:home/(?P<user>[a-z_][a-z0-9_-]*)|root)/[\w.]")
MADE = {"__pycache__", ".hypothesis"}
EXAMPLE_USERS = ("agent", "alice", "you")


def repository_files(root: Path) -> list[Path]:
    """Return the files that are, or with the next commit could be, in the repository.

    Of sources without a repository (as Nix has them) those are all files but what the tests have made.
    """
    if not (root / ".git").exists():
        return [path for path in root.rglob("*") if path.is_file() and not MADE & {*path.parts}]
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def own_paths(text: str, *, checkout: Path) -> list[int]:
    """Return the numbers of the lines that hold a path of a home folder or of the checkout."""
    here = re.compile(re.escape(str(checkout)) + r"(?![\w.-])") if len(checkout.parts) > 2 else None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        homes = [match for match in HOME.finditer(line) if match["user"] not in EXAMPLE_USERS]
        if homes or (here and here.search(line)):
            found.append(number)
    return found


def check_repository(root: Path) -> list[str]:
    """Return the place of every such path in the repository's text files."""
    problems = []
    for path in repository_files(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
        problems += [f"{path.relative_to(root)}:{number}" for number in own_paths(text, checkout=root)]
    return problems


def main() -> int:
    """Print the places; exit 1 when there is one."""
    problems = check_repository(REPOSITORY)
    for place in problems:
        print(f"path of this machine: {place}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
