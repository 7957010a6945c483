"""The daemon's parts on a temporary folder, without processes."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from typing_extensions import override

from hive_subagent_daemon.config_values import Config, Limits, OnRestart, Retention, ScopeChoice, Scopes
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.planning import Planner
from hive_subagent_daemon.records import Records
from hive_subagent_daemon.recovery import Recovery
from hive_subagent_daemon.registry import Registry
from hive_subagent_daemon.spawning import Spawner
from hive_subagent_daemon.storage import Storage, open_state_dir
from hive_subagent_daemon.subagents import Subagents
from hive_subagent_daemon.values import NO_BOUNDS, Terms
from tests.unit import support_streams as streams
from tests.unit.support_children import FakeLauncher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

    from hive_subagent_daemon.output import Output
    from hive_subagent_daemon.records import SubagentRecord

LIMIT_SECONDS = 30.0
POLL_SECONDS = 0.002
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
Json = dict[str, Any]


class FaultyStorage(Storage):
    """A storage that fails: at writes below a folder (`broken`), the rename of a file (`fixed`), removals."""

    broken: str | None = None
    fixed: Path | None = None
    removals_fail = False

    @override
    def write(self, path: Path, content: bytes) -> None:
        """Write, or fail as a full disk does."""
        if self.broken is not None and self.broken in path.relative_to(self.root).parts:
            raise NO_SPACE
        super().write(path, content)

    @override
    def rename(self, source: Path, target: Path) -> None:
        """Rename, or fail."""
        if source == self.fixed:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source))
        super().rename(source, target)

    @override
    def remove_folder(self, path: Path) -> None:
        """Remove, or fail."""
        if self.removals_fail:
            raise NO_SPACE
        super().remove_folder(path)


class HeldLook:
    """Holds a look at one turn's output, once it has read, until it may go on."""

    def __init__(self, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of the output's own look."""
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._look = output.look
        monkeypatch.setattr(output, "look", self)

    def __call__(self) -> None:
        """Look, and stay."""
        self._look()
        self.reached.set()
        self.go_on.wait(LIMIT_SECONDS)


class Parts:
    """Everything between the tools and the processes, on one state directory."""

    def __init__(self, folder: Path, *, limits: Limits | None = None, claude: str | None = None) -> None:
        """Put the parts together as the daemon does, with what is on disk."""
        self.folder = folder
        self.work, self.state, self.home = (folder / name for name in ("work", "state", "home"))
        for made in (self.work, self.home):
            made.mkdir(exist_ok=True)
        (self.work / "recipe.md").write_text("Be brief.\n")
        program = folder / "claude"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        os.close(open_state_dir(self.state))
        self.config = config(self, claude=claude or str(program), limits=limits or Limits())
        self.storage = FaultyStorage(self.state, ballast_bytes=4096)
        self.storage.restore_ballast()
        self.records = Records(self.storage)
        self.inbox = Inbox(self.records, self.records.loose_ends())
        self.known: dict[str, SubagentRecord] = {one.name: one for one in self.records.subagents()}
        self.launcher = FakeLauncher()
        environ = {"HOME": str(self.home), "PATH": os.defpath}
        planner = Planner(self.config, records=self.records, environ=environ)
        self.spawner = Spawner(planner, storage=self.storage, records=self.records, launcher=self.launcher)
        self.registry = Registry(self.config.limits, records=self.records, inbox=self.inbox, known=self.known)
        self.subagents = Subagents(
            self.registry,
            spawner=self.spawner,
            records=self.records,
            inbox=self.inbox,
            launcher=self.launcher,
        )

    def recovery(self) -> Recovery:
        """Return what settles the turns on disk."""
        return Recovery(
            storage=self.storage,
            records=self.records,
            inbox=self.inbox,
            launcher=self.launcher,
            known=self.known,
            looked_in=self.spawner.planner.looked_in,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow turns while the block lasts; every wait in it is bounded."""
        with anyio.fail_after(LIMIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.registry.run)
                yield
                tasks.cancel_scope.cancel()

    def heal(self) -> None:
        """Let nothing fail any more."""
        self.storage.broken = self.launcher.fails = None
        self.storage.fixed = None
        self.storage.removals_fail = False
        self.launcher.created = lambda: None

    async def start(self, name: str = "alpha", **arguments: object) -> Json:
        """Start a subagent."""
        given: Json = {"prompt_file": "recipe.md", "model": None, "trigger": None, "dir": None}
        return await self.subagents.start(name=name, **given | _as_terms(arguments))

    async def resume(self, name: str = "alpha", **arguments: object) -> Json:
        """Continue a subagent."""
        given: Json = {"prompt": "go on", "model": None, "dir": None}
        return await self.subagents.continue_turn(name=name, **given | _as_terms(arguments))

    async def play(self, name: str = "alpha") -> str:
        """Start a subagent, let it succeed, and return the turn."""
        turn: str = (await self.start(name))["turn"]
        self.launcher.children[-1].succeed()
        await self.ended(turn)
        return turn

    async def ended(self, turn: str) -> Json:
        """Wait for the loose end of a turn and return it."""
        await until(partial(self.inbox.__contains__, turn))
        found = await self.subagents.get_loose_ends(name=None, ids=[turn], limit=1)
        [end] = found["loose_ends"]
        return dict(end)

    async def status_of(self, name: str = "alpha") -> Json:
        """Return what `status` says of one subagent."""
        [found] = (await self.subagents.status(name))["subagents"]
        return dict(found)

    @property
    def project(self) -> Path:
        """claude's folder for the sessions of the work directory, made if missing."""
        folder = self.spawner.planner.store.project_folder(self.work)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def earlier_session(self, name: str = "alpha", *, number: int = 1) -> Path:
        """Write a finished session of this title and return its transcript."""
        session = f"{number:08d}-1111-4111-8111-111111111111"
        path = self.project / f"{session}.jsonl"
        path.write_bytes(streams.line({"type": "custom-title", "customTitle": name, "sessionId": session}))
        return path

    def files(self) -> dict[str, bytes | None]:
        """Return everything in the state directory and in claude's store, folders as None."""
        found = [path for root in (self.state, self.home) for path in root.rglob("*")]
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in found
        }


def config(parts: Parts, *, claude: str, limits: Limits) -> Config:
    """Return a configuration that lies wholly in the folder of the parts."""
    return Config(
        agent="unit",
        claude=claude,
        work_dir=parts.work,
        state_dir=parts.state,
        listen=(),
        on_restart=OnRestart.STOP,
        allow_root=True,
        umask=0o022,
        log_level="info",
        retention=Retention(),
        environment={},
        scopes=Scopes(ScopeChoice.OFF),
        limits=limits,
        mcp_servers=(),
    )


async def until(condition: Callable[[], object], *, what: str = "the condition") -> None:
    """Wait until a condition holds; fail at the limit."""
    for _ in range(int(LIMIT_SECONDS / POLL_SECONDS)):
        if condition():
            return
        await anyio.sleep(POLL_SECONDS)
    message = f"{what} did not come true"
    raise AssertionError(message)


def open_descriptors() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def _as_terms(arguments: Json) -> Json:
    """Return arguments of the tools as those of the service."""
    bounds, steerable = arguments.pop("bounds", NO_BOUNDS), arguments.pop("steerable", False)
    return {**arguments, "terms": Terms(bounds, steerable=steerable)}
