"""The configuration as values: frozen, checked, complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from hive_subagent_daemon.values import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hive_subagent_daemon.sink_values import Sink


class OnRestart(StrEnum):
    """What becomes of running turns when the daemon stops."""

    STOP = "stop"
    ADOPT = "adopt"


class ScopeChoice(StrEnum):
    """Which service manager makes the scopes of turns."""

    AUTO = "auto"
    USER = "user"
    SYSTEM = "system"
    OFF = "off"


class OomPolicy(StrEnum):
    """What systemd does when the kernel has killed a process of a scope for lack of memory."""

    CONTINUE = "continue"
    STOP = "stop"
    KILL = "kill"


@dataclass(frozen=True)
class Percent:
    """A part of all memory, or of all processes that there may be."""

    value: int


Amount = int | Percent
MOST_PROMPT_BYTES: Final = 10_000_000  # claude's stdin limit
UNLIMITED: Final = 2**64 - 1  # systemd's own number for `infinity`
CREDENTIALS: Final = "$CREDENTIALS_DIRECTORY"  # the one variable that may begin the path of a token file


@dataclass(frozen=True)
class Scopes:
    """Who makes the scopes of turns, below which slice, and with which limits; None: systemd's default."""

    manager: ScopeChoice = ScopeChoice.AUTO
    slice: str | None = None
    memory_max: Amount | None = None
    memory_high: Amount | None = None
    memory_swap_max: Amount | None = None
    tasks_max: Amount | None = None
    cpu_weight: int | None = None
    oom_policy: OomPolicy = OomPolicy.CONTINUE


def is_address(host: str) -> bool:
    """Tell an address from a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class TcpAddress:
    """An address to listen on, or a name of one; port 0 lets the kernel choose."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """The address as it is written in the configuration, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than localhost may lead anywhere."""
        return ip_address(self.host).is_loopback if is_address(self.host) else self.host == "localhost"


@dataclass(frozen=True)
class UnixAddress:
    """A Unix socket to listen on."""

    path: Path

    @property
    def text(self) -> str:
        """The address as it is written in the configuration."""
        return f"unix:{self.path}"


ListenAddress = TcpAddress | UnixAddress


@dataclass(frozen=True)
class FileValue:
    """A value of the child's environment that is read from a file at each spawn, never logged."""

    path: Path


@dataclass(frozen=True)
class Retention:
    """How long closed loose ends and idle names are kept, in days."""

    closed_days: int = 7
    idle_days: int = 90


@dataclass(frozen=True)
class Limits:
    """How many turns may run, what each may take, and how patient the daemon is."""

    max_running: int = 8
    exit_grace_seconds: float = 30.0
    stall_after_seconds: float = 360.0
    max_prompt_bytes: int = MOST_PROMPT_BYTES
    timeout_seconds: float | None = None
    max_budget_usd: float | None = None
    max_turns: int | None = None
    max_depth: int = 1

    @property
    def bounds(self) -> Bounds:
        """What a turn may take that is given no bounds of its own."""
        return Bounds(self.timeout_seconds, self.max_budget_usd, self.max_turns)


@dataclass(frozen=True)
class LooseEnds:
    """Where loose ends are sent beside the inbox."""

    sinks: tuple[Sink, ...] = ()


@dataclass(frozen=True)
class McpServer:
    """An entry of `[mcp_servers]`, ready for claude's `.mcp.json` with `type` filled in."""

    name: str
    # Headers and environment of an entry can hold secrets: not in any repr.
    entry: Mapping[str, Any] = field(repr=False)
    available_to_subagents: bool


# The entry of this name stands for this daemon.
OWN_SERVER: Final = "subagent"


@dataclass(frozen=True)
class Auth:
    """Who may call beside the daemon's own user and root: other uids, and whoever has the token.

    The path is absolute, or begins with `$CREDENTIALS_DIRECTORY`, which only the running service knows.
    """

    token_file: Path | None = None
    allow_uids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Config:
    """Everything the daemon was configured with; paths are absolute, every value has been checked."""

    agent: str
    claude: str
    work_dir: Path
    state_dir: Path
    listen: tuple[ListenAddress, ...]
    on_restart: OnRestart
    allow_root: bool
    umask: int
    log_level: str
    retention: Retention
    environment: Mapping[str, str | FileValue] = field(repr=False)
    scopes: Scopes
    limits: Limits
    mcp_servers: tuple[McpServer, ...]
    loose_ends: LooseEnds = LooseEnds()
    auth: Auth = Auth()
    idle_exit_seconds: float = 0.0

    @property
    def nests(self) -> bool:
        """Whether subagents get the tools of this daemon themselves."""
        return any(one.name == OWN_SERVER and one.available_to_subagents for one in self.mcp_servers)


@dataclass(frozen=True)
class Flags:
    """What the command line overrides, as it was typed; None or empty means not given."""

    listen: tuple[str, ...] = ()
    claude: str | None = None
    work_dir: str | None = None
    state_dir: str | None = None
    agent: str | None = None
    on_restart: str | None = None
    scopes: str | None = None
    log_level: str | None = None
