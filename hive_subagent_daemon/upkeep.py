"""What goes on beside serving: signals to the daemon, the end of turns, housekeeping, the watchdog."""

from __future__ import annotations

import logging
import signal
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hive_subagent_daemon.assembly import Parts
    from hive_subagent_daemon.config_values import Config
    from hive_subagent_daemon.notify import Notifier
    from hive_subagent_daemon.reloading import Reloading

_log = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS: Final = 3600.0
_VERSION_SECONDS: Final = 20.0


@dataclass
class Stop:
    """That the daemon was asked to stop, and whether for good whatever systemd says: by Ctrl-C (SIGINT)."""

    asked: anyio.Event = field(default_factory=anyio.Event)
    for_good: bool = False


@asynccontextmanager
async def upkeep(
    config: Config, parts: Parts, *, notifier: Notifier, stop: Stop, reloading: Reloading
) -> AsyncIterator[None]:
    """Keep everything up until the block is left; SIGTERM and SIGINT set `stop`."""
    async with anyio.create_task_group() as tasks:

        def hang_up() -> None:
            tasks.start_soon(_reload, reloading, notifier, name="reload")

        take = partial(_take_signals, parts, notifier=notifier, stop=stop, hang_up=hang_up)
        await tasks.start(take, name="signals")
        await tasks.start(parts.registry.run, name="turns")
        tasks.start_soon(parts.launcher.run, name="launcher")
        tasks.start_soon(parts.couriers.run, name="sinks")
        tasks.start_soon(notifier.ping, name="watchdog")
        tasks.start_soon(_keep_house, reloading, parts, name="housekeeping")
        tasks.start_soon(parts.spawner.keep_undoing, name="undoing")
        tasks.start_soon(_know_sessions, config, parts, name="claude's sessions")
        tasks.start_soon(_probe_claude, parts, name="claude's version")
        yield
        tasks.cancel_scope.cancel()


async def _take_signals(
    parts: Parts,
    *,
    notifier: Notifier,
    stop: Stop,
    hang_up: Callable[[], None],
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Act on the signals of the daemon itself."""
    wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    with anyio.open_signal_receiver(*wanted) as received:
        task_status.started()
        async for number in received:
            match number:
                case signal.SIGCHLD:
                    parts.children.reap_orphans()
                case signal.SIGHUP:
                    hang_up()
                case _:
                    _log.info("stopping at %s", number.name)
                    notifier.stopping()
                    stop.for_good = stop.for_good or number is signal.SIGINT
                    stop.asked.set()


async def _reload(reloading: Reloading, notifier: Notifier) -> None:
    """Read the configuration again, beside the other signals: its disk may be slow."""
    notifier.reloading()
    await reloading.again()
    notifier.ready()


async def _keep_house(reloading: Reloading, parts: Parts) -> None:
    """Remove what is older than the retention says, and restore the ballast."""
    while True:
        keep, changed = reloading.retention, reloading.changed
        try:
            purged = await in_thread(partial(parts.inbox.purge, closed_days=keep.closed_days))
            forgotten = await parts.registry.forget_idle(days=keep.idle_days)
            await in_thread(partial(parts.claims.tidy, idle_days=keep.idle_days))
            await in_thread(parts.storage.restore_ballast)
            if purged or forgotten:
                _log.info("removed %d closed loose ends and %d idle names", purged, forgotten)
        except OSError as error:
            _log.warning("housekeeping is put off: %s", error)
        with anyio.move_on_after(HOUSEKEEPING_SECONDS):
            await changed.wait()


async def _know_sessions(config: Config, parts: Parts) -> None:
    """Read the titles of the sessions in the usual directory once, so that the first `start` is quick too."""
    await in_thread(parts.spawner.planner.store.warm, config.work_dir)


async def _probe_claude(parts: Parts) -> None:
    """Find claude and its version once, for `status` and the log."""
    try:
        program = parts.spawner.planner.find_program()
        probed = await parts.children.run(
            (str(program), "--version"),
            environment=parts.spawner.planner.settled_environment,
            timeout_seconds=_VERSION_SECONDS,
        )
    except (SubagentError, OSError, subprocess.SubprocessError) as error:
        parts.subagents.notices.append(f"claude could not be asked for its version: {error}")
        _log.warning("%s", parts.subagents.notices[-1])
        return
    words = probed.stdout.split()
    parts.registry.claude_version = words[0] if words else None
    _log.info("claude is %s, version %s", program, parts.registry.claude_version or "unknown")
