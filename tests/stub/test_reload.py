"""A real SIGHUP: what is taken over while turns run, what waits for a restart, and a file that is invalid."""

from __future__ import annotations

import http.client
import os
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.stub.facts import about
from tests.stub.reloads import reload, status_for_another_user
from tests.stub.steps import held, success
from tests.support.daemon_harness import Setting
from tests.support.other_user import NOBODY, as_user, needs_root
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

SECRET, NEXT = "a-token-of-more-than-16", "another-token-of-20-letters"
LET_IN = 400  # past the guard: what was sent is no request of MCP
Tables = dict[str, dict[str, object]]


def change(daemon: Daemon, tables: Mapping[str, Mapping[str, object]], **top: object) -> None:
    """Write the configuration anew, with these tables; the reload is still to come."""
    daemon.setting = Setting(top=top, tables=tables)
    daemon.write_config()


def warnings(daemon: Daemon) -> list[str]:
    """Return the warnings of `status` but the one that says how turns run here."""
    found: list[str] = daemon.ok("status").content["warnings"]
    return [one for one in found if not one.startswith("turns run as process groups")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a token file."""
    return token_file(tmp_path / "token", SECRET)


def token_file(path: Path, secret: str) -> Path:
    """Write a token file and return it."""
    path.write_text(f"{secret}\n")
    path.chmod(0o600)
    return path


@needs_root
@about("decision-20")
def test_a_reload_lets_another_uid_in_and_out_again(make_daemon: MakeDaemon) -> None:
    """One that is taken out of the list is refused at its next request, and what runs goes on."""
    daemon = make_daemon().boot()
    daemon.start("a", held("go"))
    assert status_for_another_user(daemon, None) == 403
    change(daemon, {"auth": {"allow_uids": [NOBODY]}})
    assert f"from now on: 0, {os.geteuid()}, {NOBODY}" in reload(daemon)
    assert status_for_another_user(daemon, None) == LET_IN
    change(daemon, {})
    reload(daemon)
    assert status_for_another_user(daemon, None) == 403
    daemon.open_gate("go")
    assert daemon.loose_end("a")["outcome"] == "completed"


@needs_root
def test_a_connection_that_was_let_in_ends_with_the_permission(make_daemon: MakeDaemon) -> None:
    """It is kept open, but not what it may do."""
    daemon = make_daemon(Setting(tables={"auth": {"allow_uids": [NOBODY]}})).boot()
    request = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

    def twice() -> bytes:
        """Ask on one connection, before and after the permission is taken back."""
        with closing(socket.create_connection(("127.0.0.1", daemon.port), 10)) as connection:
            connection.sendall(request)
            first = http.client.HTTPResponse(connection)
            first.begin()
            first.read()
            os.write(told, b"x")
            os.read(wait, 1)
            connection.sendall(request)
            return b"%d %s" % (first.status, connection.recv(12))

    (hear, told), (wait, go) = os.pipe(), os.pipe()
    with as_user(twice) as other:
        assert os.read(hear, 1) == b"x"
        change(daemon, {})
        reload(daemon)
        os.write(go, b"x")
        assert other.result() == b"400 HTTP/1.1 403"
    for end in (hear, told, wait, go):
        os.close(end)


@needs_root
def test_a_reload_takes_over_another_token_file_and_none(
    make_daemon: MakeDaemon, file: Path, tmp_path: Path
) -> None:
    other = token_file(tmp_path / "other", NEXT)
    daemon = make_daemon().boot()
    assert status_for_another_user(daemon, SECRET) == 403
    change(daemon, {"auth": {"token_file": str(file)}})
    reload(daemon)
    assert status_for_another_user(daemon, SECRET) == LET_IN
    change(daemon, {"auth": {"token_file": str(other)}})
    reload(daemon)
    assert [status_for_another_user(daemon, secret) for secret in (SECRET, NEXT)] == [401, LET_IN]
    change(daemon, {"auth": {"token_file": str(tmp_path / "missing")}})
    said = reload(daemon)
    assert f"the old token stays: {tmp_path / 'missing'}: the token file cannot be read" in said
    assert status_for_another_user(daemon, NEXT) == LET_IN
    assert ["the old token stays" in one for one in warnings(daemon)] == [True]
    change(daemon, {})
    assert "there is no token any more" in reload(daemon)
    assert status_for_another_user(daemon, NEXT) == 403
    assert warnings(daemon) == []


@needs_root
def test_the_token_stays_where_other_machines_reach_the_daemon(make_daemon: MakeDaemon, file: Path) -> None:
    """Without it the address would have been refused at the start."""
    tables: Tables = {"auth": {"token_file": str(file)}}
    daemon = make_daemon(Setting(top={"listen": ["127.0.0.1:0", "0.0.0.0:0"]}, tables=tables)).boot()
    change(daemon, {}, listen=["127.0.0.1:0"])
    said = reload(daemon)
    assert "auth.token_file was taken out of the configuration, but other machines can reach http://" in said
    assert "only a restart takes it up: listen" in said
    assert [status_for_another_user(daemon, secret) for secret in (None, SECRET)] == [401, LET_IN]


@needs_root
@about("decision-20")
def test_an_invalid_file_changes_nothing_and_is_seen_until_it_is_mended(
    make_daemon: MakeDaemon, file: Path
) -> None:
    """In the log and in `status`; the token's own file is read again all the same."""
    tables: Tables = {"auth": {"token_file": str(file), "allow_uids": [NOBODY]}}
    daemon = make_daemon(Setting(tables=tables)).boot()
    change(daemon, {"auth": {"allow_uids": []}}, log_level="debug", umask="0999")
    token_file(file, NEXT)
    said = reload(daemon, said="the token file was read again")
    assert "the configuration was not read again, the old one stays: " in said
    assert "umask" in said
    assert status_for_another_user(daemon, None) == LET_IN
    [warning] = warnings(daemon)
    assert "the configuration was not read again" in warning
    assert str(daemon.folder / "config.toml") in warning
    change(daemon, tables)
    reload(daemon)
    assert warnings(daemon) == []


def test_a_reload_with_a_shorter_retention_removes_what_is_older(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().boot()
    end = daemon.play("a", success())
    daemon.ok("close_loose_ends", ids=[end["id"]])
    stored = daemon.state / "loose-ends" / f"{end['id']}.json"
    reload(daemon)
    assert stored.exists()
    change(daemon, {"retention": {"closed_days": 0}})
    reload(daemon)
    eventually(lambda: not stored.exists(), what="what was closed is removed")


def test_every_other_key_is_named_as_waiting_for_a_restart(make_daemon: MakeDaemon) -> None:
    """And stays named, until the file says again what is in effect."""
    daemon = make_daemon().boot()
    server = {"url": "http://127.0.0.1:1/mcp", "available_to_subagents": True}
    sink = {"type": "command", "argv": ["true"]}
    tables: Tables = {
        "mcp_servers": {"other": server},
        "loose_ends": {"sinks": [sink]},
        "environment": {"STUB_SCRIPTS": str(daemon.scripts), "SECRET_KEY": "hidden"},
        "scopes": {"memory_max": "1G"},
    }
    change(daemon, tables, umask="0077", work_dir=str(daemon.home))
    waiting = "work_dir, umask, environment, scopes.memory_max, loose_ends.sinks, mcp_servers"
    for _ in range(2):
        reload(daemon, said=f"only a restart takes it up: {waiting}")
    assert "hidden" not in daemon.log
    [warning] = warnings(daemon)
    assert waiting in warning
    change(daemon, {})
    reload(daemon)
    assert warnings(daemon) == []
