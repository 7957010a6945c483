"""The manual pages and completion scripts that are shipped are those that the code makes, and are sound."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from hive_subagent_daemon import daemon_main, units_main
from hive_subagent_daemon.cli.entry import COMMANDS, ROOT
from hive_subagent_daemon.config_schema import KEYS
from scripts.man_pages import SHARE, escaped, pages

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable

PAGES = sorted(path for path in pages() if path.parts[0] == "man")


def rendered(page: Path) -> str:
    """Return the words of a page, as a reader sees its flags and names."""
    text = pages()[page].replace("\\-", "-")
    return re.sub(r"\bFl ", "-", text)


@pytest.mark.parametrize("place", sorted(pages()), ids=str)
def test_what_is_shipped_is_what_the_code_makes(place: Path) -> None:
    shipped = (SHARE / place).read_text(encoding="utf-8")
    assert shipped == pages()[place], "run `python -m scripts.man_pages`"


def test_nothing_else_is_shipped() -> None:
    assert {path.relative_to(SHARE) for path in SHARE.rglob("*") if path.is_file()} == pages().keys()


def test_a_wheel_takes_them_along() -> None:
    project = tomllib.loads((SHARE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]["share"] == "share"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_each_of_its_options_stands_in_the_page(name: str) -> None:
    page = rendered(Path("man/man1/hive-subagent.1"))
    context = click.Context(ROOT)
    command = ROOT.get_command(context, name)
    assert command is not None
    assert f".Ic {name}\n" in page
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
            assert all(f"-{flag.removeprefix('-')}" in page for flag in parameter.opts)


@pytest.mark.parametrize("command_line", [daemon_main.command_line, units_main.command_line])
def test_every_option_of_the_daemon_stands_in_its_page(command_line: Callable[[], ArgumentParser]) -> None:
    page = rendered(Path("man/man8/hive-subagent-daemon.8"))
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", command_line().format_usage()))
    assert len(flags) > 5
    for flag in flags:
        assert re.search(rf"^\.It .*{flag}(?![\w-])", page, re.MULTILINE), flag


def test_every_key_stands_in_the_page_of_the_configuration() -> None:
    page = rendered(Path("man/man5/hive-subagent.toml.5"))
    assert [f".It Li {key.place[-1]}\n" in page for key in KEYS] == [True] * len(KEYS)
    assert all(escaped(key.meaning).replace("\\-", "-") in page for key in KEYS)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_man_has_nothing_to_complain_of(page: Path) -> None:
    man = shutil.which("man") or pytest.skip("needs man (Debian's man-db)")
    words = [man, "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(SHARE / page)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
