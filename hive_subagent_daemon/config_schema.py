"""Every key of the configuration as one row of a table: what it may hold, its default, its meaning.

The loader, `--check` and the configuration reference all read this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hive_subagent_daemon.config_amounts import count, size, slice_name
from hive_subagent_daemon.config_auth import token_file, uids
from hive_subagent_daemon.config_kinds import (
    above_zero,
    agent_name,
    boolean,
    choice,
    directory,
    path,
    program,
    seconds,
    umask,
    whole_number,
)
from hive_subagent_daemon.config_listen import listen_addresses
from hive_subagent_daemon.config_mcp import mcp_servers
from hive_subagent_daemon.config_sinks import sinks
from hive_subagent_daemon.config_tables import environment
from hive_subagent_daemon.config_values import (
    MOST_PROMPT_BYTES,
    Limits,
    OnRestart,
    OomPolicy,
    Retention,
    ScopeChoice,
)
from hive_subagent_daemon.values import MOST_DEPTH, MOST_ROUNDS, MOST_SECONDS, MOST_USD

if TYPE_CHECKING:
    from hive_subagent_daemon.config_checks import Kind

_MAX_DAYS = 36_500
_LIMITS = Limits()
_RETENTION = Retention()


@dataclass(frozen=True)
class Computed:
    """A default that depends on the machine, in words."""

    words: str


@dataclass(frozen=True)
class Row:
    """A key by its dotted name, with its meaning in one line."""

    name: str
    meaning: str

    @property
    def place(self) -> tuple[str, ...]:
        """The keys on the way to the value."""
        return tuple(self.name.split("."))


@dataclass(frozen=True)
class LaterKey(Row):
    """A key whose feature is not available in this version."""


@dataclass(frozen=True)
class Key(Row):
    """A key: its kind of value, its default as in TOML (None: not set), the flag that overrides it."""

    kind: Kind
    default: object
    flag: str | None = None


AGENT = Key(
    "agent",
    "The parent's name, in unit names and the journal.",
    agent_name(),
    Computed("the user's name"),
    flag="--agent",
)
WORK_DIR = Key(
    "work_dir",
    "Working directory of turns that are given no `dir`.",
    directory(),
    Computed("the daemon's working directory"),
    flag="--work-dir",
)
STATE_DIR = Key(
    "state_dir",
    "Directory of the daemon's records and of the output of running turns.",
    path(),
    Computed("$STATE_DIRECTORY, else $XDG_STATE_HOME/hive-subagent/<agent>"),
    flag="--state-dir",
)

KEYS: tuple[Key, ...] = (
    AGENT,
    Key(
        "claude",
        "Name (looked for in PATH) or path of the claude program.",
        program(),
        "claude",
        flag="--claude",
    ),
    WORK_DIR,
    STATE_DIR,
    Key(
        "listen",
        "Addresses to listen on when no socket was passed; port 0 is the kernel's choice.",
        listen_addresses(),
        ["127.0.0.1:7310"],
        flag="--listen",
    ),
    Key(
        "on_restart",
        "What becomes of running turns when the daemon stops.",
        choice(OnRestart.STOP, OnRestart.ADOPT),
        "stop",
        flag="--on-restart",
    ),
    Key("allow_root", "Root runs claude only with this.", boolean(), False),
    Key("umask", "File creation mask of the children.", umask(), "0022"),
    Key(
        "log_level",
        "The least important messages that are logged.",
        choice("debug", "info", "warning", "error"),
        "info",
        flag="--log-level",
    ),
    Key(
        "retention.closed_days",
        "Days until a closed loose end is removed.",
        whole_number(0, _MAX_DAYS),
        _RETENTION.closed_days,
    ),
    Key(
        "retention.idle_days",
        "Days until what is remembered of an idle name is removed.",
        whole_number(1, _MAX_DAYS),
        _RETENTION.idle_days,
    ),
    Key(
        "environment",
        "Added to the child's environment; `file` is read at each spawn and never logged.",
        environment(),
        {},
    ),
    Key(
        "scopes.manager",
        "Who makes the scopes of turns; without scopes a turn is a process group.",
        choice(*ScopeChoice),
        "auto",
        flag="--scopes",
    ),
    Key(
        "scopes.slice",
        "Slice that holds the slices of turns; by default one named after the agent.",
        slice_name(),
        None,
    ),
    Key("scopes.memory_max", "MemoryMax of each scope: above it the kernel kills.", size(), None),
    Key("scopes.memory_high", "MemoryHigh of each scope: above it the kernel slows down.", size(), None),
    Key("scopes.memory_swap_max", "MemorySwapMax of each scope.", size(lowest=0), None),
    Key("scopes.tasks_max", "TasksMax of each scope: processes and threads.", count(), None),
    Key(
        "scopes.cpu_weight",
        "CPUWeight of each scope; systemd's default is 100.",
        whole_number(1, 10_000),
        None,
    ),
    Key(
        "scopes.oom_policy",
        "OOMPolicy of each scope: what happens after the kernel has killed a process of it.",
        choice(*OomPolicy),
        "continue",
    ),
    Key("limits.max_running", "Turns that may run at once.", whole_number(1), _LIMITS.max_running),
    Key(
        "limits.exit_grace_seconds",
        "How long a process may stay after claude's final result.",
        seconds(),
        _LIMITS.exit_grace_seconds,
    ),
    Key(
        "limits.stall_after_seconds",
        "Silence after which `status` calls a turn stalled; nothing is done about it.",
        seconds(),
        _LIMITS.stall_after_seconds,
    ),
    Key(
        "limits.max_prompt_bytes",
        "Largest prompt and prompt file.",
        whole_number(1, MOST_PROMPT_BYTES),
        _LIMITS.max_prompt_bytes,
    ),
    Key(
        "limits.timeout_seconds",
        "Seconds that a turn may take, unless it is given its own; then it is interrupted, at last killed.",
        above_zero("seconds", MOST_SECONDS),
        None,
    ),
    Key(
        "limits.max_budget_usd",
        "What a turn may cost in US dollars, unless it is given its own; claude itself ends it.",
        above_zero("US dollars", MOST_USD),
        None,
    ),
    Key(
        "limits.max_turns",
        "Rounds with the model that a turn may take, unless it is given its own; claude itself ends it.",
        whole_number(1, MOST_ROUNDS),
        None,
    ),
    Key(
        "limits.max_depth",
        "How deep turns may be nested: the agent's own are at 1, those that they start at 2.",
        whole_number(1, MOST_DEPTH),
        _LIMITS.max_depth,
    ),
    Key(
        "loose_ends.sinks",
        "Where loose ends are sent beside the inbox: URLs and programs.",
        sinks(),
        [],
    ),
    Key(
        "auth.token_file",
        "File with the bearer token that lets in peers with another uid, and those of other machines.",
        token_file(),
        None,
    ),
    Key("auth.allow_uids", "Other uids that may call without a token.", uids(), []),
    Key(
        "mcp_servers",
        "MCP servers as in `.mcp.json`; turns get those with `available_to_subagents = true`.",
        mcp_servers(),
        {},
    ),
)

LATER_KEYS: tuple[LaterKey, ...] = (
    LaterKey("idle_exit_seconds", "Exit after this long without turns and calls."),
)
