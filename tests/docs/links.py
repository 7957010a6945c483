"""Links of the documentation: `python -m tests.docs.links` names each that leads nowhere.

Checked are links to files of the repository and to headings, as GitHub names them. Nothing is fetched.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tests.style.texts import REPOSITORY, repository_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^ *\2`*\s*?$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\[[^\]\[]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_NAMED = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_HTML_ANCHOR = re.compile(r"""<a (?:name|id)=["']([^"']+)["']""")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


def markdown_files(root: Path = REPOSITORY) -> list[Path]:
    """Return every Markdown file of the repository."""
    return [path for path in repository_files(root) if path.suffix == ".md"]


def prose(text: str) -> str:
    """Return the text without its blocks of code."""
    return _FENCE.sub("", text)


def links(text: str) -> Iterator[str]:
    """Yield where each link of a document leads."""
    readable = _CODE.sub("x", prose(text))
    yield from _LINK.findall(readable)
    yield from _NAMED.findall(readable)


def anchors(text: str) -> set[str]:
    """Return the anchors of a document: one for each heading, a repeated one numbered."""
    found: set[str] = set(_HTML_ANCHOR.findall(text))
    for heading in _HEADING.findall(prose(text)):
        label = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        plain = _NOT_IN_ANCHORS.sub("", label.lower()).replace(" ", "-")
        number = 0
        while (anchor := f"{plain}-{number}" if number else plain) in found:
            number += 1
        found.add(anchor)
    return found


def broken_links(root: Path = REPOSITORY) -> list[str]:
    """Return the place and the target of each link that leads nowhere."""
    return [
        f"{path.relative_to(root)}: {target}"
        for path in markdown_files(root)
        for target in links(path.read_text(encoding="utf-8"))
        if not _ELSEWHERE.match(target) and not leads_somewhere(path, target)
    ]


def leads_somewhere(source: Path, target: str) -> bool:
    """Tell whether a file of the repository, and the heading in it, is there."""
    name, _, anchor = target.partition("#")
    path = source.parent / name if name else source
    if not anchor or not path.is_file():
        return path.exists()
    return anchor in anchors(path.read_text(encoding="utf-8"))


def main() -> int:
    """Print the links that lead nowhere; exit 1 when there is one."""
    problems = broken_links()
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
