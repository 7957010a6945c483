"""From a checked request to a running turn: planned, prepared, launched; or all of it is undone."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import archive, claude_command, clock
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.gate import ChildSpec, SpawnError
from hive_subagent_daemon.launcher import PlacingError
from hive_subagent_daemon.membership import TurnRoot
from hive_subagent_daemon.output import Output, TurnFiles, write_private
from hive_subagent_daemon.steering import Steering
from hive_subagent_daemon.storage import FREE_BYTES_TO_START, Storage
from hive_subagent_daemon.stream_input import Message
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turns import Turn
from hive_subagent_daemon.undoing import Undoing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.launcher import Launcher, Placed
    from hive_subagent_daemon.planning import Plan, Planner, TurnRequest
    from hive_subagent_daemon.records import Records

_log = logging.getLogger(__name__)
_MIB = 1024 * 1024
UNDO_AGAIN_SECONDS: Final = 2.0


class Spawner:
    """Spawns turns as they are planned."""

    def __init__(self, planner: Planner, *, storage: Storage, records: Records, launcher: Launcher) -> None:
        """Take everything that a spawn needs."""
        self.planner = planner
        self._storage = storage
        self._records = records
        self._launcher = launcher
        self._last_turn: str | None = None
        # Turns that are being spawned: their first instruction may already call us. Whoever takes a turn over
        # removes it here.
        self.pending: dict[str, TurnRoot] = {}
        self.undoing = Undoing(records=records, storage=storage)
        self._something_left = anyio.Event()

    def continue_ids_after(self, turn: str | None) -> None:
        """Let new turn ids sort after this one."""
        self._last_turn = turn

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

    def _plan(self, request: TurnRequest, turn: str, started_at: str) -> Plan:
        for trouble in self._trouble_with_disk():
            raise RefusedError(trouble)
        self._storage.restore_ballast()
        self.undoing.check(request.name)
        scope = self._launcher.scope_of(turn)
        return self.planner.plan(request, turn=turn, started_at=started_at, scope=scope)

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

    async def _spawn(self, plan: Plan) -> Turn:
        """Prepare and launch; whatever goes wrong, nothing is left of it."""
        record = plan.record
        files = TurnFiles(self._records.turn_folder(record.turn, record.name))
        steering = Steering(files.stdin) if record.steerable else None

        async def recorded(placed: Placed) -> None:
            nonlocal record
            record = replace(
                record,
                pid=placed.pid,
                pid_start=placed.start,
                cgroup=placed.cgroup,
                memory_limit_bytes=placed.memory_limit_bytes,
                began=time.monotonic(),
            )
            await in_thread(self._records.update_turn, record)

        with _told_as_refusals(plan):
            async with AsyncExitStack() as undo:
                undo.push_async_callback(in_thread, self.undoing.undo, record)
                if steering is not None:
                    undo.callback(steering.close)
                await in_thread(self._prepare, plan, files, steering)
                output = Output(files, keep=partial(self._records.keep_progress, files.folder))
                undo.callback(output.close)
                undo.callback(output.retire)
                root = TurnRoot(record.turn, record.session_id, None, 0, record.scope)
                self.pending[record.turn] = root
                undo.callback(self.pending.pop, record.turn)
                child = await self._launcher.launch(self._spec(plan, files), root, recorded=recorded)
                if steering is not None:
                    steering.attach()
                undo.pop_all()
        began = time.monotonic() if record.began is None else record.began
        return Turn(record, child, output, self.planner.looked_in(record.dir), began, steering=steering)

    def _prepare(self, plan: Plan, files: TurnFiles, steering: Steering | None) -> None:
        """Write everything that must be there before the process exists, and archive."""
        record = plan.record
        self._records.begin_turn(record)
        if plan.instructions is not None:
            self._records.copy_prompt(record.name, record.turn, plan.instructions)
        files.create(plan.prompt if isinstance(plan.prompt, bytes) else None)
        if steering is not None and isinstance(plan.prompt, Message):
            steering.create(plan.prompt)
        if plan.mcp_config is not None:
            write_private(files.mcp_config, plan.mcp_config)
        archive.apply(record.archived, self._storage)

    def _spec(self, plan: Plan, files: TurnFiles) -> ChildSpec:
        record = plan.record
        argv = claude_command.arguments(
            plan.program,
            claude_command.Conversation(record.name, record.session_id, record.resumes),
            model=record.model,
            prompt_file=record.prompt_copy,
            mcp_config=files.mcp_config if plan.mcp_config is not None else None,
            bounds=record.bounds,
            steerable=record.steerable,
        )
        return ChildSpec(
            argv=argv,
            environment=plan.environment,
            dir=Path(record.dir),
            umask=self.planner.config.umask,
            stdin=files.stdin,
            stdout=files.stdout,
            stderr=files.stderr,
            title=f"claude subagent {record.name} of {self.planner.config.agent}, turn {record.turn}",
            stdin_is_fifo=record.steerable,
        )


@contextmanager
def _told_as_refusals(plan: Plan) -> Iterator[None]:
    """Turn the ways in which a spawn fails into sentences for the parent."""
    try:
        yield
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
