"""From a checked request to a running turn: plan, touching nothing; prepare; spawn, or undo it all."""

from __future__ import annotations

import logging
import os
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import archive, claude_command, clock, procfs
from hive_subagent_daemon.claude_store import ClaudeStore
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.gate import ChildSpec, SpawnError
from hive_subagent_daemon.launcher import PlacingError
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.output import Output, TurnFiles, write_private
from hive_subagent_daemon.records import SubagentRecord, TurnRecord
from hive_subagent_daemon.regular_files import NotRegularError, read_regular
from hive_subagent_daemon.storage import FREE_BYTES_TO_START, Storage
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turns import Turn
from hive_subagent_daemon.undoing import Undoing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hive_subagent_daemon.config_values import Config, Limits
    from hive_subagent_daemon.launcher import Launcher, Placed
    from hive_subagent_daemon.records import Records

_log = logging.getLogger(__name__)
_MIB = 1024 * 1024
UNDO_AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True)
class TurnRequest:
    """What a parent asked for; `model` None is as before, empty claude's default; `before` is remembered."""

    name: str
    prompt: str = field(repr=False)
    prompt_file: str | None
    model: str | None
    dir: str | None
    before: SubagentRecord | None

    @property
    def resumes(self) -> bool:
        """Whether it continues a session; a fresh start has a prompt file."""
        return self.prompt_file is None


@dataclass(frozen=True)
class _Plan:
    """All that is needed to spawn, worked out before anything is changed."""

    record: TurnRecord
    program: Path
    environment: Mapping[str, str] = field(repr=False)
    instructions: bytes | None = field(repr=False)
    prompt: bytes = field(repr=False)
    mcp_config: bytes | None = field(repr=False)


