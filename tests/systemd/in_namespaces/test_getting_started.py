"""What docs/getting-started.md has a newcomer type to systemd works as written, and can be undone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.claude.real_daemon import claude_environment
from tests.support.claude_versions import VARIABLE, program_under_test
from tests.support.offline_model import OfflineModel
from tests.support.scripted_daemon import REPOSITORY, toml
from tests.systemd.managers import USER, output_of
from tests.systemd.service_harness import write_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.systemd.managers import Manager

DAEMON_SECONDS = 30
UNIT = "hive-subagent.service"
HOME = Path("/home") / USER.user
NOT_HERE = ("claude ", "loginctl ")
"""There is no claude of Anthropic's here, and the user lingers already: a machine has no polkit to ask."""


def typed(title: str) -> list[str]:
    """Return what is to be typed in the section that begins like this, block by block."""
    text = (REPOSITORY / "docs" / "getting-started.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [[line for line in block.splitlines() if not line.startswith(NOT_HERE)] for block in blocks]
    return ["\n".join(block) for block in lines]


def environment() -> dict[str, str]:
    """Return what the shell of the newcomer has."""
    home = {"HOME": str(HOME), "PATH": f"{HOME}/.local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return USER.manager.environment | home


def by_newcomer(*blocks: str) -> str:
    """Let one shell of the user run some commands, each of which must succeed."""
    shell = ("bash", "-euo", "pipefail", "-c", "\n".join(blocks))
    return output_of(*shell, uid=USER.uid, environment=environment())


@pytest.fixture
def installed(managers: list[Manager]) -> Iterator[None]:
    """Lay out the home of the user as the steps before have left it."""
    assert USER.manager in managers
    (HOME / ".local").mkdir()
    daemon = write_program(HOME / ".local/bin")
    command = daemon.with_name("hive-subagent")
    command.write_text(daemon.read_text().replace("daemon_main", "client_main"))
    command.chmod(0o755)
    (HOME / ".local/share/hive-subagent").mkdir(parents=True)
    (HOME / "project").mkdir()
    for path in (HOME / ".local", HOME / "project", *(HOME / ".local").rglob("*")):
        os.chown(path, USER.uid, USER.uid)
    yield
    for folder in (".local", ".config", "project"):
        shutil.rmtree(HOME / folder, ignore_errors=True)


@pytest.fixture
def by_hand(installed: None) -> Iterator[None]:
    """Start the daemon as in step 2, with the real claude and an offline model instead of a login."""
    assert installed is None
    program = program_under_test()
    if program is None:
        pytest.skip(f"no real claude: set {VARIABLE} to its path, or let scripts/test fetch one")
    (HOME / ".local/bin/claude").symlink_to(program)
    (HOME / ".config/hive-subagent").mkdir(parents=True)
    with OfflineModel() as model:
        values = {name: value for name, value in claude_environment(Path(), model).items() if name != "HOME"}
        (HOME / ".config/hive-subagent/config.toml").write_text(toml({"environment": values}))
        command = ("bash", "-euc", f"{typed('2. Start a daemon')[0].replace('hive-sub', 'exec hive-sub')}")
        daemon = subprocess.Popen(
            command, env=environment(), user=USER.uid, group=USER.uid, extra_groups=[], stderr=subprocess.PIPE
        )
        try:
            assert daemon.stderr is not None
            assert any(b"listening on http://127.0.0.1:7310/mcp" in line for line in daemon.stderr)
            yield
        finally:
            daemon.send_signal(signal.SIGINT)
            daemon.communicate(timeout=DAEMON_SECONDS)
    assert daemon.returncode == 0


@pytest.mark.usefixtures("by_hand")
def test_a_first_subagent_by_hand_works_as_written() -> None:
    work, more, close = typed("3. A first subagent, by hand")
    shown = by_newcomer(work, more)
    ids = list(dict.fromkeys(re.findall(r"\b2\d{7}_\d{6}_\d{3}_[0-9a-f]{4}  hello: completed", shown)))
    assert len(ids) == 2, shown
    closed = by_newcomer(re.sub(r"2\S+_9f3a", ids[0].split()[0], close), "hive-subagent loose-ends")
    assert ids[0] not in closed
    assert ids[1] in closed


@pytest.mark.usefixtures("installed")
def test_systemd_takes_over_as_written_and_can_be_relieved_as_written() -> None:
    shown = by_newcomer(*typed("5. Leave it to systemd"))
    assert "No subagents yet." in shown
    assert 'Status: "0 running, 0 loose ends"' in shown
    assert USER.manager.show(UNIT, "ActiveState") == "active"
    by_newcomer(*typed("When something does not work"))
    assert USER.manager.show(UNIT, "LoadState") == "not-found"
    assert not (HOME / ".local/state/hive-subagent").exists()
    assert not list((HOME / ".local/bin").iterdir())
