"""An installed wheel: its commands work, from nothing but what is installed."""

from __future__ import annotations

import json
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import __version__
from tests.packaging.builds import Built, run

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Installed:
    """The folder in which a wheel was installed."""

    prefix: Path

    def run(self, name: str, *words: str) -> str:
        """Run an installed command; what it needs of others is taken from the environment of the tests."""
        scheme = {"base": str(self.prefix), "platbase": str(self.prefix)}
        library = sysconfig.get_path("purelib", "posix_prefix", scheme)
        return run(str(self.prefix / "bin" / name), *words, cwd=self.prefix, PYTHONPATH=library)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel with pip, without network."""
    prefix = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(*pip, "--ignore-installed", f"--prefix={prefix}", str(built.wheel), cwd=prefix)
    return Installed(prefix)


def test_the_daemon_names_its_version_and_commit(built: Built, installed: Installed) -> None:
    assert installed.run("hive-subagent-daemon", "--version") == (
        f"hive-subagent-daemon {__version__} ({built.commit})\n"
    )


def test_unit_files_are_printed_and_name_the_installed_program(installed: Installed) -> None:
    units = installed.run("hive-subagent-daemon", "units", "--user")
    assert f"ExecStart={installed.prefix}/bin/hive-subagent-daemon" in units


@pytest.mark.parametrize(
    "place",
    [
        "share/man/man1/hive-subagent.1",
        "share/man/man5/hive-subagent.toml.5",
        "share/man/man8/hive-subagent-daemon.8",
        "share/bash-completion/completions/hive-subagent",
        "share/fish/vendor_completions.d/hive-subagent.fish",
        "share/zsh/site-functions/_hive-subagent",
        "share/hive-subagent/.claude-plugin/marketplace.json",
    ],
)
def test_what_other_programs_look_for_is_where_they_look(place: str, installed: Installed) -> None:
    assert (installed.prefix / place).stat().st_size > 0


def test_the_installed_plugins_are_whole_and_of_this_version(installed: Installed) -> None:
    folder = installed.prefix / "share/hive-subagent"
    marketplace = json.loads((folder / ".claude-plugin/marketplace.json").read_text())
    for plugin in marketplace["plugins"]:
        root = folder / plugin["source"]
        assert json.loads((root / ".claude-plugin/plugin.json").read_text())["version"] == __version__
        assert json.loads((root / ".mcp.json").read_text())["mcpServers"]
        assert json.loads((root / "hooks/hooks.json").read_text())["hooks"]
    assert len(marketplace["plugins"]) == 2


def test_the_command_for_people_names_its_version_and_commit(built: Built, installed: Installed) -> None:
    shown = installed.run("hive-subagent", "--version")
    assert __version__ in shown
    assert built.commit in shown
