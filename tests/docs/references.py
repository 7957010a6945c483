"""The parts of the documentation that are written from the code: `python -m tests.docs.references`.

docs/tools.md has what the tools tell their callers, docs/configuration.md every key that is read. The text
around these parts is written by hand.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.docs import configuration_reference, tools_reference
from tests.style.texts import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCS = REPOSITORY / "docs"
REFERENCES: dict[Path, Callable[[], str]] = {
    DOCS / "tools.md": tools_reference.rendered,
    DOCS / "configuration.md": configuration_reference.rendered,
}
BEGIN = "<!-- written by python -m tests.docs.references -->\n"
END = "<!-- end of what is written -->\n"


def with_reference(document: str, reference: str) -> str:
    """Return the document with a new reference between its two marks."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{reference}\n{END}{after}"


def main() -> int:
    """Write every reference into its document."""
    for path, render in REFERENCES.items():
        path.write_text(with_reference(path.read_text(encoding="utf-8"), render()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
