"""The configurations that docs/nixos.md shows are well, each by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.nix.evaluation import HERE, evaluate, needs_library, nixpkgs_library
from tests.nix.option_reference import DOCUMENT, parts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_library

BLOCKS = re.findall(r"^```nix\n(.*?)^```$", parts(DOCUMENT.read_text())[0], flags=re.DOTALL | re.MULTILINE)
# Those that stand in a flake, or say where the modules come from.
OF_THE_MODULES = re.compile(r"nixosSystem|fetchGit")
CONFIGURATIONS = [block for block in BLOCKS if not OF_THE_MODULES.search(block)]
MODULE = re.compile(r"^\{", flags=re.MULTILINE)


def as_module(block: str) -> str:
    """Return a whole module; what is imported there is imported by the test."""
    whole = block if MODULE.search(block) else f"{{\n{block}}}\n"
    head = "" if re.match(r"\{.*\}:", whole) else "{ config, lib, pkgs, ... }:\n"
    return head + re.sub(r"^ *imports = .*\n", "", whole, flags=re.MULTILINE)


def test_there_are_configurations_in_the_document() -> None:
    assert len(CONFIGURATIONS) >= 7


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.strip().splitlines()[0])
def test_it_evaluates_without_a_fault_or_a_warning(block: str, tmp_path: Path) -> None:
    file = tmp_path / "configuration.nix"
    file.write_text(as_module(block))
    found: dict[str, Any] = evaluate(HERE / "documented.nix", library=nixpkgs_library(), configuration=file)
    assert found["faults"] == []
    assert found["warnings"] == []
    assert bool(found["sockets"]) == ("subagent.enable = false" not in block)
