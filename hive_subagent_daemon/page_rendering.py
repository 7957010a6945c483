"""The page as HTML: the templates of this package filled in. Imported at the first look at the page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from jinja2 import DictLoader, Environment, StrictUndefined

if TYPE_CHECKING:
    from hive_subagent_daemon.page_view import Detail, Nobody, Overview

_FOLDER: Final = "page_templates"
_TEMPLATES: Final = ("frame.html", "parts.html", "overview.html", "detail.html", "nobody.html")


def overview_html(page: Overview) -> bytes:
    """Return the page of all subagents. Blocks at its first call."""
    return _rendered("overview.html", page)


def detail_html(page: Detail) -> bytes:
    """Return the page of one subagent. Blocks at its first call."""
    return _rendered("detail.html", page)


def nobody_html(page: Nobody) -> bytes:
    """Return the page of a name that nothing is known of. Blocks at its first call."""
    return _rendered("nobody.html", page)


def style_sheet() -> bytes:
    """Return the style sheet. Blocks."""
    return _content("style.css").encode()


def _rendered(template: str, page: Overview | Detail | Nobody) -> bytes:
    text = _environment().get_template(template).render(page=page, frame=page.frame)
    return text.encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    """Return the templates: everything that is filled in is escaped, everything missing is an error."""
    loader = DictLoader({name: _content(name) for name in _TEMPLATES})
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _content(name: str) -> str:
    return files("hive_subagent_daemon").joinpath(_FOLDER, name).read_text(encoding="utf-8")
