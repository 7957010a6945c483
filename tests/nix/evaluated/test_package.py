"""The package for Nix has what pyproject.toml asks for, and the lock has every input of the flake."""

from __future__ import annotations

import base64
import json
import tomllib
from importlib.metadata import requires
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hive_subagent_daemon import __version__
from tests.nix.evaluation import HERE, REPOSITORY, evaluate, needs_nix

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = needs_nix

# Read in public lock files of others. A change of the lock has to be meant: then write here what `nix flake
# update` has written there.
PINS = {
    "nixpkgs": (
        "b18a4b905f8d028dc4476412e6d6891728695379",
        "sha256-gwrPcFf/rDjHPaVflbDZ040ZDmBTRj/7+s8ZmE2SaIM=",
    ),
    "treefmt-nix": (
        "27b3b12a8e6375f28ebe122f07d230ca5459bbfa",
        "sha256-WSFCsDSE5ffgD2MqzkM2CYjeFiKhRF/dJUN8uedb6YE=",
    ),
}


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    """Return what nixpkgs would be given."""
    found: dict[str, Any] = evaluate(HERE / "package_probe.nix")
    return found


def project() -> dict[str, Any]:
    """Return what pyproject.toml says of the project."""
    found: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return found


def project_requirements() -> list[Requirement]:
    """Return what the daemon needs."""
    return [Requirement(text) for text in project()["dependencies"]]


def names_of(requirements: Iterable[str]) -> set[str]:
    """Return the names of the packages, as nixpkgs writes them."""
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def test_its_version_is_that_of_the_package(package: dict[str, Any]) -> None:
    assert package["version"] == __version__


def test_it_has_every_dependency_of_the_project(package: dict[str, Any]) -> None:
    missing = names_of(project()["dependencies"]) - set(package["dependencies"])
    assert not missing, (
        f"pyproject.toml needs {sorted(missing)}: add each as pkgs.NAME to `dependencies` in nix/package.nix "
        "and to `names` in tests/nix/package_probe.nix; where nixpkgs lacks it or has it too old, also to "
        "nix/wheels.nix and nix/python-packages.nix"
    )


def test_its_tests_have_what_the_project_s_tests_need(package: dict[str, Any]) -> None:
    tools = {"mypy", "ruff"}  # not libraries: the flake names them where they are used
    needed = names_of(project()["optional-dependencies"]["dev"]) - tools
    assert set(package["testPackages"]) == needed, (
        "nix/test-packages.nix has to name what the extra `dev` does"
    )


def test_its_wheels_are_new_enough(package: dict[str, Any]) -> None:
    wheels = package["wheels"]
    for requirement in project_requirements():
        if requirement.name in wheels:
            assert wheels[requirement.name]["version"] in requirement.specifier


def test_its_wheels_depend_on_what_they_ask_for(package: dict[str, Any]) -> None:
    """Compared with what is installed here, where that is the same version."""
    compared = 0
    for name, wheel in package["wheels"].items():
        needed = {}
        for text in requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed[canonicalize_name(requirement.name)] = requirement
        given = set(wheel["dependencies"]) - {"typing-extensions", "cryptography"}
        assert given == set(needed) - {"typing-extensions"}, name
        for each, requirement in needed.items():
            if each in package["wheels"]:
                assert package["wheels"][each]["version"] in requirement.specifier, (name, each)
                compared += 1
    assert compared > 5


def test_each_wheel_is_named_as_the_index_names_it_and_has_a_hash(package: dict[str, Any]) -> None:
    for name, wheel in package["wheels"].items():
        source = wheel["src"]
        assert source["pname"] == name.replace("-", "_")
        assert (source["format"], source["dist"], source["python"]) == ("wheel", "py3", "py3")
        kind, _, digest = source["hash"].partition("-")
        assert (kind, len(base64.b64decode(digest))) == ("sha256", 32)


def test_the_lock_has_every_input_of_the_flake() -> None:
    lock = json.loads((REPOSITORY / "flake.lock").read_text())
    inputs = evaluate(f"builtins.mapAttrs (_: each: each.url) (import {REPOSITORY / 'flake.nix'}).inputs")
    nodes = lock["nodes"]
    assert nodes["root"]["inputs"].keys() == inputs.keys()
    for name, url in inputs.items():
        original = nodes[name]["original"]
        parts = [original["owner"], original["repo"], *([original["ref"]] if "ref" in original else [])]
        assert url == f"github:{'/'.join(parts)}"
        locked = nodes[name]["locked"]
        assert [locked[key] for key in ("owner", "repo")] == [original[key] for key in ("owner", "repo")]


def test_the_lock_has_the_revisions_and_hashes_that_were_read() -> None:
    nodes = json.loads((REPOSITORY / "flake.lock").read_text())["nodes"]
    locked = {name: node["locked"] for name, node in nodes.items() if "locked" in node}
    assert {name: (each["rev"], each["narHash"]) for name, each in locked.items()} == PINS
