"""The repository keeps to its style budget, and the checks find what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.style.imports import levels, read_package, ring
from tests.style.measures import measure_source
from tests.style.metrics import budget, measure_folders
from tests.style.texts import REPOSITORY, check_repository, own_paths

NOQA = "no" + "qa: E501"
LONG = "def f() -> None:\n 'T.'\n" + " x = 1\n" * 60
MANY_PARAMETERS = f"def f({', '.join(f'p{n}: int' for n in range(8))}) -> None: 'T.'"
DEEP = "def f() -> None:\n 'T.'\n" + "".join(" " * n + "if x:\n" for n in range(1, 6)) + " " * 6 + "x"
BRANCHED = "def f() -> bool:\n 'T.'\n return " + " or ".join("x" * 13)

PACKAGE = REPOSITORY / "hive_subagent_daemon"


def misses(*sources: str) -> dict[str, tuple[str, ...]]:
    """Return the broken rows of the budget for some sources, each made a documented module."""
    files = [measure_source(f'"""Text."""\n{source}', Path(f"m{i}.py")) for i, source in enumerate(sources)]
    return {row.name: row.misses for row in budget(files) if row.misses}


def package(folder: Path, **sources: str) -> Path:
    """Write a package named p."""
    root = folder / "p"
    root.mkdir()
    for name, source in {"__init__": "", **sources}.items():
        (root / f"{name}.py").write_text(source)
    return root


@pytest.mark.parametrize("folder", [PACKAGE, REPOSITORY / "tests"], ids=["package", "tests"])
def test_the_code_keeps_to_the_budget(folder: Path) -> None:
    rows = budget(measure_folders([folder]))
    assert not [f"{row.name}: {place}" for row in rows for place in row.misses]


def test_imports_point_down_only() -> None:
    imports = read_package(PACKAGE)
    assert len(imports.graph) > 1
    assert (ring(imports.graph), imports.in_functions) == ([], ())


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert not check_repository(REPOSITORY)


@pytest.mark.parametrize(
    ("source", "row"),
    [
        (LONG, "functions over any cap"),
        (MANY_PARAMETERS, "functions over any cap"),
        (DEEP, "functions over any cap"),
        (BRANCHED, "functions over any cap"),
        ("x = 1\n" * 400, "file length, longest"),
        ("def f(a): 'T.'", "functions with types"),
        ("def f() -> None: pass", "public functions with docstring"),
        ("@dataclass\nclass A: pass", "frozen dataclasses"),
        ("try: x\nexcept Exception: y\n" * 3, "catch-all except clauses"),
        ("try: x\nexcept: y\n" * 3, "catch-all except clauses"),
        ("try: x\nexcept (KeyError, BaseException): y\n" * 3, "catch-all except clauses"),
        ("def f() -> None:\n 'T.'\n import os", "imports in functions"),
        ("x = 1  # " + NOQA, "silenced checks without a reason"),
        (f"x = 1  # {NOQA}  # a long address\n" * 6, "silenced checks"),
    ],
)
def test_each_rule_of_the_budget_is_enforced(source: str, row: str) -> None:
    assert row in misses(source)


def test_code_within_the_budget_misses_nothing() -> None:
    good = "@dataclass(frozen=True)\nclass A:\n    def _f(self, x: int) -> int:\n        return x\n"
    assert not misses(good, "try: x\nexcept OSError: y\n", "try: x\nexcept http.HTTPException: y\n" * 3)


def test_a_module_without_docstring_misses_the_budget() -> None:
    rows = budget([measure_source("x = 1\n", Path("m.py"))])
    assert [row.name for row in rows if row.misses] == ["modules with docstring"]


def test_a_ring_of_imports_is_found_and_named(tmp_path: Path) -> None:
    root = package(tmp_path, a="from p import b", b="from . import c", c="import p.a", d="from p.a import x")
    assert ring(read_package(root).graph) == ["p.a", "p.b", "p.c", "p.a"]


def test_levels_follow_the_imports(tmp_path: Path) -> None:
    root = package(tmp_path, a="from .b import x", b="import os\nimport p.c", c="")
    assert levels(read_package(root).graph) == {"p": 0, "p.c": 0, "p.b": 1, "p.a": 2}


def test_imports_for_typing_do_not_count_and_those_in_functions_do(tmp_path: Path) -> None:
    typing_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import b\n"
    root = package(tmp_path, a=typing_only, b="import p.a\ndef f():\n    import os\n")
    imports = read_package(root)
    assert ring(imports.graph) == []
    assert [place.rpartition("/")[2] for place in imports.in_functions] == ["b.py:3"]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("cd /ro" + "ot/x", True),
        ("cd /ho" + "me/bob/x", True),
        ("see /ho" + "me/alice/x", False),
        ("$HOME/x ~/x /srv/ro" + "ot/x", False),
        ("cd /srv/checkout/scripts", True),
        ("cd /srv/checkout-2/scripts", False),
    ],
)
def test_paths_of_one_machine_are_told_from_others(text: str, *, is_found: bool) -> None:
    assert bool(own_paths(text, checkout=Path("/srv/checkout"))) == is_found
