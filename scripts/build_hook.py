"""Hatch's build hook: what is built from git carries its commit, which `--version` then names."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "hive_subagent_daemon"
GIVEN = "HIVE_SUBAGENT_COMMIT"
"""Builds that see no repository, such as those of Nix, give the commit in this variable."""


class CommitHook(BuildHookInterface[Any]):
    """Puts the commit into a wheel and an sdist."""

    PLUGIN_NAME = "custom"
    _folder: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file; not to an editable install, whose checkout moves on and is asked itself."""
        package = Path(self.root) / PACKAGE
        # By its path: while it is built, nothing of the package can be imported.
        known = runpy.run_path(str(package / "commit.py"))
        if version == "editable" or known["built_commit"](package):
            return  # an sdist already has the file, among those of the package
        commit = os.environ.get(GIVEN) or known["checkout_commit"](package.parent)
        if commit:
            self._folder = TemporaryDirectory()
            source = Path(self._folder.name) / known["FILE_NAME"]
            source.write_text(f"{commit}\n", encoding="ascii")
            build_data["force_include"][str(source)] = f"{PACKAGE}/{known['FILE_NAME']}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file again."""
        del version, build_data, artifact_path
        if self._folder:
            self._folder.cleanup()
