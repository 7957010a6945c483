"""A real daemon with a token: who gets in, what a reload does, and which start is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stub.reloads import reload, status_for_another_user
from tests.stub.steps import forever, init, reach, spawn
from tests.stub.stub_call import TOKEN
from tests.support.daemon_harness import Setting
from tests.support.other_user import NOBODY, needs_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon

SECRET, NEXT = TOKEN, "another-token-of-20-letters"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a token file."""
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@needs_root
def test_a_token_lets_another_user_in_and_can_be_replaced_while_the_daemon_runs(
    make_daemon: MakeDaemon, file: Path
) -> None:
    daemon = make_daemon(Setting(tables={"auth": {"token_file": str(file)}})).boot()
    assert status_for_another_user(daemon, None) == 401
    assert status_for_another_user(daemon, NEXT) == 401
    # The guard has let it through: what it sent is no request of MCP.
    assert status_for_another_user(daemon, SECRET) not in {401, 403}
    file.write_text(NEXT)
    reload(daemon)
    assert status_for_another_user(daemon, SECRET) == 401
    assert status_for_another_user(daemon, NEXT) not in {401, 403}
    file.write_text("short")
    reload(daemon)
    assert status_for_another_user(daemon, NEXT) not in {401, 403}
    assert f"the token file was not read again, the old token stays: {file}: a token has 16" in daemon.log
    daemon.ok("status")
    assert SECRET not in daemon.log
    assert NEXT not in daemon.log


@needs_root
def test_an_allowed_user_is_let_in_without_a_token(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(Setting(tables={"auth": {"allow_uids": [NOBODY]}})).boot()
    assert status_for_another_user(daemon, None) not in {401, 403}


def test_a_subagent_is_refused_with_the_token_too(make_daemon: MakeDaemon, file: Path, name: str) -> None:
    """It can read its agent's files."""
    daemon = make_daemon(Setting(tables={"auth": {"token_file": str(file)}})).boot()
    child = spawn(f"{name}.child", calls=daemon.port)
    daemon.start(name, [init(), child, reach(f"{name}.up"), forever()])
    daemon.reached(f"{name}.up")
    assert " 403" in (daemon.scripts / f"{name}.child.answer").read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read (No such file or directory)"), ("short", "a token has 16 to 4096 characters")],
)
def test_a_token_that_cannot_be_read_refuses_the_start(
    make_daemon: MakeDaemon, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "t"
    if content is not None:
        path.write_text(content)
    daemon = make_daemon(Setting(tables={"auth": {"token_file": str(path)}}))
    daemon.spawn()
    assert daemon.ends() == 1
    assert f"hive-subagent-daemon: auth.token_file: {path}: " in daemon.log
    assert said in daemon.log


def test_a_credential_of_systemd_is_found(make_daemon: MakeDaemon, file: Path) -> None:
    setting = Setting(
        tables={"auth": {"token_file": "$CREDENTIALS_DIRECTORY/token"}},
        outer_environment={"CREDENTIALS_DIRECTORY": str(file.parent)},
    )
    make_daemon(setting).boot().ok("status")


def test_an_address_that_others_reach_needs_a_token(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(Setting(top={"listen": ["0.0.0.0:0"]}))
    daemon.spawn()
    assert daemon.ends() == 2
    assert 'listen: "0.0.0.0:0" is not a loopback address; that needs a token, so set auth' in daemon.log
