"""The option layers: defaults, overrides, mistakes. Needs nixpkgs' library, which not every machine has."""

from __future__ import annotations

from tests.nix.evaluation import HERE, evaluate, needs_library, nixpkgs_library

pytestmark = needs_library


def test_every_case_has_the_value_that_it_expects() -> None:
    cases = evaluate(HERE / "layer_cases.nix", library=nixpkgs_library())
    assert len(cases) > 20
    wrong = {name: case for name, case in cases.items() if case["value"] != case["expected"]}
    assert not wrong
