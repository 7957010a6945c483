"""The daemon put together: start-up in order, serving, and an orderly stop."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import sdnotify
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from hive_subagent_daemon import __version__, children, log, membership
from hive_subagent_daemon.access import AccessRule
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.config_values import Config, ScopeChoice
from hive_subagent_daemon.errors import ConfigError, StartUpError, SubagentError
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.listeners import bind_all
from hive_subagent_daemon.mcp_endpoint import MCP_PATH, McpEndpoint, Paths
from hive_subagent_daemon.mcp_service import build_server
from hive_subagent_daemon.peer import Peer, TcpPeer
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.records import Records, SubagentRecord
from hive_subagent_daemon.recovery import Recovery
from hive_subagent_daemon.registry import Registry
from hive_subagent_daemon.spawning import Spawner
from hive_subagent_daemon.storage import Storage, open_state_dir
from hive_subagent_daemon.subagents import Subagents
from hive_subagent_daemon.turns import loose_end_of
from hive_subagent_daemon.web import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)

MOST_PROMPT_BYTES: Final = 10_000_000  # claude takes no more; the configured limit is checked at the spawn
HOUSEKEEPING_SECONDS: Final = 3600.0
_BALLAST_BASE_BYTES: Final = 1024 * 1024
_BALLAST_BYTES_A_TURN: Final = 384 * 1024  # a loose end, what is remembered, and the records around them
_VERSION_SECONDS: Final = 20.0


@dataclass(frozen=True)
class _Parts:
    """What is made at start-up."""

    storage: Storage
    records: Records
    inbox: Inbox
    spawner: Spawner
    registry: Registry
    subagents: Subagents
    recovery: Recovery
    children: Children


async def run(config: Config, *, environ: Mapping[str, str], reload: Callable[[], Config]) -> None:
    """Serve until SIGTERM or SIGINT; every turn has its loose end when this returns.

    `reload` reads the configuration again (at SIGHUP). Raises StartUpError when serving is not possible.
    """
    if os.getuid() == 0 and not config.allow_root:
        message = (
            "running as root: claude would work with root's rights. Run the daemon as the agent's own user, "
            "or set allow_root = true in the configuration."
        )
        raise StartUpError(message)
    os.umask(0o077)
    children.become_subreaper()
    lock = await anyio.to_thread.run_sync(open_state_dir, config.state_dir)
    try:
        with _needing_the_disk(config.state_dir):
            parts = await anyio.to_thread.run_sync(_build, config, environ)
        await _serve(config, parts, reload=reload)
    finally:
        os.close(lock)


def _build(config: Config, environ: Mapping[str, str]) -> _Parts:
    """Read the state directory and put the parts together. Blocks."""
    ballast = _BALLAST_BASE_BYTES + _BALLAST_BYTES_A_TURN * config.limits.max_running
    storage = Storage(config.state_dir, ballast_bytes=ballast)
    _remove_halves(storage)
    storage.restore_ballast()
    _instance(storage, config.state_dir / "instance")
    records = Records(storage)
    inbox = Inbox(records, records.loose_ends())
    known = {record.name: record for record in records.subagents()}
    _restore_damaged(records, inbox, known)
    family = Children()
    launcher = ProcessGroup(family)
    spawner = Spawner(config, storage=storage, records=records, launcher=launcher, environ=environ)
    turns = [turn for turn, _, _ in records.turns()]
    turns += [record.last_turn.turn for record in known.values()]
    spawner.continue_ids_after(max([*turns, *filter(None, [inbox.newest])], default=None))
    registry = Registry(config.limits, records=records, inbox=inbox, known=known)
    subagents = Subagents(
        registry,
        spawner=spawner,
        records=records,
        inbox=inbox,
        launcher_description=launcher.description,
    )
    recovery = Recovery(
        storage=storage,
        records=records,
        inbox=inbox,
        launcher=launcher,
        known=known,
        looked_in=spawner.looked_in,
    )
    return _Parts(storage, records, inbox, spawner, registry, subagents, recovery, family)


@contextmanager
def _needing_the_disk(state_dir: Path) -> Iterator[None]:
    """Turn an error of the disk into words: what was left by an earlier daemon stays for the next start."""
    try:
        yield
    except OSError as error:
        message = (
            f"the state directory {state_dir} cannot be used: {error}. Nothing is lost: mend it, start again."
        )
        raise StartUpError(message) from error


def _restore_damaged(records: Records, inbox: Inbox, known: Mapping[str, SubagentRecord]) -> None:
    """Store a loose end again whose file was damaged, where it was its subagent's last."""
    for record in known.values():
        if record.last_turn.turn in records.damaged_loose_ends:
            loose_end = loose_end_of(record.last_turn)
            inbox.store(loose_end)
            inbox.show(loose_end)


def _remove_halves(storage: Storage) -> None:
    """Remove what a crash in the middle of a write has left in the state directory itself."""
    for pattern in (".*.partial", ".probe.*"):
        for left in storage.root.glob(pattern):
            if left.is_file():
                storage.remove(left)


def _instance(storage: Storage, path: Path) -> str:
    """Return the random id of this state directory, made at its first use."""
    if path.exists() and (text := path.read_text(errors="replace").strip()):
        return text
    made = secrets.token_hex(4)
    storage.write(path, f"{made}\n".encode())
    return made


