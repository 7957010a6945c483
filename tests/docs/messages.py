"""The sentences that the product says when something is wrong, found in its source.

`python -m tests.docs.messages` prints those that docs/troubleshooting.md does not explain, and what stands
there although nobody says it any more. What a sentence is made of at run time stands as `…` in it, in the
document as well.

Every text of at least four words counts, wherever it stands, unless it is known not to be shown in trouble:
docstrings, lines of the log below a warning, helps, descriptions of tools and keys. So a new refusal cannot
be forgotten, by whatever way it reaches its reader.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.docs.ordinary import FOREIGN, ORDINARY
from tests.style.texts import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PACKAGE = REPOSITORY / "hive_subagent_daemon"
DOCUMENT = REPOSITORY / "docs" / "troubleshooting.md"

GAP = "…"
FEWEST_WORDS = 4
DESCRIBING_MODULES = frozenset(
    {"answer_schemas", "classify", "config_schema", "metric_families", "tool_texts"}
)
"""Their texts stand in docs/tools.md, configuration.md and metrics.md; those of classify are patterns."""
DESCRIBING_CALLS = frozenset(
    {"add_argument", "add_parser", "ArgumentParser", "Field", "Kind", "ToolAnnotations", "compile"}
)
DESCRIBING_KEYWORDS = frozenset({"description", "epilog", "help", "metavar", "short_help", "title"})
DESCRIBING_NAMES = frozenset(
    {"allowed", "dir", "environment_value", "expected", "model", "names", "shell_names", "url"}
    | {"variable_names"}
)
"""What a value or an argument may be: in docs/configuration.md and docs/tools.md."""
LOGGERS = frozenset({"log", "_log", "logger"})
QUIET_LEVELS = frozenset({"debug", "info", "log"})

_PERCENT = re.compile(r"%[0-9.]*[a-z]")
_WORD = re.compile(r"[A-Za-z']{2,}")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


@dataclass(frozen=True)
class Message:
    """One sentence of the product and where it is made."""

    place: str
    text: str

    @property
    def shown(self) -> str:
        """The sentence on one line."""
        return " ".join(self.text.split())


def all_messages(package: Path = PACKAGE) -> list[Message]:
    """Return every sentence of a package."""
    return [
        Message(f"{path.relative_to(package.parent)}:{line}", text)
        for path in sorted(package.rglob("*.py"))
        if path.stem not in DESCRIBING_MODULES
        for line, text in sentences(ast.parse(path.read_text(encoding="utf-8")))
    ]


def sentences(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each sentence below a node of the source."""
    if is_describing(node):
        return
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = _PERCENT.sub(GAP, template(node))
        if len(_WORD.findall(text.replace(GAP, " "))) >= FEWEST_WORDS and " " in text.strip():
            yield node.lineno, text
        return
    for child in ast.iter_child_nodes(node):
        yield from sentences(child)


def template(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a text with gaps; of what is no text, nothing."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(template(part) if isinstance(part, ast.Constant) else GAP for part in node.values)


def is_describing(node: ast.AST) -> bool:
    """Tell whether what stands below is never shown because something is wrong."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True  # a docstring
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=level)) if name in LOGGERS:
            return level in QUIET_LEVELS
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in DESCRIBING_CALLS
        case ast.keyword(arg=name):
            return name in DESCRIBING_KEYWORDS
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.lower().strip("_") in DESCRIBING_NAMES
    return False


def spans(document: str) -> list[str]:
    """Return the pieces of code in a document, in the first column of its tables and elsewhere."""
    return [" ".join(found[2].split()) for found in _SPAN.finditer(document)]


def pattern(span: str) -> re.Pattern[str]:
    """Return what finds a span of the document in a sentence: a gap of it stands for anything."""
    return re.compile(".*?".join(re.escape(piece) for piece in span.split(GAP)))


def is_telling(span: str) -> bool:
    """Tell whether a span has enough words to be found by somebody who searches for a message."""
    return len(_WORD.findall(span)) >= FEWEST_WORDS


def unexplained(messages: Iterable[Message], document: str) -> list[Message]:
    """Return the sentences of which no piece stands in the document, and which are not ordinary."""
    known = [*filter(is_telling, spans(document)), *ORDINARY]
    patterns = [pattern(span) for span in known]
    return [each for each in messages if not any(found.search(each.shown) for found in patterns)]


def outdated(messages: Iterable[Message], document: str) -> list[str]:
    """Return the spans in tables that look like a message and are none of the product's, or of others'."""
    texts = [*(each.shown for each in messages), *FOREIGN]
    rows = "\n".join(line for line in document.splitlines() if line.startswith("| "))
    seen = [cell for row in rows.splitlines() for cell in spans(row.rpartition(" | ")[0])]
    return [span for span in seen if is_telling(span) and not any(map(pattern(span).search, texts))]


def main() -> int:
    """Print the sentences that are not explained; exit 1 when there is one."""
    messages, document = all_messages(), DOCUMENT.read_text(encoding="utf-8")
    problems = [f"{each.place}: not explained: {each.shown}" for each in unexplained(messages, document)]
    problems += [f"{DOCUMENT.name}: nobody says: {span}" for span in outdated(messages, document)]
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
