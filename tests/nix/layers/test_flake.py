"""What flake.nix gives, evaluated with stand-ins for nixpkgs and treefmt around nixpkgs' library."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nix.evaluation import HERE, LIBRARY_VARIABLE, REPOSITORY, evaluate, needs_library, nixpkgs_library

pytestmark = needs_library


@pytest.fixture(scope="module")
def flake() -> dict[str, Any]:
    """Return a description of all outputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIBRARY_VARIABLE, str(nixpkgs_library()))
        found: dict[str, Any] = evaluate(HERE / "flake_probe.nix", library=nixpkgs_library())
        return found


def test_it_gives_packages_modules_an_overlay_and_a_shell(flake: dict[str, Any]) -> None:
    systems = ["aarch64-linux", "x86_64-linux"]
    assert flake["names"] == {
        "devShells": systems,
        "nixosModules": ["agent", "default"],
        "overlays": ["default"],
        "packages": systems,
    }
    assert flake["package"] == str(REPOSITORY / "nix" / "package.nix")
    assert flake["shell"] == "shell"


def test_its_modules_have_its_package(flake: dict[str, Any]) -> None:
    assert flake["moduleHasPackage"] is True


def test_its_checks_are_those_that_can_run_anywhere_and_those_that_need_nixos(flake: dict[str, Any]) -> None:
    needs_nixpkgs = ["format", "layers", "nixos", "package", "unit-tests", "vm"]
    assert flake["checks"] == sorted(["core", "faults", "values", *needs_nixpkgs])
    assert all(text.endswith(" cases hold\n") for text in flake["cases"])


def test_its_tests_and_its_shell_have_the_packages_of_the_tests(flake: dict[str, Any]) -> None:
    of_tests, of_shell = map(set, flake["testPackages"])
    assert of_tests - {"pytestCheckHook"} == of_shell - {"mypy"} >= {"cryptography", "pytest"}


def test_its_virtual_machine_is_the_one_that_is_looked_at_here(flake: dict[str, Any]) -> None:
    assert flake["vm"] == ["machine.nix"]
