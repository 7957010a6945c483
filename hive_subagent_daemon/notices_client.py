"""One question to a daemon's `/notices`, and waiting for its answer at no cost, over restarts of the daemon.

This is HTTP/1.0, spoken by hand: the answer is what comes until the daemon closes. `http.client` alone would
double the time that a hook takes, and it cannot wait for an answer and for the end of claude at once.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from hive_subagent_daemon.token_files import TokenError, read_token

if TYPE_CHECKING:
    from hive_subagent_daemon.ancestors import Ancestors

TOOLS_PATH: Final = "/mcp"
NOTICES_PATH: Final = "/notices"
CONNECT_SECONDS: Final = 5.0
# A socket that systemd holds is answered by a daemon that has to start first.
HEAD_SECONDS: Final = 30.0
ANSWER_BYTES: Final = 1024 * 1024
# A daemon that was there is waited for, one that never answered is not.
WITHOUT_DAEMON_SECONDS: Final = 600.0
FIRST_ANSWER_SECONDS: Final = 5.0
# One that answers and then breaks off again and again is not asked faster than one that is away.
CALM_SECONDS: Final = 10.0
RETRY_SECONDS: Final = (0.2, 0.4, 0.8, 1.6, 3.0, 5.0)
# After an hour of silence a connection to another machine is asked whether it still is one.
KEEP_ALIVE_SECONDS: Final = 3600
OK: Final = 200
FULL: Final = 503
JSON_HEADER: Final = b"content-type: application/json"


class Address(NamedTuple):
    """Where a daemon listens: a Unix socket, or host and port. (A dataclass would cost 10 ms of import.)"""

    path: str
    host: str = ""
    port: int = 0
    socket_path: str = ""
    token_file: str = ""

    def connected(self) -> socket.socket:
        """Return an open connection; raises OSError."""
        if not self.socket_path:
            connection = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_SECONDS)
            return connection
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(self.socket_path)
        except OSError:
            connection.close()
            raise
        return connection


class Unreachable(NamedTuple):
    """No answer; `connected`: somebody took the connection, `heard`: and began to answer."""

    connected: bool = False
    heard: bool = False


class Refused(NamedTuple):
    """Something answered, but not to this question."""

    status: int


class Ended(NamedTuple):
    """Nobody is there any more who would read the answer."""


Told = dict[str, Any] | Unreachable | Refused | Ended


def from_url(url: str) -> Address | None:
    """Return where the notices of a daemon are whose tools have this address; None for what is no address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    plain = url.isascii() and url.isprintable() and not set(url) & {" ", "@", "?", "#"}
    if parts.scheme != "http" or not host or not plain:
        return None
    return Address(parts.path.rstrip("/").removesuffix(TOOLS_PATH) + NOTICES_PATH, host, port or 80)


def ask(address: Address, query: str, ancestors: Ancestors, *, seconds: float | None) -> Told:
    """Ask once and wait for the answer, for so long at most (None: as long as it takes)."""
    try:
        with address.connected() as connection:
            connection.sendall(_request(address, query))
            connection.setblocking(False)
            return _answer(connection, ancestors, seconds)
    except (OSError, UnicodeError):
        return Unreachable()


def ask_until_told(address: Address, query: str, ancestors: Ancestors) -> Told:
    """Ask and wait, over restarts of the daemon; Unreachable: it was away for ten minutes, or never there."""
    patience = Patience(began=time.monotonic())
    while True:
        told = _to_ask_again(ask(address, query, ancestors, seconds=None))
        if not isinstance(told, Unreachable):
            return told
        patience = patience.after(told, time.monotonic())
        if patience.is_over:
            return Unreachable(heard=patience.heard_at is not None)
        if not ancestors.wait(seconds=patience.pause_seconds):
            return Ended()


class Patience(NamedTuple):
    """How long a daemon is waited for that gives no answer: pure."""

    began: float
    heard_at: float | None = None
    tries: int = 0
    is_over: bool = False

    def after(self, told: Unreachable, now: float) -> Patience:
        """Return what is left of it after one more try."""
        if told.heard:
            again = self.heard_at is not None and now - self.heard_at < CALM_SECONDS
            return Patience(self.began, heard_at=now, tries=self.tries + 1 if again else 0)
        if self.heard_at is None:
            over = not told.connected or now - self.began > FIRST_ANSWER_SECONDS
        else:
            over = now - self.heard_at > WITHOUT_DAEMON_SECONDS
        return Patience(self.began, self.heard_at, self.tries + 1, over)

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next try."""
        return RETRY_SECONDS[min(self.tries, len(RETRY_SECONDS) - 1)]


def _to_ask_again(told: Told) -> Told:
    """Take the answers of a daemon that has no time for us like no answer."""
    if isinstance(told, dict) and told.get("reason") == "stopping":
        return Unreachable(connected=True, heard=True)
    if isinstance(told, Refused) and told.status == FULL:
        return Unreachable(connected=True)
    return told


def _request(address: Address, query: str) -> bytes:
    host = "localhost" if address.socket_path else address.host
    name = f"[{host}]" if ":" in host else host
    port = f":{address.port}" if address.port else ""
    lines = [f"GET {address.path}?{query} HTTP/1.0", f"Host: {name}{port}"]
    if token := _token(address.token_file):
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _token(path: str) -> str:
    """Return the token in a file, read anew for each request; nothing where it cannot be one."""
    if not path:
        return ""
    try:
        return read_token(Path(path).expanduser(), named_by="--token-file").decode("ascii")
    except (TokenError, RuntimeError):  # the latter: a home that nobody knows
        return ""


def _answer(connection: socket.socket, ancestors: Ancestors, seconds: float | None) -> Told:
    """Read until the daemon closes."""
    came = b""
    ends = None if seconds is None else time.monotonic() + seconds
    head_ends = time.monotonic() + HEAD_SECONDS
    while len(came) < ANSWER_BYTES:
        limit = ends if b"\r\n\r\n" in came else min(head_ends, ends or head_ends)
        left = None if limit is None else limit - time.monotonic()
        if left is not None and left <= 0:
            break
        if not ancestors.wait(beside=connection.fileno(), seconds=left):
            return Ended()
        try:
            piece = connection.recv(65536)
        except BlockingIOError:
            continue
        except OSError:
            piece = b""
        if not piece:
            break
        came += piece
    return _read(came)


def _read(came: bytes) -> Told:
    head, separator, body = came.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if not separator or len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        return Unreachable(connected=True)
    if int(words[1]) != OK or JSON_HEADER not in head.lower():
        return Refused(int(words[1]))
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return Unreachable(connected=True, heard=True)
    return told if isinstance(told, dict) else Refused(OK)


def new_waiter() -> str:
    """Return an id by which the daemon knows a waiting program again that has not got its answer."""
    return os.urandom(8).hex()
