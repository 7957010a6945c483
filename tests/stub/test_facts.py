"""Every fact about claude that a turn depends on, and every case from elsewhere, has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.stub.facts import CASES, FACTS

FOLDER = Path(__file__).parent
QUOTED = re.compile(r'"([^"\n]*)"')


def named_in_tests() -> set[str]:
    """Return every id that stands as a string in the modules of this tier."""
    modules = [path for path in FOLDER.glob("*.py") if path.name not in {"facts.py", Path(__file__).name}]
    found: set[str] = set()
    for module in modules:
        strings = [text for text in QUOTED.findall(module.read_text()) if " " not in text]
        for text in strings:
            found.update(part for part in text.split("+") if "case-" in part or "facts-" in part)
    return found


def test_each_fact_has_a_test() -> None:
    """So that a missing one shows."""
    named = " ".join(named_in_tests())
    missing = [fact for fact in FACTS if fact.partition("-case-")[0] not in named]
    assert missing == []


def test_each_case_has_a_test() -> None:
    """As a failure that others had."""
    named = " ".join(named_in_tests())
    missing = [case for case in CASES if not re.search(rf"case-(?:[A-Z]\d+-)*{case}(?!\d)", named)]
    assert missing == []
