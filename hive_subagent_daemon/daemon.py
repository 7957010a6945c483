"""The daemon put together: start-up in order, serving, and an orderly stop."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from hive_subagent_daemon import __version__, children, loop_errors, membership
from hive_subagent_daemon.access import AccessRule
from hive_subagent_daemon.assembly import Parts, assemble, open_storage
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.listeners import Listeners, bind_all
from hive_subagent_daemon.managers import User, choose_launcher
from hive_subagent_daemon.mcp_endpoint import MCP_PATH, McpEndpoint, Paths
from hive_subagent_daemon.mcp_service import build_server
from hive_subagent_daemon.notify import Notifier, status_line
from hive_subagent_daemon.peer import Peer, TcpPeer, UnixPeer
from hive_subagent_daemon.storage import open_state_dir
from hive_subagent_daemon.upkeep import upkeep
from hive_subagent_daemon.web import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hive_subagent_daemon.config_values import Config

_log = logging.getLogger(__name__)

MOST_PROMPT_BYTES: Final = 10_000_000  # claude takes no more; the configured limit is checked at the spawn


async def run(
    config: Config,
    *,
    user_name: str,
    environ: Mapping[str, str],
    reload: Callable[[], Config],
    notifier: Notifier,
    passed: Listeners | None,
) -> None:
    """Serve until SIGTERM or SIGINT; every turn has its loose end when this returns.

    `passed` are the sockets that systemd has opened for us, `notifier` tells it how we are; `reload` reads
    the configuration again (at SIGHUP). Raises StartUpError when serving is not possible.
    """
    user = User(os.getuid(), user_name)
    if user.uid == 0 and not config.allow_root:
        message = (
            "running as root: claude would work with root's rights. Run the daemon as the agent's own user, "
            "or set allow_root = true in the configuration."
        )
        raise StartUpError(message)
    os.umask(0o077)
    loop_errors.install()
    children.become_subreaper()
    lock = await anyio.to_thread.run_sync(open_state_dir, config.state_dir)
    try:
        with _needing_the_disk(config.state_dir):
            storage, instance = await anyio.to_thread.run_sync(open_storage, config)
        family = Children()
        launcher, notices = await choose_launcher(
            config, family, user=user, environ=environ, instance=instance
        )
        put_together = partial(
            assemble, config, storage=storage, launcher=launcher, children=family, environ=environ
        )
        with _needing_the_disk(config.state_dir):
            parts = await anyio.to_thread.run_sync(put_together)
        parts.subagents.notices.extend(notices)
        with passed or bind_all(config.listen) as listeners:
            await _serve(config, parts, listeners, notifier=notifier, reload=reload)
    finally:
        os.close(lock)
    _log.info("stopped")


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


async def _serve(
    config: Config,
    parts: Parts,
    listeners: Listeners,
    *,
    notifier: Notifier,
    reload: Callable[[], Config],
) -> None:
    """Settle what was left, then serve until told to stop."""
    stop = anyio.Event()
    listen = ListenHandler(InMemorySubscriptionBus())
    server = build_server(
        parts.subagents, version=__version__, max_prompt_bytes=MOST_PROMPT_BYTES, listen=listen
    )
    endpoint = McpEndpoint(server, hosts=listeners.names, listen=listen)
    rule = AccessRule(os.geteuid(), partial(_turn_of_peer, parts), listeners.names)

    def tell_systemd() -> None:
        trouble = next(iter(parts.spawner.trouble()), None)
        counts = {"running": len(parts.registry.running), "loose_ends": parts.inbox.open_count}
        notifier.status(status_line(**counts, trouble=trouble))

    def started() -> None:
        for url in listeners.urls:
            _log.info("listening on %s", url)
        parts.registry.on_change = tell_systemd
        tell_systemd()
        notifier.ready()

    with _needing_the_disk(config.state_dir):
        settled = await parts.recovery.settle()
    if settled:
        _log.warning("turns of an earlier daemon that were settled: %d; see the loose ends", settled)
    async with upkeep(config, parts, notifier=notifier, stop=stop, reload=reload), endpoint.run():
        await serve(
            Paths({MCP_PATH: endpoint}),
            listeners.sockets,
            rule=rule,
            started=started,
            stop=stop,
            close_streams=endpoint.close_streams,
        )
        await parts.registry.stop()


async def _turn_of_peer(parts: Parts, peer: Peer) -> str | None:
    """Return the running turn that a peer's process belongs to: certain with scopes, best effort without."""
    if (turn := parts.launcher.turn_of(peer)) is not None:
        return turn
    told = isinstance(peer, UnixPeer) or peer.cgroup_id is not None
    if told and parts.launcher.makes_scopes and not parts.registry.strayed:
        return None
    roots = [*parts.registry.roots(), *parts.spawner.pending.values()]
    if not roots:
        return None
    if isinstance(peer, TcpPeer):
        return await anyio.to_thread.run_sync(membership.turn_with_socket, peer.inode, roots)
    return await anyio.to_thread.run_sync(membership.turn_with_process, peer.pid, roots)
