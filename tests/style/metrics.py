"""The style budget: `python -m tests.style.metrics FOLDER... [--check]` prints every row and what misses it.

A row with a limit is a rule, one with a target is a direction to go. A single function may be over a cap
when it stands in EXCEPTIONS with its reason, and at most 2 % may.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.style.measures import FileMeasure, FunctionMeasure, measure_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CAPS: dict[str, Callable[[FunctionMeasure], int]] = {
    "length of at most 60 lines": lambda function: function.length - 60,
    "at most 7 parameters": lambda function: function.parameters - 7,
    "at most 4 levels of nesting": lambda function: function.nesting - 4,
    "at most 12 branches": lambda function: function.branches - 12,
}
FILE_CAP = 400
EXCEPTIONS: dict[str, str] = {}  # "file.py:function": the reason why it may be over a cap


@dataclass(frozen=True)
class Row:
    """One line of the budget; `misses` lists the places that break a rule."""

    name: str
    value: str
    budget: str
    misses: tuple[str, ...] = ()


def percent(part: int, whole: int) -> float:
    """Return a share in percent; 100 where there is nothing to count."""
    return round(100 * part / whole, 1) if whole else 100.0


def percentile(values: Sequence[int], share: float) -> int:
    """Return the value that `share` percent of the values do not exceed, 0 for none."""
    ordered = sorted(values)
    return ordered[round(share / 100 * (len(ordered) - 1))] if ordered else 0


def broken_caps(function: FunctionMeasure) -> list[str]:
    """Name the caps that a function is over."""
    return [name for name, over in CAPS.items() if over(function) > 0]


def measure_folders(folders: Sequence[Path]) -> list[FileMeasure]:
    """Measure every Python file in the folders, or the files themselves."""
    paths = [
        path for folder in folders for path in (sorted(folder.rglob("*.py")) if folder.is_dir() else [folder])
    ]
    return [measure_source(path.read_text(encoding="utf-8"), path) for path in paths]


def _places(files: Sequence[FileMeasure], lines: Callable[[FileMeasure], Sequence[int]]) -> tuple[str, ...]:
    return tuple(f"{file.path}:{line}" for file in files for line in lines(file))


def _function_rows(files: Sequence[FileMeasure]) -> list[Row]:
    """Return the rows about lengths and caps of functions."""
    functions = [(file, function) for file in files for function in file.functions]
    lengths = [function.length for _, function in functions]
    over = [(file, function) for file, function in functions if broken_caps(function)]
    unlisted = tuple(
        f"{file.path}:{function.line} {function.name}: not {', '.join(broken_caps(function))}"
        for file, function in over
        if f"{Path(file.path).name}:{function.name}" not in EXCEPTIONS
    )
    share = percent(len(over), len(functions)) if functions else 0.0
    too_many = (f"{len(over)} of {len(functions)} functions are over a cap",) if share > 2 else ()
    return [
        Row("function length, median", f"{statistics.median(lengths or [0]):g}", "target 8"),
        Row("function length, p95", str(percentile(lengths, 95)), "target 35"),
        Row("function length, longest", str(max(lengths, default=0)), "cap 60"),
        Row("functions over 40 lines", str(sum(length > 40 for length in lengths)), "target 0"),
        Row("functions over any cap", f"{share} %", "at most 2 %, each listed", (*unlisted, *too_many)),
    ]


def _file_rows(files: Sequence[FileMeasure]) -> list[Row]:
    """Return the rows about whole files."""
    lengths = [file.length for file in files]
    comments, code = sum(file.comments for file in files), sum(file.code_lines for file in files)
    return [
        Row("file length, median", f"{statistics.median(lengths or [0]):g}", "target 150"),
        Row(
            "file length, longest",
            str(max(lengths, default=0)),
            f"target 300, cap {FILE_CAP}",
            tuple(f"{file.path}: {file.length} lines" for file in files if file.length > FILE_CAP),
        ),
        Row("files over 300 lines", str(sum(length > 300 for length in lengths)), "target 0"),
        Row("comments for 100 code lines", f"{percent(comments, code) if code else 0.0}", "target 4 to 10"),
    ]


def _share_row(name: str, *, kept: int, misses: tuple[str, ...], at_least: int) -> Row:
    """Return a row about a share of all; its misses count only when the share is too small."""
    share = percent(kept, kept + len(misses))
    return Row(name, f"{share} %", f"at least {at_least} %", misses if share < at_least else ())


def _completeness_rows(files: Sequence[FileMeasure]) -> list[Row]:
    """Return the rows about types, docstrings and frozen dataclasses."""
    functions = [(f"{file.path}:{f.line} {f.name}", f) for file in files for f in file.functions]
    public = [(place, function) for place, function in functions if function.needs_docstring]
    untyped = tuple(place for place, function in functions if not function.is_typed)
    undocumented = tuple(place for place, function in public if not function.has_docstring)
    bare_modules = tuple(file.path for file in files if not file.has_docstring and file.length)
    frozen, open_ones = sum(f.frozen_dataclasses for f in files), _places(files, lambda f: f.open_dataclasses)
    return [
        _share_row("functions with types", kept=len(functions) - len(untyped), misses=untyped, at_least=100),
        _share_row(
            "public functions with docstring",
            kept=len(public) - len(undocumented),
            misses=undocumented,
            at_least=90,
        ),
        _share_row(
            "modules with docstring", kept=len(files) - len(bare_modules), misses=bare_modules, at_least=100
        ),
        _share_row("frozen dataclasses", kept=frozen, misses=open_ones, at_least=90),
    ]


def _count_row(name: str, places: tuple[str, ...], at_most: int) -> Row:
    return Row(name, str(len(places)), f"at most {at_most}", places if len(places) > at_most else ())


def budget(files: Sequence[FileMeasure]) -> list[Row]:
    """Return every row of the budget for a set of files."""
    bare = _places(files, lambda file: file.bare_silencers)
    return [
        *_function_rows(files),
        *_file_rows(files),
        *_completeness_rows(files),
        _count_row("catch-all except clauses", _places(files, lambda file: file.catch_alls), 2),
        _count_row("imports in functions", _places(files, lambda file: file.imports_in_functions), 0),
        _count_row("silenced checks", _places(files, lambda file: file.silencers), 5),
        _count_row("silenced checks without a reason", bare, 0),
    ]


def main() -> int:
    """Print the budget; with --check exit 1 when a rule is broken."""
    parser = argparse.ArgumentParser(description="Measure Python code against the style budget.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folder or file to measure")
    parser.add_argument("--check", action="store_true", help="exit 1 when a rule of the budget is broken")
    arguments = parser.parse_args()
    files = measure_folders(arguments.folders)
    if not files:
        print("no Python file found", file=sys.stderr)
        return 2
    rows = budget(files)
    for row in rows:
        print(f"{row.name:34} {row.value:>8}   {row.budget}")
    missed = [f"{row.name}: {place}" for row in rows for place in row.misses]
    for line in missed:
        print(f"over the budget: {line}", file=sys.stderr)
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
