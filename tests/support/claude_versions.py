"""The versions of the claude program that the tests run on, and where scripts/lib.sh puts them."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

PINNED = "2.1.197"
OLDER = "2.1.150"
NEWEST = "latest"

VARIABLE = "HIVE_SUBAGENT_TEST_CLAUDE"
REPOSITORY = Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


def cached_program(version: str = PINNED) -> Path:
    """Return where the program of a version lies once it has been fetched."""
    machine = MACHINES.get(platform.machine(), platform.machine())
    package = Path("node_modules", "@anthropic-ai", f"claude-code-linux-{machine}")
    return REPOSITORY / ".cache" / "claude" / version / package / "claude"


def program_under_test() -> Path | None:
    """Return the real claude to test with: the one scripts/test names, else the pinned one, if fetched."""
    program = Path(os.environ.get(VARIABLE) or cached_program())
    return program if os.access(program, os.X_OK) else None


def main() -> int:
    """Print `pinned`, `older` or `newest` as a version, or the path of a version's program."""
    match sys.argv[1:]:
        case ["pinned" | "older" | "newest" as name]:
            print({"pinned": PINNED, "older": OLDER, "newest": NEWEST}[name])
        case ["path", version]:
            print(cached_program(version))
        case _:
            print(
                "usage: python -m tests.support.claude_versions pinned|older|newest|path VERSION",
                file=sys.stderr,
            )
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
