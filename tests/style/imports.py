"""Who imports whom in a package: `python -m tests.style.imports FOLDER [--check]`.

Imports point down only. Each module gets a level: 0 when it imports nothing of the package, else one
more than the highest that it imports. In a ring there is no such level; the modules of a ring are named.
Imports under TYPE_CHECKING cost nothing at run time and are not counted, those inside a function are
never allowed.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ImportNode = ast.Import | ast.ImportFrom
Graph = dict[str, frozenset[str]]


@dataclass(frozen=True)
class PackageImports:
    """The imports of every module at its top level, and the places of those inside functions."""

    graph: Graph
    in_functions: tuple[str, ...]


def module_names(folder: Path) -> dict[str, Path]:
    """Return the dotted name of every module in a package folder, with its file."""
    names = {}
    for path in sorted(folder.rglob("*.py")):
        parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


def _is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def import_nodes(node: ast.AST, *, in_function: bool = False) -> Iterator[tuple[ImportNode, bool]]:
    """Yield each import that runs, and whether it stands inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, in_function
        elif _is_typing_only(child):
            for branch in getattr(child, "orelse", ()):
                yield from import_nodes(ast.Module([branch], []), in_function=in_function)
        else:
            inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from import_nodes(child, in_function=inside)


def imported(node: ImportNode, *, package: str, known: Mapping[str, Path]) -> set[str]:
    """Return the modules of the package that one import names; `package` is where relative ones start."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & known.keys()
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    source = ".".join([*above, *filter(None, [node.module])])
    submodules = {f"{source}.{alias.name}" for alias in node.names}
    has_others = not submodules <= known.keys()
    return (submodules | ({source} if has_others else set())) & known.keys()


def read_package(folder: Path) -> PackageImports:
    """Read all modules of a package folder."""
    known = module_names(folder)
    graph: Graph = {}
    in_functions: list[str] = []
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        nodes = list(import_nodes(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))
        top = [imported(node, package=package, known=known) for node, in_function in nodes if not in_function]
        graph[name] = frozenset(set().union(*top) - {name})
        in_functions += [f"{path}:{node.lineno}" for node, in_function in nodes if in_function]
    return PackageImports(graph, tuple(in_functions))


def levels(graph: Graph) -> dict[str, int]:
    """Return the level of every module that has one: those that lead into no ring."""
    found: dict[str, int] = {}
    while ready := [name for name in graph if name not in found and graph[name] <= found.keys()]:
        found |= {name: 1 + max((found[below] for below in graph[name]), default=-1) for name in ready}
    return found


def ring(graph: Graph) -> list[str]:
    """Return one ring: modules in the order of their imports, the first again at the end; or nothing."""
    stuck = graph.keys() - levels(graph).keys()
    if not stuck:
        return []
    path = [min(stuck)]
    while path[-1] not in path[:-1]:
        path.append(min(graph[path[-1]] & stuck))
    return path[path.index(path[-1]) :]


def _print_levels(graph: Graph) -> None:
    by_level: dict[int, list[str]] = {}
    for name, level in levels(graph).items():
        by_level.setdefault(level, []).append(name.rpartition(".")[2])
    for level, names in sorted(by_level.items(), reverse=True):
        print(f"level {level:2}: {' '.join(sorted(names))}")


def main() -> int:
    """Print the levels of a package from top to bottom; with --check exit 1 when a rule is broken."""
    parser = argparse.ArgumentParser(description="Show the import graph of a package and find rings in it.")
    parser.add_argument("folder", type=Path, help="folder of the package")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 on a ring or an import inside a function"
    )
    arguments = parser.parse_args()
    package = read_package(arguments.folder.resolve())
    if not package.graph:
        print(f"no Python file in {arguments.folder}", file=sys.stderr)
        return 2
    print(f"{len(package.graph)} modules, {sum(map(len, package.graph.values()))} imports between them")
    _print_levels(package.graph)
    found = ring(package.graph)
    problems = [f"ring: {' -> '.join(found)}"] if found else []
    problems += [f"import inside a function: {place}" for place in package.in_functions]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