class Spawner:
    """Spawns turns with one configuration."""

    def __init__(
        self,
        config: Config,
        *,
        storage: Storage,
        records: Records,
        launcher: Launcher,
        environ: Mapping[str, str],
    ) -> None:
        """Take everything that a spawn needs; `environ` is the daemon's own environment."""
        self._config = config
        self._storage = storage
        self._records = records
        self._launcher = launcher
        self._environ = environ
        settled = {key: value for key, value in config.environment.items() if isinstance(value, str)}
        # Without what is read from files: that may change, and neither PATH nor HOME are secrets.
        self._settled_environment = claude_command.inherited_environment(environ) | settled
        self.store = ClaudeStore(self._settled_environment)
        self._last_turn: str | None = None
        # Turns that are being spawned: their first instruction may already call us. Whoever takes a turn over
        # removes it here.
        self.pending: dict[str, TurnRoot] = {}
        self.undoing = Undoing(records=records, storage=storage)
        self._something_left = anyio.Event()

    def continue_ids_after(self, turn: str | None) -> None:
        """Let new turn ids sort after this one."""
        self._last_turn = turn

    def set_limits(self, limits: Limits) -> None:
        """Use other limits from now on."""
        self._config = replace(self._config, limits=limits)

    @property
    def probing_environment(self) -> Mapping[str, str]:
        """The environment in which claude is asked for its version."""
        return self._settled_environment

    def find_program(self) -> Path:
        """Return the claude program that a turn would run now; raises RefusedError."""
        return claude_command.find_program(
            self._config.claude, self._settled_environment, self._config.work_dir
        )

    async def spawn(self, request: TurnRequest) -> Turn:
        """Return the running turn once its program is confirmed to execute.

        Raises RefusedError; then nothing has been changed.
        """
        moment = clock.now()
        turn_id = clock.new_turn_id(moment, self._last_turn)
        self._last_turn = turn_id
        plan = await in_thread(self._plan, request, turn_id, clock.as_text(moment))
        try:
            return await self._spawn(plan)
        finally:
            if self.undoing.left:
                self._something_left.set()

    async def keep_undoing(self) -> None:
        """Undo what could not be undone at once when a spawn was refused, until cancelled."""
        while True:
            await self._something_left.wait()
            await in_thread(self.undoing.undo_rest)
            if self.undoing.left:
                await anyio.sleep(UNDO_AGAIN_SECONDS)
            else:
                self._something_left = anyio.Event()

    # Planning: reads only

    def _plan(self, request: TurnRequest, turn: str, started_at: str) -> _Plan:
        config = self._config
        self._check_disk()
        self.undoing.check(request.name)
        directory = self._directory(request)
        environment = claude_command.child_environment(
            self._environ, config.environment, turn=turn, sandbox_mark=config.allow_root and os.getuid() == 0
        )
        environment["PWD"] = str(directory)
        before = request.before
        copy = before.prompt_copy if request.resumes and before else None
        instructions = None
        if request.prompt_file is not None:
            path = directory / _expanded("prompt_file", request.prompt_file)
            instructions = _read_prompt_file(path, config.limits.max_prompt_bytes)
            copy = str(self._records.prompt_path(request.name, turn))
        record = TurnRecord(
            turn=turn,
            name=request.name,
            resumes=request.resumes,
            dir=str(directory),
            session_id=(before.session_id if before else None) if request.resumes else str(uuid.uuid4()),
            model=_model(request),
            prompt_copy=copy,
            started_at=started_at,
            boot_id=procfs.boot_id(),
            scope=self._launcher.scope_of(turn),
            mcp_servers=tuple(s.name for s in config.mcp_servers if s.available_to_subagents),
            archived=() if request.resumes else self._to_archive(request.name, directory),
        )
        if len(request.prompt.encode()) > config.limits.max_prompt_bytes:
            most = config.limits.max_prompt_bytes
            message = f"prompt: it has more than max_prompt_bytes, which is {most}: shorten it."
            raise RefusedError(message)
        program = claude_command.find_program(config.claude, environment, config.work_dir)
        prompt = claude_command.prompt_bytes(request.prompt)
        return _Plan(
            record, program, environment, instructions, prompt, claude_command.mcp_config(config.mcp_servers)
        )

    def trouble(self) -> list[str]:
        """Say what would refuse every turn now."""
        placing = self._launcher.trouble()
        return [*self._trouble_with_disk(), *([f"{placing}."] if placing else [])]

    def _trouble_with_disk(self) -> list[str]:
        try:
            free = self._storage.free_bytes()
        except OSError as error:
            return [f"the state directory {self._storage.root} cannot be read: {error.strerror or error}."]
        if free >= FREE_BYTES_TO_START:
            return []
        needed = FREE_BYTES_TO_START // _MIB
        where = f"the disk of the state directory {self._storage.root}"
        return [f"{where} has only {free // _MIB} MiB free, a turn needs {needed} MiB: free some space."]

    def _check_disk(self) -> None:
        for trouble in self._trouble_with_disk():
            raise RefusedError(trouble)
        self._storage.restore_ballast()

    def _directory(self, request: TurnRequest) -> Path:
        default = self._config.work_dir
        if request.resumes and request.before is not None and request.before.dir:
            default = Path(request.before.dir)
        if request.dir is not None:
            default = self._config.work_dir / _expanded("dir", request.dir)
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

    # Acting

    async def _spawn(self, plan: _Plan) -> Turn:
        """Prepare and launch; whatever goes wrong, nothing is left of it."""
        record = plan.record
        files = TurnFiles(self._records.turn_folder(record.turn, record.name))

        async def recorded(placed: Placed) -> None:
            nonlocal record
            record = replace(
                record,
                pid=placed.pid,
                pid_start=placed.start,
                cgroup=placed.cgroup,
                memory_limit_bytes=placed.memory_limit_bytes,
            )
            await in_thread(self._records.update_turn, record)

        try:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(in_thread, self.undoing.undo, record)
                await in_thread(self._prepare, plan, files)
                output = Output(files)
                undo.callback(output.close)
                undo.callback(output.retire)
                root = TurnRoot(record.turn, record.session_id, None, 0, record.scope)
                self.pending[record.turn] = root
                undo.callback(self.pending.pop, record.turn)
                child = await self._launcher.launch(self._spec(plan, files), root, recorded=recorded)
                undo.pop_all()
        except PlacingError as error:
            message = f"the turn got no scope, so claude was not executed: {error}."
            raise RefusedError(message) from error
        except SpawnError as error:
            message = f"claude could not be executed ({plan.program}): {error}."
            raise RefusedError(message) from error
        except OSError as error:
            what = error.filename or "state directory"
            message = f"the turn could not be prepared ({what}): {error.strerror or error}."
            raise RefusedError(message) from error
        return Turn(record, child, output, self.looked_in(record.dir))

    def _prepare(self, plan: _Plan, files: TurnFiles) -> None:
        """Write everything that must be there before the process exists, and archive."""
        record = plan.record
        self._records.begin_turn(record)
        if plan.instructions is not None:
            self._records.copy_prompt(record.name, record.turn, plan.instructions)
        files.create(plan.prompt)
        if plan.mcp_config is not None:
            write_private(files.mcp_config, plan.mcp_config)
        archive.apply(record.archived, self._storage)

    def _spec(self, plan: _Plan, files: TurnFiles) -> ChildSpec:
        record = plan.record
        argv = claude_command.arguments(
            plan.program,
            claude_command.Conversation(record.name, record.session_id, record.resumes),
            model=record.model,
            prompt_file=record.prompt_copy,
            mcp_config=files.mcp_config if plan.mcp_config is not None else None,
        )
        return ChildSpec(
            argv=argv,
            environment=plan.environment,
            dir=Path(record.dir),
            umask=self._config.umask,
            stdin=files.stdin,
            stdout=files.stdout,
            stderr=files.stderr,
            title=f"claude subagent {record.name} of {self._config.agent}, turn {record.turn}",
        )

    def looked_in(self, directory: str) -> str:
        """Say where claude looked for a session."""
        config_dir = self.store.config_dir_in(Path(directory))
        return (
            f"claude looked in its config directory {config_dir} for a session that was run in {directory}; "
            "if it was started elsewhere, pass that directory as `dir`."
        )


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
