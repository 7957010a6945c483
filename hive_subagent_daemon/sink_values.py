"""Sinks as values: where loose ends are sent beside the inbox, and how each sink is told from the others."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path, PurePath


@dataclass(frozen=True)
class HttpAddress:
    """A host and port, with or without TLS; `host` is an address or a name."""

    host: str
    port: int
    tls: bool

    @property
    def origin(self) -> str:
        """The beginning of every URL there, which holds no secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.tls else 80)
        return f"http{'s' if self.tls else ''}://{host}{'' if usual else f':{self.port}'}"

    @property
    def authority(self) -> str:
        """What the header `Host` says."""
        return self.origin.partition("://")[2]


@dataclass(frozen=True)
class SocketAddress:
    """A Unix socket."""

    socket: Path

    @property
    def origin(self) -> str:
        """The socket in words."""
        return f"unix:{self.socket}"

    @property
    def authority(self) -> str:
        """What the header `Host` says."""
        return "localhost"


@dataclass(frozen=True)
class HttpSink:
    """A sink that loose ends are posted to; the URL and its path can hold a secret: not in any `repr`.

    `target` is the path with the query; `header_file` has further headers, read again at each attempt.
    """

    url: str = field(repr=False)
    address: HttpAddress | SocketAddress
    target: str = field(repr=False)
    header_file: Path | None = None
    name: str | None = None

    @property
    def id(self) -> str:
        """By what it is known again after a restart."""
        return _id_of(self.name, "http", [self.url])

    @property
    def label(self) -> str:
        """How a person knows it."""
        return self.name or self.address.origin


@dataclass(frozen=True)
class CommandSink:
    """A sink that is a program; its arguments can hold a secret: not in any `repr`."""

    argv: tuple[str, ...] = field(repr=False)
    name: str | None = None

    @property
    def id(self) -> str:
        """By what it is known again after a restart."""
        return _id_of(self.name, "command", self.argv)

    @property
    def label(self) -> str:
        """How a person knows it."""
        return self.name or PurePath(self.argv[0]).name


Sink = HttpSink | CommandSink


def _id_of(name: str | None, kind: str, words: list[str] | tuple[str, ...]) -> str:
    if name is not None:
        return f"name:{name}"
    return "sha256:" + hashlib.sha256(json.dumps([kind, *words]).encode()).hexdigest()[:32]
