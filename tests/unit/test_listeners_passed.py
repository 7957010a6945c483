"""Sockets that were passed in: each adopted or refused by number and name, no word of them left behind."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.passed_sockets import adopted, passed_sockets
from tests.support.activation import activated_words
from tests.support.daemon_harness import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
# What a freshly started process with passed sockets sees; the first line is its verdict.
REPORT = """
import os
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.passed_sockets import passed_sockets
try:
    listeners = passed_sockets()
    print(*(listeners.urls if listeners else ["none was passed"]))
    numbers = [one.fileno() for one in (listeners.sockets if listeners else [])]
    print(*[f"{number}:{os.get_inheritable(number)}" for number in numbers])
except StartUpError as error:
    print(error, end="\\n\\n")
print([name for name in os.environ if name.startswith("LISTEN_")])
print(os.popen("env").read().count("LISTEN_"))
"""
NO_WORD_LEFT = ["[]", "0"]


def listener(
    family: socket.AddressFamily, address: tuple[str, int] | str, *, kind: int = socket.SOCK_STREAM
) -> socket.socket:
    """Make a socket as a socket unit would."""
    made = socket.socket(family, kind)
    made.bind(address)
    if kind != socket.SOCK_DGRAM:
        made.listen()
    return made


@contextlib.contextmanager
def passed(made: socket.socket) -> Iterator[int]:
    """Give the bare descriptor of a socket, as a socket unit would pass it in."""
    with made:
        descriptor = os.dup(made.fileno())
        os.set_inheritable(descriptor, True)
        yield descriptor


def report(sockets: Sequence[int], **environment: str) -> list[str]:
    """Run a process to which these descriptors are passed, and return what it found."""
    words = activated_words([sys.executable, "-c", REPORT], sockets, environment)
    done = subprocess.run(
        words, pass_fds=sockets, capture_output=True, text=True, timeout=20, check=True, cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])
def test_a_passed_loopback_socket_is_adopted(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with passed(listener(family, (host, 0))) as descriptor:
        one = adopted(descriptor)
        with one.socket as listening:
            assert (listening.fileno(), listening.family) == (descriptor, family)
            assert listening.proto == socket.IPPROTO_TCP
            assert not listening.get_inheritable()
            assert one.url.startswith(f"http://{host if family == socket.AF_INET else '[::1]'}:")
            assert one.names == {"127.0.0.1" if family == socket.AF_INET else "[::1]"}


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_passed_unix_socket_is_adopted_and_its_file_left_alone(tmp_path: Path, mode: int) -> None:
    """Whatever its mode: the peer's credentials decide who may call."""
    path = tmp_path / "s"
    with passed(listener(socket.AF_UNIX, str(path))) as descriptor:
        path.chmod(mode)
        one = adopted(descriptor)
        assert (one.url, one.file) == (f"unix:{path}", None)
        one.socket.close()
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")], ids=["v4", "v6"]
)
def test_a_passed_socket_that_others_could_reach_is_refused(family: socket.AddressFamily, host: str) -> None:
    with passed(listener(family, (host, 0))) as descriptor, pytest.raises(StartUpError) as caught:
        adopted(descriptor, "hive.socket")
    text = str(caught.value)
    assert text.startswith(
        f"the passed descriptor {descriptor} (hive.socket) is no good, listen address {host} "
    )
    assert "in the socket unit write ListenStream=127.0.0.1:PORT" in text


def test_a_passed_abstract_unix_socket_is_refused() -> None:
    refused = pytest.raises(
        StartUpError, match=r"is a Unix socket without a file: .*ListenStream=.* or /PATH"
    )
    with passed(listener(socket.AF_UNIX, f"\0hive-{os.getpid()}")) as descriptor, refused:
        adopted(descriptor)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        (socket.SOCK_DGRAM, socket.AF_INET),
        (socket.SOCK_DGRAM, socket.AF_UNIX),
        (socket.SOCK_SEQPACKET, socket.AF_UNIX),
    ],
    ids=["udp", "datagram", "sequential-packet"],
)
def test_a_passed_socket_of_another_kind_is_refused(
    tmp_path: Path, kind: int, family: socket.AddressFamily
) -> None:
    address = str(tmp_path / "s") if family == socket.AF_UNIX else ("127.0.0.1", 0)
    refused = pytest.raises(
        StartUpError, match=r"is no stream socket: in the socket unit write ListenStream="
    )
    with passed(listener(family, address, kind=kind)) as descriptor, refused:
        adopted(descriptor)


