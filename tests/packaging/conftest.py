"""One build for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.packaging.builds import Built, build, copied_repository, unpacked

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build wheel and sdist of a checkout in use."""
    root = tmp_path_factory.mktemp("checkout")
    commit = copied_repository(root)
    wheel, sdist = sorted(
        build(root, tmp_path_factory.mktemp("built")), key=lambda path: path.suffix != ".whl"
    )
    return Built(commit, wheel, sdist)


@pytest.fixture(scope="session")
def release(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an unpacked sdist."""
    return unpacked(built.sdist, tmp_path_factory.mktemp("release"))
