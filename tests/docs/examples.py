"""What the documentation shows as code: files to write and commands to type."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from tests.docs.links import markdown_files
from tests.style.texts import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```\s*?$", re.MULTILINE | re.DOTALL)
_BEFORE = re.compile(r"^(sudo (-u \S+ )?)?(\S+/)?(?=hive-subagent)")
_PROGRAMS = frozenset({"hive-subagent", "hive-subagent-daemon"})
_OPERATORS = frozenset({"|", ";", "&&", "||", ">", "&"})


@dataclass(frozen=True)
class Block:
    """A piece of code, in which document it stands, and in which language it is."""

    document: str
    language: str
    code: str


@dataclass(frozen=True)
class Invocation:
    """A call of one of our programs in an example."""

    document: str
    program: str
    words: tuple[str, ...]

    @property
    def options(self) -> set[str]:
        """The long options that it is given."""
        return {word.partition("=")[0] for word in self.words if word.startswith("--") and word != "--"}


def blocks(language: str) -> Iterator[Block]:
    """Yield every block in a language, without the indentation of the list that it stands in."""
    for path in markdown_files():
        for indent, found, code in _BLOCK.findall(path.read_text(encoding="utf-8")):
            if found == language:
                lines = (line.removeprefix(indent) for line in code.splitlines())
                yield Block(str(path.relative_to(REPOSITORY)), found, "\n".join(lines) + "\n")


def invocations() -> Iterator[Invocation]:
    """Yield every call of one of our programs at the beginning of a command, behind sudo too."""
    for block in blocks("sh"):
        for line in block.code.replace("\\\n", " ").splitlines():
            command = _BEFORE.sub("", line.strip())
            if command.split(" ")[0] in _PROGRAMS:
                program, *words = shlex.split(command, comments=True)
                yield Invocation(block.document, program, tuple(takewhile(_is_argument, words)))


def _is_argument(word: str) -> bool:
    return word not in _OPERATORS
