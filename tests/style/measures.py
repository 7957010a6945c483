"""Measures of Python source: what one function, one file and a set of files come to. Pure functions."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
OWN_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
DECISIONS = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While),
    *(ast.ExceptHandler, ast.comprehension, ast.match_case),
)
CATCH_ALL = ("Exception", "BaseException")
SILENCER = re.compile(r"noqa(: *[A-Z]+[0-9]+(, *[A-Z]+[0-9]+)*)?|type: ignore(\[[^\]]*\])?")


@dataclass(frozen=True)
class FunctionMeasure:
    """One function; its length is without the docstring, its parameters without self and cls."""

    name: str
    line: int
    length: int
    parameters: int
    nesting: int
    branches: int
    is_typed: bool
    needs_docstring: bool
    has_docstring: bool


@dataclass(frozen=True)
class FileMeasure:
    """One file, with the line numbers of what is to be rare."""

    path: str
    length: int
    code_lines: int
    comments: int
    has_docstring: bool
    functions: tuple[FunctionMeasure, ...]
    catch_alls: tuple[int, ...]
    imports_in_functions: tuple[int, ...]
    silencers: tuple[int, ...]
    bare_silencers: tuple[int, ...]
    frozen_dataclasses: int
    open_dataclasses: tuple[int, ...]


def nesting(node: ast.AST) -> int:
    """Return how many blocks lie inside each other at the deepest place; an elif lies in its if."""
    inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, OWN_SCOPES)]
    return max((isinstance(child, BLOCKS) + nesting(child) for child in inner), default=0)


def branches(node: ast.AST) -> int:
    """Return the cyclomatic complexity, nested functions included."""
    parts = list(ast.walk(node))
    choices = sum(len(part.values) - 1 for part in parts if isinstance(part, ast.BoolOp))
    return 1 + choices + sum(isinstance(part, DECISIONS) for part in parts)


def _parameters(node: FunctionNode) -> list[ast.arg]:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [argument for argument in named if argument.arg not in ("self", "cls")]


def _length(node: FunctionNode) -> int:
    """Return the lines from `def` to the end, without those of the docstring."""
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is None:
        return whole
    docstring = node.body[0]
    return whole - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def measure_function(node: FunctionNode) -> FunctionMeasure:
    """Measure one function or method."""
    parameters = _parameters(node)
    others = [argument for argument in (node.args.vararg, node.args.kwarg) if argument]
    has_return = node.returns is not None
    return FunctionMeasure(
        name=node.name,
        line=node.lineno,
        length=_length(node),
        parameters=len(parameters),
        nesting=nesting(node),
        branches=branches(node),
        is_typed=has_return and all(argument.annotation for argument in (*parameters, *others)),
        needs_docstring=not node.name.startswith(("_", "test_")) and "override" not in _decorators(node),
        has_docstring=ast.get_docstring(node) is not None,
    )


def _decorators(node: ast.ClassDef | FunctionNode) -> list[str]:
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def _is_catch_all(node: ast.ExceptHandler) -> bool:
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(part is None or ast.unparse(part).rpartition(".")[2] in CATCH_ALL for part in caught)


def _imports_in_functions(functions: list[FunctionNode]) -> tuple[int, ...]:
    found = {
        part.lineno
        for function in functions
        for part in ast.walk(function)
        if isinstance(part, ast.Import | ast.ImportFrom)
    }
    return tuple(sorted(found))


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of every comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _has_reason(comment: str) -> bool:
    """Tell whether a comment that silences a checker says in words why."""
    return len(re.findall(r"\w+", SILENCER.sub("", comment))) > 1


def _dataclasses(classes: Iterable[ast.ClassDef]) -> Iterator[tuple[int, bool]]:
    """Yield the line of every dataclass and whether it is frozen."""
    for node in classes:
        for text in _decorators(node):
            if text.partition("(")[0].endswith("dataclass"):
                yield node.lineno, "frozen=True" in text


def _code_lines(source: str) -> int:
    lines = (line.strip() for line in source.splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def _functions(parts: Iterable[ast.AST]) -> list[FunctionNode]:
    return [part for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]


def _is_overload(node: FunctionNode) -> bool:
    return any(text.endswith("overload") for text in _decorators(node))


def measure_source(source: str, path: Path) -> FileMeasure:
    """Measure the source of one file."""
    tree = ast.parse(source, filename=str(path))
    parts = list(ast.walk(tree))
    functions = _functions(parts)
    dataclasses = list(_dataclasses(part for part in parts if isinstance(part, ast.ClassDef)))
    comments = list(_comments(source))
    silencers = [(line, text) for line, text in comments if SILENCER.search(text)]
    return FileMeasure(
        path=str(path),
        length=source.count("\n"),
        code_lines=_code_lines(source),
        comments=len(comments),
        has_docstring=ast.get_docstring(tree) is not None,
        functions=tuple(measure_function(node) for node in functions if not _is_overload(node)),
        catch_alls=tuple(p.lineno for p in parts if isinstance(p, ast.ExceptHandler) and _is_catch_all(p)),
        imports_in_functions=_imports_in_functions(functions),
        silencers=tuple(line for line, _ in silencers),
        bare_silencers=tuple(line for line, text in silencers if not _has_reason(text)),
        frozen_dataclasses=sum(is_frozen for _, is_frozen in dataclasses),
        open_dataclasses=tuple(line for line, is_frozen in dataclasses if not is_frozen),
    )