async def _serve(config: Config, parts: _Parts, *, reload: Callable[[], Config]) -> None:
    """Settle what was left, then serve until told to stop."""
    subagents, registry, inbox = parts.subagents, parts.registry, parts.inbox
    notifier = sdnotify.SystemdNotifier()
    _say_launcher(config)
    with bind_all(config.listen) as listeners:
        stop = anyio.Event()
        listen = ListenHandler(InMemorySubscriptionBus())
        server = build_server(
            subagents, version=__version__, max_prompt_bytes=MOST_PROMPT_BYTES, listen=listen
        )
        endpoint = McpEndpoint(server, hosts=listeners.names, listen=listen)
        rule = AccessRule(os.geteuid(), partial(_turn_of_peer, parts), listeners.names)

        def tell_systemd() -> None:
            notifier.notify(f"STATUS={len(registry.running)} running, {inbox.open_count} loose ends")

        def started() -> None:
            for url in listeners.urls:
                _log.info("listening on %s", url)
            registry.on_change = tell_systemd
            notifier.notify("READY=1")
            tell_systemd()

        with _needing_the_disk(config.state_dir):
            settled = await parts.recovery.settle()
        if settled:
            _log.warning("turns of an earlier daemon that were settled: %d; see the loose ends", settled)
        async with _background(config, parts, stop, reload=reload), endpoint.run():
            paths = Paths({MCP_PATH: endpoint})
            await serve(
                paths, listeners.sockets, rule=rule, started=started, stop=stop,
                close_streams=endpoint.close_streams,
            )  # fmt: skip
            notifier.notify("STOPPING=1\nSTATUS=stopping what runs")
            await registry.stop()
    _log.info("stopped")


@asynccontextmanager
async def _background(
    config: Config, parts: _Parts, stop: anyio.Event, *, reload: Callable[[], Config]
) -> AsyncIterator[None]:
    """Run what goes on beside serving: signals, turns, housekeeping."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(_signals, parts, stop, reload=reload), name="signals")
        await tasks.start(parts.registry.run, name="turns")
        tasks.start_soon(_keep_house, config, parts, name="housekeeping")
        tasks.start_soon(_know_sessions, config, parts, name="claude's sessions")
        tasks.start_soon(_probe_claude, parts, name="claude's version")
        yield
        tasks.cancel_scope.cancel()


async def _signals(
    parts: _Parts,
    stop: anyio.Event,
    *,
    reload: Callable[[], Config],
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
                    _reload(parts, reload)
                case _:
                    _log.info("stopping at %s", number.name)
                    stop.set()


def _reload(parts: _Parts, reload: Callable[[], Config]) -> None:
    """Take over log level and limits as configured now; keep the old ones if the file is invalid."""
    try:
        config = reload()
    except ConfigError as error:
        _log.error("the configuration was not read again, the old one stays: %s", error)
        return
    log.set_up(config.log_level)
    parts.subagents.set_limits(config.limits)
    _log.info("log level and limits were read again")


async def _keep_house(config: Config, parts: _Parts) -> None:
    """Remove what is older than the retention says, and restore the ballast."""
    while True:
        try:
            purged = await anyio.to_thread.run_sync(
                partial(parts.inbox.purge, closed_days=config.retention.closed_days)
            )
            forgotten = await parts.registry.forget_idle(days=config.retention.idle_days)
            await anyio.to_thread.run_sync(parts.storage.restore_ballast)
            if purged or forgotten:
                _log.info("removed %d closed loose ends and %d idle names", purged, forgotten)
        except OSError as error:
            _log.warning("housekeeping is put off: %s", error)
        await anyio.sleep(HOUSEKEEPING_SECONDS)


async def _know_sessions(config: Config, parts: _Parts) -> None:
    """Read the titles of the sessions in the usual directory once, so that the first `start` is quick too."""
    await anyio.to_thread.run_sync(parts.spawner.store.warm, config.work_dir)


async def _probe_claude(parts: _Parts) -> None:
    """Find claude and its version once, for `status` and the log."""
    try:
        program = parts.spawner.find_program()
        probed = await parts.children.run((str(program), "--version"), timeout_seconds=_VERSION_SECONDS)
    except (SubagentError, OSError, subprocess.SubprocessError) as error:
        parts.subagents.notices.append(f"claude could not be asked for its version: {error}")
        _log.warning("%s", parts.subagents.notices[-1])
        return
    words = probed.stdout.split()
    parts.registry.claude_version = words[0] if words else None
    _log.info("claude is %s, version %s", program, parts.registry.claude_version or "unknown")


def _say_launcher(config: Config) -> None:
    """Say what holds the processes of turns, and that it is a fallback where it is one."""
    if config.scopes is ScopeChoice.OFF:
        _log.info("turns run as process groups (scopes are off)")
        return
    notice = (
        "turns run as process groups: this version makes no systemd scopes, "
        "so memory limits and OOM reports are not available"
    )
    _log.warning("%s", notice)


async def _turn_of_peer(parts: _Parts, peer: Peer) -> str | None:
    """Return the running turn that a peer's process belongs to: best effort without scopes."""
    roots = [*parts.registry.roots(), *parts.spawner.pending.values()]
    if not roots:
        return None
    if isinstance(peer, TcpPeer):
        return await anyio.to_thread.run_sync(membership.turn_with_socket, peer.inode, roots)
    return await anyio.to_thread.run_sync(membership.turn_with_process, peer.pid, roots)
