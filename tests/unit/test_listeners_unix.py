"""Unix sockets: for the owner alone from the first moment, never stolen, and cleared away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import socket_files
from hive_subagent_daemon.config_values import UnixAddress
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.listeners import Listeners, bind_all
from tests.support.other_user import as_user, needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator


def listen(path: Path) -> Listeners:
    """Listen on one Unix socket."""
    return bind_all([UnixAddress(path)])


def connects(path: Path) -> bool:
    """Tell whether somebody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(str(path)) == 0


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    """Have this umask in the block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_socket_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    seen: list[int] = []
    path = tmp_path / "s"
    with umask(mask), pytest.MonkeyPatch.context() as patch:
        remember_mode_after_bind(patch, path, seen)
        with listen(path):
            assert (stat.S_IMODE(path.stat().st_mode), seen) == (0o600, [0o600])
            assert os.umask(mask) == mask


def remember_mode_after_bind(patch: pytest.MonkeyPatch, path: Path, seen: list[int]) -> None:
    """Look at the file at the first moment at which it exists."""
    bind = socket.socket.bind

    def bind_and_look(sock: socket.socket, address: str) -> None:
        bind(sock, address)
        seen.append(stat.S_IMODE(path.stat().st_mode))

    patch.setattr(socket.socket, "bind", bind_and_look)


@needs_root
def test_another_user_cannot_connect(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    with listen(folder / "s"):
        descriptor = os.open(folder, os.O_PATH)

        def connect() -> bytes:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(f"/proc/self/fd/{descriptor}/s")
            return b"connected"

        with as_user(connect) as other:
            assert other.result().startswith(b"PermissionError")
        os.close(descriptor)


def test_the_file_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen(path):
        assert connects(path)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_removed_when_the_server_has_closed_the_socket_before(tmp_path: Path) -> None:
    with listen(tmp_path / "s") as listeners:
        listeners.sockets[0].close()
    assert list(tmp_path.iterdir()) == []


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
        dead.listen()
    assert not connects(path)
    with listen(path):
        assert connects(path)


def test_a_living_socket_is_not_stolen(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen(path):
        with pytest.raises(StartUpError, match="another process listens there; stop it"):
            listen(path)
        assert connects(path)


def test_a_living_socket_with_a_full_queue_is_not_stolen(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with contextlib.ExitStack() as clients, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy:
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(10):
            client = clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            if client.connect_ex(str(path)) != 0:
                break
        with pytest.raises(StartUpError, match="another process listens there"):
            listen(path)


def test_a_socket_that_somebody_else_put_in_our_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen(path):
        path.unlink()
        other = listen(path)
    with other:
        assert connects(path)


def test_a_file_that_is_gone_already_is_no_trouble_at_the_end(tmp_path: Path) -> None:
    with listen(tmp_path / "s"):
        (tmp_path / "s").unlink()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(tmp_path / "precious")
    with pytest.raises(StartUpError, match="what lies there is no socket"):
        listen(path)
    assert path.is_symlink() or path.exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartUpError, match=f"there is no folder {tmp_path / 'gone'}; make it first"):
        listen(tmp_path / "gone" / "s")


def test_a_path_longer_than_the_kernel_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartUpError, match="longer than 107 bytes"):
        listen(tmp_path / ("s" * 108))


def test_a_folder_in_which_nothing_can_be_made_is_told() -> None:
    with pytest.raises(StartUpError, match=r"cannot listen on /proc/s: .*; check the folder"):
        listen(Path("/proc/s"))


def test_daemons_that_start_at_once_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_files, "FOLDER_LOCK_SECONDS", 0.05)
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with pytest.raises(StartUpError, match="another program keeps the folder locked"):
        listen(tmp_path / "s")
    os.close(folder)
    with listen(tmp_path / "s"):
        assert connects(tmp_path / "s")
