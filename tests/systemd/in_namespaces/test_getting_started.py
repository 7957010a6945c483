"""What docs/getting-started.md has a newcomer type to systemd works as written, and can be undone."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.scripted_daemon import REPOSITORY
from tests.systemd.managers import USER, output_of
from tests.systemd.service_harness import write_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.managers import Manager

UNIT = "hive-subagent.service"
HOME = Path("/home") / USER.user
NOT_HERE = ("claude ", "loginctl ")
"""There is no claude of Anthropic's here, and the user lingers already: a machine has no polkit to ask."""


def typed(title: str) -> str:
    """Return the commands of the section that begins like this."""
    text = (REPOSITORY / "docs" / "getting-started.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return "\n".join(line for line in str(code).splitlines() if not line.startswith(NOT_HERE))


def by_newcomer(code: str) -> str:
    """Let a shell of the user run some commands, each of which must succeed."""
    environment = {"HOME": str(HOME), "PATH": f"{HOME}/.local/bin:/usr/bin:/bin"}
    shell = ("bash", "-euo", "pipefail", "-c", code)
    return output_of(*shell, uid=USER.uid, environment=USER.manager.environment | environment)


@pytest.fixture
def installed(managers: list[Manager]) -> Iterator[None]:
    """Lay out the home of the user as the steps before have left it."""
    assert USER.manager in managers
    (HOME / ".local").mkdir()
    daemon = write_program(HOME / ".local/bin")
    command = daemon.with_name("hive-subagent")
    command.write_text(daemon.read_text().replace("daemon_main", "command_main"))
    command.chmod(0o755)
    (HOME / ".local/share/hive-subagent").mkdir(parents=True)
    (HOME / "project").mkdir()
    for path in (HOME / ".local", HOME / "project", *(HOME / ".local").rglob("*")):
        os.chown(path, USER.uid, USER.uid)
    yield
    for folder in (".local", ".config", "project"):
        shutil.rmtree(HOME / folder, ignore_errors=True)


@pytest.mark.usefixtures("installed")
def test_systemd_takes_over_as_written_and_can_be_relieved_as_written() -> None:
    shown = by_newcomer(typed("5. Leave it to systemd"))
    assert "No subagents yet." in shown
    assert 'Status: "0 running, 0 loose ends"' in shown
    assert USER.manager.show(UNIT, "ActiveState") == "active"
    by_newcomer(typed("When something does not work"))
    assert USER.manager.show(UNIT, "LoadState") == "not-found"
    assert not (HOME / ".local/state/hive-subagent").exists()
    assert not list((HOME / ".local/bin").iterdir())
