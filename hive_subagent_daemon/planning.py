"""What a turn will be, worked out from a request before anything is changed: reads only, and refuses."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hive_subagent_daemon import archive, claude_command, procfs, stream_input
from hive_subagent_daemon.claude_store import ClaudeStore
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.records import SubagentRecord, TurnRecord
from hive_subagent_daemon.regular_files import NotRegularError, read_regular
from hive_subagent_daemon.values import OF_THE_AGENT, USUAL_TERMS, Parentage, Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hive_subagent_daemon.config_values import Config, Limits
    from hive_subagent_daemon.records import Records


@dataclass(frozen=True)
class TurnRequest:
    """What a parent asked for; `model` None is as before, empty claude's default; `before` is remembered.

    Where nothing is said in the bounds of `terms`, the configured ones hold.
    """

    name: str
    prompt: str = field(repr=False)
    prompt_file: str | None
    model: str | None
    dir: str | None
    before: SubagentRecord | None
    terms: Terms = USUAL_TERMS
    parentage: Parentage = OF_THE_AGENT

    @property
    def resumes(self) -> bool:
        """Whether it continues a session; a fresh start has a prompt file."""
        return self.prompt_file is None


@dataclass(frozen=True)
class Plan:
    """All that is needed to spawn, worked out before anything is changed.

    The prompt is the content of stdin, or the first message of a steerable turn.
    """

    record: TurnRecord
    program: Path
    environment: Mapping[str, str] = field(repr=False)
    instructions: bytes | None = field(repr=False)
    prompt: bytes | stream_input.Message = field(repr=False)
    mcp_config: bytes | None = field(repr=False)


class Planner:
    """Plans turns with one configuration."""

    def __init__(self, config: Config, *, records: Records, environ: Mapping[str, str]) -> None:
        """Take what a plan needs; `environ` is the daemon's own environment."""
        self.config = config
        self._records = records
        self._environ = environ
        settled = {key: value for key, value in config.environment.items() if isinstance(value, str)}
        # Without what is read from files: that may change, and neither PATH nor HOME are secrets.
        self.settled_environment = claude_command.inherited_environment(environ) | settled
        self.store = ClaudeStore(self.settled_environment)

    def set_limits(self, limits: Limits) -> None:
        """Use other limits from now on."""
        self.config = replace(self.config, limits=limits)

    def find_program(self) -> Path:
        """Return the claude program that a turn would run now; raises RefusedError."""
        return claude_command.find_program(self.config.claude, self.settled_environment, self.config.work_dir)

    def looked_in(self, directory: str) -> str:
        """Say where claude looked for a session."""
        config_dir = self.store.config_dir_in(Path(directory))
        return (
            f"claude looked in its config directory {config_dir} for a session that was run in {directory}; "
            "if it was started elsewhere, pass that directory as `dir`."
        )

    def plan(self, request: TurnRequest, *, turn: str, started_at: str, scope: str | None) -> Plan:
        """Return the plan of a turn; raises RefusedError. Blocks."""
        config = self.config
        directory = self._directory(request)
        environment = claude_command.child_environment(
            self._environ, config.environment, turn=turn, sandbox_mark=config.allow_root and os.getuid() == 0
        )
        environment["PWD"] = str(directory)
        instructions = self._instructions(request, directory)
        record = self._record(request, directory, turn=turn, started_at=started_at, scope=scope)
        if len(request.prompt.encode()) > config.limits.max_prompt_bytes:
            most = config.limits.max_prompt_bytes
            message = f"prompt: it has more than max_prompt_bytes, which is {most}: shorten it."
            raise RefusedError(message)
        program = claude_command.find_program(config.claude, environment, config.work_dir)
        as_stdin = stream_input.message if record.steerable else claude_command.prompt_bytes
        prompt = as_stdin(request.prompt)
        servers = claude_command.mcp_config(config.mcp_servers)
        return Plan(record, program, environment, instructions, prompt, servers)

    def _instructions(self, request: TurnRequest, directory: Path) -> bytes | None:
        if request.prompt_file is None:
            return None
        path = directory / _expanded("prompt_file", request.prompt_file)
        return _read_prompt_file(path, self.config.limits.max_prompt_bytes)

    def _record(
        self, request: TurnRequest, directory: Path, *, turn: str, started_at: str, scope: str | None
    ) -> TurnRecord:
        config, before = self.config, request.before
        remembered = (before.prompt_copy, before.session_id) if before else (None, None)
        fresh = (str(self._records.prompt_path(request.name, turn)), str(uuid.uuid4()))
        prompt_copy, session_id = remembered if request.resumes else fresh
        return TurnRecord(
            turn=turn,
            name=request.name,
            resumes=request.resumes,
            dir=str(directory),
            session_id=session_id,
            model=_model(request),
            prompt_copy=prompt_copy,
            started_at=started_at,
            boot_id=procfs.boot_id(),
            scope=scope,
            mcp_servers=tuple(s.name for s in config.mcp_servers if s.available_to_subagents),
            archived=() if request.resumes else self._to_archive(request.name, directory),
            bounds=request.terms.bounds.or_else(config.limits.bounds),
            steerable=request.terms.steerable,
            parentage=request.parentage,
        )

    def _directory(self, request: TurnRequest) -> Path:
        default = self.config.work_dir
        if request.resumes and request.before is not None and request.before.dir:
            default = Path(request.before.dir)
        if request.dir is not None:
            default = self.config.work_dir / _expanded("dir", request.dir)
        directory = default.resolve() if ".." in default.parts else default
        if not _is_utf8(str(directory)):
            message = (
                f"dir: the working directory {str(directory)!a} is not UTF-8, and claude cannot work there."
            )
            raise RefusedError(message)
        if not directory.is_dir():
            what = "is not a directory" if directory.exists() else "does not exist"
            message = f"dir: the working directory {directory} {what}: create it or pass another `dir`."
            raise RefusedError(message)
        if not os.access(directory, os.X_OK):
            message = (
                f"dir: the working directory {directory} may not be entered by this user: pass another `dir`."
            )
            raise RefusedError(message)
        return directory

    def _to_archive(self, name: str, directory: Path) -> tuple[archive.Rename, ...]:
        titled = self.store.titled(name, directory)
        live = {session.session_id: session.pid for session in self.store.live_sessions(directory)}
        for path in titled:
            if (pid := live.get(path.stem)) is not None:
                message = (
                    f"name {name!r} is the title of a claude session that is running now outside this daemon "
                    f"(process {pid}, session {path.stem}, in {directory}): choose another name."
                )
                raise RefusedError(message)
        return archive.plan_archive(titled)


def _expanded(argument: str, text: str) -> Path:
    """Return a path with the home of `~` or `~user` in it."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        message = f"{argument}: there is no user with the home of {text!r} here: write the path in full."
        raise RefusedError(message) from error


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _model(request: TurnRequest) -> str | None:
    if request.model is not None:
        return request.model or None
    return request.before.model if request.resumes and request.before else None


def _read_prompt_file(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file; without blocking on a FIFO. Raises RefusedError."""
    try:
        content = read_regular(path, limit_bytes + 1)
    except NotRegularError as error:
        message = f"prompt_file: {path} is not a regular file: write the instructions to one, pass its path."
        raise RefusedError(message) from error
    except OSError as error:
        message = f"prompt_file: {path} cannot be read: {error.strerror}."
        raise RefusedError(message) from error
    if len(content) > limit_bytes:
        message = (
            f"prompt_file: {path} has more bytes than are taken, which are at most {limit_bytes}: "
            "let it point to further files that the subagent reads itself."
        )
        raise RefusedError(message)
    return content
