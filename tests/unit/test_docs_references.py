"""The references in the documentation are those of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config_schema import KEYS
from hive_subagent_daemon.tools import TOOLS
from tests.docs import configuration_reference, tools_reference
from tests.docs.references import BEGIN, END, REFERENCES, with_reference

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("document", REFERENCES, ids=lambda path: path.name)
def test_a_reference_is_current(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert text == with_reference(text, REFERENCES[document]()), "python -m tests.docs.references writes it"


def test_every_key_has_a_row() -> None:
    reference = configuration_reference.rendered()
    assert reference.count("\n| `") == len(KEYS)


def test_every_tool_and_argument_is_there() -> None:
    reference = tools_reference.rendered()
    for binding in TOOLS:
        section = reference.partition(f"## {binding.tool.name}\n")[2].partition("\n## ")[0]
        assert str(binding.tool.description) in section
        for name in binding.tool.input_schema["properties"]:
            assert f"| `{name}` |" in section


def test_only_what_is_between_the_marks_is_written() -> None:
    document = f"before\n{BEGIN}old\n{END}after\n"
    assert with_reference(document, "new") == f"before\n{BEGIN}\nnew\n{END}after\n"
