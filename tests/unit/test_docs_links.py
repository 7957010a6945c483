"""No link of the documentation leads nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.links import anchors, broken_links, leads_somewhere, links, markdown_files
from tests.style.texts import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """\
# A page

## What `units` does
## On NixOS: `hyperhive`
## Twice
## Twice

    [not a link]: is code
```sh
# no heading
[no](link.md)
```
"""


def test_every_link_leads_somewhere() -> None:
    assert broken_links() == []


def test_all_documents_are_looked_at() -> None:
    assert {"README.md", "systemd.md", "troubleshooting.md"} <= {path.name for path in markdown_files()}


def test_every_page_is_in_the_index() -> None:
    index = REPOSITORY / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(index.read_text(encoding="utf-8"))}
    assert {page for page in index.parent.glob("*.md") if page != index} <= listed


def test_headings_are_anchors_as_github_writes_them() -> None:
    assert anchors(PAGE) == {"a-page", "what-units-does", "on-nixos-hyperhive", "twice", "twice-1"}


def test_links_in_code_are_none() -> None:
    assert list(links(PAGE + "See [one](a.md), `[none](b.md)` and [two](c.md#d).")) == ["a.md", "c.md#d"]


@pytest.mark.parametrize(
    ("target", "leads"),
    [("#twice", True), ("#thrice", False), ("page.md#a-page", True), ("other.md", False), (".", True)],
)
def test_a_link_needs_its_file_and_its_heading(target: str, *, leads: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert leads_somewhere(page, target) == leads