def test_a_passed_connection_is_refused() -> None:
    """That is what a socket unit with Accept=yes passes."""
    connected, other = socket.socketpair()
    with other, pytest.raises(StartUpError, match=r"does not listen \(a socket unit needs Accept=no\)"):
        adopted(connected.detach())


def test_a_passed_file_fifo_or_closed_descriptor_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    descriptors = [os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR), os.open(tmp_path / "fifo", os.O_RDWR)]
    for descriptor in descriptors:
        with pytest.raises(StartUpError, match=f"descriptor {descriptor} is no socket"):
            adopted(descriptor)
        os.close(descriptor)
    with pytest.raises(StartUpError, match=f"descriptor {descriptors[0]} is no socket .Bad file descriptor"):
        adopted(descriptors[0])


def test_a_refused_socket_is_closed() -> None:
    with passed(listener(socket.AF_INET, ("0.0.0.0", 0))) as descriptor:
        with pytest.raises(StartUpError):
            adopted(descriptor)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_all_passed_sockets_are_taken_in_their_order(tmp_path: Path) -> None:
    with (
        listener(socket.AF_INET, ("127.0.0.1", 0)) as v4,
        listener(socket.AF_INET6, ("::1", 0)) as v6,
        listener(socket.AF_UNIX, str(tmp_path / "s")) as unix,
    ):
        said = report([v4.fileno(), v6.fileno(), unix.fileno()], LISTEN_FDNAMES="a:b:c")
        urls = [
            f"http://127.0.0.1:{v4.getsockname()[1]}/mcp",
            f"http://[::1]:{v6.getsockname()[1]}/mcp",
            f"unix:{tmp_path / 's'}",
        ]
    assert said == [" ".join(urls), "3:False 4:False 5:False", *NO_WORD_LEFT]
    assert (tmp_path / "s").exists()


def test_the_environment_tells_of_no_socket_afterwards_even_when_one_was_refused() -> None:
    """Neither Python's copy of it nor the one of the C library, which children get."""
    with (
        listener(socket.AF_INET, ("127.0.0.1", 0)) as good,
        listener(socket.AF_INET, ("0.0.0.0", 0)) as bad,
    ):
        said = report([good.fileno(), bad.fileno()], LISTEN_FDNAMES="hive.socket:other.socket")
    assert said[0].startswith(
        "the passed descriptor 4 (other.socket) is no good, listen address 0.0.0.0 is not"
    )
    assert said[1:] == ["", *NO_WORD_LEFT]


def test_sockets_passed_to_another_process_are_not_ours() -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as one:
        assert report([one.fileno()], LISTEN_PID="1") == ["none was passed", "", *NO_WORD_LEFT]


@pytest.mark.parametrize(
    ("announced", "sentence"),
    [
        ("2", "the passed descriptor 4 is closed, although LISTEN_FDS is 2: start this daemon by its socket"),
        ("many", "LISTEN_FDS is 'many', which is no number of sockets (Invalid argument): start this daemon"),
        ("-1", "LISTEN_FDS is '-1', which is no number of sockets (Invalid argument)"),
    ],
)
def test_a_wrong_announcement_is_told(announced: str, sentence: str) -> None:
    with listener(socket.AF_INET, ("127.0.0.1", 0)) as one:
        said = report([one.fileno()], LISTEN_FDS=announced)
    assert said[0].startswith(sentence)
    assert said[1:] == ["", *NO_WORD_LEFT]


def test_without_passed_sockets_there_is_none_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert passed_sockets() is None


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")], ids=["v4", "v6"]
)
def test_with_a_token_a_passed_socket_may_be_reachable(family: socket.AddressFamily, host: str) -> None:
    with passed(listener(family, (host, 0))) as descriptor:
        one = adopted(descriptor, reachable=True)
        assert one.names == frozenset()
        one.socket.close()
