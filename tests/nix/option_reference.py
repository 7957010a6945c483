"""The option reference in docs/nixos.md: `python -m tests.nix.option_reference` writes it anew.

Needs nixpkgs' library: HIVE_NIXPKGS_LIB, or <nixpkgs/lib>.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from tests.nix.evaluation import HERE, REPOSITORY, evaluate, nixpkgs_library

DOCUMENT = REPOSITORY / "docs" / "nixos.md"
BEGIN = "<!-- options: written by python -m tests.nix.option_reference -->\n"
END = "<!-- end of options -->\n"
ROLE = re.compile(r"\{(?:option|command|manpage|env|file|var)\}")


def options() -> list[dict[str, Any]]:
    """Return all options that a user may set, as the modules declare them."""
    found: list[dict[str, Any]] = evaluate(HERE / "options.nix", library=nixpkgs_library())
    return found


def rendered(found: list[dict[str, Any]]) -> str:
    """Return the reference as Markdown."""
    return "".join(entry(option) for option in found)


def entry(option: dict[str, Any]) -> str:
    """Return one option: its name, what it is for, its type, default and example."""
    text = " ".join(ROLE.sub("", option["description"] or "MCP servers of the agent, by name.").split())
    lines = [f"**`{option['name']}`**" + (" (read-only)" if option["readOnly"] else ""), "", text, ""]
    lines.append(f"- type: {option['type']}")
    lines += value_lines("default", option["default"])
    lines += value_lines("example", option["example"])
    return "\n".join([*lines, "", ""])


def value_lines(title: str, value: str | None) -> list[str]:
    """Return the lines about a value; one of several lines becomes a block of code."""
    if value is None:
        return []
    if "\n" not in value.strip():
        return [f"- {title}: `{value.strip()}`"]
    code = [f"  {line}".rstrip() for line in value.strip().splitlines()]
    return [f"- {title}:", "", "  ```nix", *code, "  ```"]


def parts(text: str) -> tuple[str, str, str]:
    """Return a document before, in and after its reference."""
    before, rest = text.split(BEGIN)
    reference, after = rest.split(END)
    return before, reference, after


def main() -> int:
    """Write the reference into the document."""
    if nixpkgs_library() is None:
        print("option_reference: there is no library of nixpkgs: set HIVE_NIXPKGS_LIB", file=sys.stderr)
        return 1
    before, _, after = parts(DOCUMENT.read_text())
    DOCUMENT.write_text(f"{before}{BEGIN}\n{rendered(options())}{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
