"""The package for Nix has what pyproject.toml asks for, and the lock has every input of the flake."""

from __future__ import annotations

import base64
import json
import tomllib
from importlib.metadata import requires
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hive_subagent_daemon import __version__
from tests.nix.evaluation import HERE, REPOSITORY, evaluate, needs_nix

pytestmark = needs_nix


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    """Return what nixpkgs would be given."""
    found: dict[str, Any] = evaluate(HERE / "package_probe.nix")
    return found


def project_requirements() -> list[Requirement]:
    """Return what the daemon needs."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def test_its_version_is_that_of_the_package(package: dict[str, Any]) -> None:
    assert package["version"] == __version__


def test_its_dependencies_are_those_of_the_project(package: dict[str, Any]) -> None:
    assert set(package["dependencies"]) == {canonicalize_name(each.name) for each in project_requirements()}


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
        assert len(nodes[name]["locked"]["rev"]) == 40
