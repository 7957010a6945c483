"""How claude is called: its arguments, its environment, and its prompt."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.config_values import FileValue, McpServer
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.regular_files import read_regular
from hive_subagent_daemon.values import NO_BOUNDS, Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_TRIGGER: Final = (
    "Carry out the instructions in your system prompt now, completely, and report the result."
)
VALUE_BYTES: Final = 100_000  # the kernel takes no more for one variable (MAX_ARG_STRLEN)
TURN_VARIABLE: Final = "HIVE_SUBAGENT_TURN"

_ALWAYS: Final = (
    "--print",
    "--verbose",
    "--output-format",
    "stream-json",
    "--dangerously-skip-permissions",
    "--strict-mcp-config",
)
# Messages as lines of JSON, each shown on stdout when claude takes it.
_STEERABLE: Final = ("--input-format", "stream-json", "--replay-user-messages")
# systemd's own, which speak of the daemon and not of its children (systemd.exec(5), sd_notify(3)).
_SYSTEMD: Final = frozenset(
    {
        "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "MAINPID", "MANAGERPID", "SYSTEMD_EXEC_PID",
        "FDSTORE", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY",
        "CONFIGURATION_DIRECTORY", "CREDENTIALS_DIRECTORY",
    }
)  # fmt: skip
_SYSTEMD_PREFIXES: Final = ("WATCHDOG_", "LISTEN_", "MEMORY_PRESSURE_")
# Marks of an outer Claude Code, which would make the child believe that it is nested (measured, 2.1.197).
_OUTER: Final = frozenset(
    {"CLAUDECODE", "CLAUDE_EFFORT", "CLAUDE_JOB_DIR", "AI_AGENT", "ANTHROPIC_MODEL", "TRACEPARENT"}
)
_OUTER_PREFIXES: Final = ("CLAUDE_CODE_",)
_FORCED: Final = {"CLAUDE_CODE_FORCE_SESSION_PERSISTENCE": "1", "DISABLE_AUTOUPDATER": "1"}


@dataclass(frozen=True)
class Conversation:
    """Which session a turn belongs to: a fresh one with its id, or an earlier one by id or else by title."""

    name: str
    session_id: str | None
    resumes: bool


def arguments(
    program: Path,
    conversation: Conversation,
    *,
    model: str | None,
    prompt_file: str | None,
    mcp_config: Path | None,
    bounds: Bounds = NO_BOUNDS,
    steerable: bool = False,
) -> tuple[str, ...]:
    """Return claude's command line. Values go as `--flag=value`, since a name may begin with a dash.

    Of the bounds, claude itself keeps to budget and rounds; `--max-turns` works and is not in its help.
    """
    flags = [str(program), *_ALWAYS, *(_STEERABLE if steerable else ())]
    if conversation.resumes:
        flags.append(f"--resume={conversation.session_id or conversation.name}")
    else:
        flags += [f"--session-id={conversation.session_id}", f"--name={conversation.name}"]
    if prompt_file is not None:
        flags.append(f"--append-system-prompt-file={prompt_file}")
    if model:
        flags.append(f"--model={model}")
    if mcp_config is not None:
        flags.append(f"--mcp-config={mcp_config}")
    if bounds.max_budget_usd is not None:
        flags.append(f"--max-budget-usd={bounds.max_budget_usd:f}")
    if bounds.max_turns is not None:
        flags.append(f"--max-turns={bounds.max_turns}")
    return tuple(flags)


def inherited_environment(daemon: Mapping[str, str]) -> dict[str, str]:
    """Return what of the daemon's own environment its children may see."""
    return {key: value for key, value in daemon.items() if not _withheld(key)}


def _withheld(key: str) -> bool:
    return key in _SYSTEMD or key in _OUTER or key.startswith((*_SYSTEMD_PREFIXES, *_OUTER_PREFIXES))


def child_environment(
    daemon: Mapping[str, str], configured: Mapping[str, str | FileValue], *, turn: str, sandbox_mark: bool
) -> dict[str, str]:
    """Return the environment of one turn. Blocks on the files of `{ file = … }` values.

    `sandbox_mark` tells claude that it may run as root. Raises RefusedError for a file that cannot be read.
    """
    environment = inherited_environment(daemon) | _FORCED
    if sandbox_mark:
        environment["IS_SANDBOX"] = "1"
    for key, value in configured.items():
        environment[key] = _file_value(key, value.path) if isinstance(value, FileValue) else value
    environment[TURN_VARIABLE] = turn
    return environment


def _file_value(key: str, path: Path) -> str:
    try:
        content = read_regular(path, VALUE_BYTES + 1)
        value = content.decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RefusedError(_bad_value(key, path, str(reason))) from error
    if len(content) > VALUE_BYTES or "\0" in value:
        raise RefusedError(_bad_value(key, path, f"a value has at most {VALUE_BYTES} bytes and no NUL"))
    return value


def _bad_value(key: str, path: Path, reason: str) -> str:
    return f"environment.{key} of the daemon's configuration cannot be read from {path}: {reason}."


def find_program(claude: str, environment: Mapping[str, str], directory: Path) -> Path:
    """Return the absolute path of the claude program, looked up in the child's PATH.

    Raises RefusedError when there is none or it cannot be executed.
    """
    if "/" in claude:
        path = directory / claude
        if not path.is_file():
            message = f"the claude program {path} does not exist: install it or configure another `claude`."
            raise RefusedError(message)
        if not os.access(path, os.X_OK):
            message = (
                f"the claude program {path} is not executable: make it so or configure another `claude`."
            )
            raise RefusedError(message)
        return path
    found = shutil.which(claude, path=environment.get("PATH", os.defpath))
    if found is None:
        message = f"no program {claude!r} on the daemon's PATH: install Claude Code or configure `claude`."
        raise RefusedError(message)
    return Path(found).absolute()


def prompt_bytes(prompt: str) -> bytes:
    """Return a prompt as claude's stdin, such that it reaches the model as text.

    claude runs a prompt that begins with `/` as a local command; a blank before it turns that off (measured).
    """
    return as_text(prompt).encode()


def as_text(prompt: str) -> str:
    """Return a prompt such that claude does not take it for a local command."""
    return f" {prompt}" if prompt.startswith("/") else prompt


def mcp_config(servers: Iterable[McpServer]) -> bytes | None:
    """Return the content of the file for --mcp-config; None when no server is opted in."""
    entries = {server.name: dict(server.entry) for server in servers if server.available_to_subagents}
    return json.dumps({"mcpServers": entries}, ensure_ascii=False).encode() if entries else None
