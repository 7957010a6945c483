"""Evaluates Nix: one expression or file in, its JSON value out. No store and no Nix daemon are needed.

`python -m tests.nix.evaluation` tells where nixpkgs' library is; it ends with 1 when there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = REPOSITORY / "nixos-module"
HERE = Path(__file__).parent
# A folder that is nixpkgs' lib; with the usual NIX_PATH, <nixpkgs/lib> is found as well.
LIBRARY_VARIABLE = "HIVE_NIXPKGS_LIB"
LIMIT_SECONDS = 120
# The one spelling that works for root and others, from Nix 2.8 on, without a Nix daemon.
COMMAND = ("nix-instantiate", "--store", "dummy://", "--eval", "--strict", "--json")

needs_nix = pytest.mark.skipif(shutil.which(COMMAND[0]) is None, reason=f"{COMMAND[0]} is not installed")


class EvaluationError(Exception):
    """Nix refused; the text is what it said."""


def evaluate(source: Path | str, **arguments: object) -> Any:  # noqa: ANN401 - whatever Nix makes
    """Return the value of a file or an expression; a function gets the arguments as Nix values."""
    words = [*COMMAND, *(["--expr", source] if isinstance(source, str) else [str(source)])]
    for name, value in arguments.items():
        words += ["--arg", name, in_nix(value)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode != 0:
        raise EvaluationError(done.stderr)
    return json.loads(done.stdout)


def in_nix(value: object) -> str:
    """Write a value of JSON, or a path, as an expression."""
    if isinstance(value, Path):
        return f"(/. + {json.dumps(str(value))})"
    text = json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)
    return f"(builtins.fromJSON {text.replace('${', chr(92) + '${')})"


def core(expression: str, **values: object) -> Any:  # noqa: ANN401 - whatever Nix makes
    """Return the value of an expression in which `core` is the core and each keyword a value."""
    head = f"{{ {', '.join(values)} }}: " if values else ""
    return evaluate(f"{head}let core = import {in_nix(MODULES / 'core.nix')}; in {expression}", **values)


@cache
def nixpkgs_library() -> Path | None:
    """Return the folder of nixpkgs' library, or None where there is none."""
    if shutil.which(COMMAND[0]) is None:
        return None
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return Path(named)
    done = subprocess.run(
        ["nix-instantiate", "--find-file", "nixpkgs"], capture_output=True, text=True, timeout=60, check=False
    )
    folder = Path(done.stdout.strip()) / "lib" if done.returncode == 0 else None
    return folder if folder and folder.is_dir() else None


needs_library = pytest.mark.skipif(
    nixpkgs_library() is None, reason=f"no library of nixpkgs: neither {LIBRARY_VARIABLE} nor <nixpkgs/lib>"
)


def main() -> int:
    """Print the folder of nixpkgs' library."""
    library = nixpkgs_library()
    print(library or "no library of nixpkgs", file=sys.stderr)
    return 0 if library else 1


if __name__ == "__main__":
    sys.exit(main())
