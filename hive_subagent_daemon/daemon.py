"""The daemon put together: start-up in order, serving, and an orderly stop."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from hive_subagent_daemon import __version__, children, loop_errors, membership
from hive_subagent_daemon.access import AccessRule, AllowedUids
from hive_subagent_daemon.adoption import can_adopt
from hive_subagent_daemon.assembly import Parts, assemble, open_storage
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.config_values import MOST_PROMPT_BYTES
from hive_subagent_daemon.errors import RefusedError, StartUpError
from hive_subagent_daemon.listeners import Listeners, bind_all, is_reachable, names_in
from hive_subagent_daemon.managers import User, choose_launcher
from hive_subagent_daemon.mcp_endpoint import MCP_PATH, McpEndpoint, Paths
from hive_subagent_daemon.mcp_service import build_server
from hive_subagent_daemon.metrics import Metrics
from hive_subagent_daemon.nesting import NestedSubagents
from hive_subagent_daemon.notices_endpoint import NOTICES_PATH, NoticesEndpoint
from hive_subagent_daemon.notify import Notifier, status_line
from hive_subagent_daemon.own_service import OwnService, is_stopped_for_good, own_service
from hive_subagent_daemon.page import Page
from hive_subagent_daemon.peer import Peer, TcpPeer, UnixPeer
from hive_subagent_daemon.reading import Reading
from hive_subagent_daemon.reloading import Reloading
from hive_subagent_daemon.slices_to_stop import SlicesToStop
from hive_subagent_daemon.storage import open_state_dir
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.token_files import TokenError
from hive_subagent_daemon.tokens import BearerToken
from hive_subagent_daemon.upkeep import Stop, upkeep
from hive_subagent_daemon.web import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from starlette.types import ASGIApp

    from hive_subagent_daemon.config_values import Config

_log = logging.getLogger(__name__)

LAST_DELIVERIES_SECONDS: Final = 2.0  # the rest is delivered after the next start


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

    With `on_restart = "adopt"` turns may run on instead, for the next daemon. `passed` are the sockets that
    systemd has opened for us, `notifier` tells it how we are; `reload` reads the configuration again (at
    SIGHUP). Raises StartUpError when serving is not possible.
    """
    user = User(os.getuid(), user_name)
    if user.uid == 0 and not config.allow_root:
        message = (
            "running as root: claude would work with root's rights. Run the daemon as the agent's own user, "
            "or set allow_root = true in the configuration."
        )
        raise StartUpError(message)
    token = _token(config, environ)
    os.umask(0o077)
    loop_errors.install()
    children.become_subreaper()
    lock = await in_thread(open_state_dir, config.state_dir)
    try:
        with _needing_the_disk(config.state_dir):
            storage, instance = await in_thread(open_storage, config)
            to_stop = await in_thread(SlicesToStop, storage)
        family = Children()
        launcher, notices = await choose_launcher(
            config, family, user=user, environ=environ, instance=instance, to_stop=to_stop
        )
        service = own_service(user.uid, environ)
        adopts, impossible = can_adopt(config, launcher, service)
        put_together = partial(
            assemble,
            config,
            storage=storage,
            launcher=launcher,
            children=family,
            environ=environ,
            adopts=adopts,
        )
        with _needing_the_disk(config.state_dir):
            parts = await in_thread(put_together)
        parts.subagents.notices.extend([*notices, *impossible, *_useless_nesting(config)])
        with passed or bind_all(config.listen, reachable=token.configured) as listeners:
            await _serve(
                config, parts, listeners, token=token, notifier=notifier, reload=reload, service=service
            )
    finally:
        os.close(lock)
    _log.info("stopped")


def _token(config: Config, environ: Mapping[str, str]) -> BearerToken:
    """Return the token, read; without one to be had, StartUpError says why."""
    token = BearerToken(config.auth.token_file, environ)
    try:
        token.read()
    except TokenError as error:
        message = f"auth.token_file: {error}"
        raise StartUpError(message) from error
    return token


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
    token: BearerToken,
    notifier: Notifier,
    reload: Callable[[], Config],
    service: OwnService | None,
) -> None:
    """Settle or adopt what was left, then serve until told to stop."""
    stop = Stop()
    rule = _rule(config, parts, listeners, token=token)
    endpoint = _endpoint(parts, rule)
    reloading = _reloading(config, parts, listeners, rule=rule, load=reload)
    notices = NoticesEndpoint(parts.inbox, parts.registry, parts.claims)
    tell_systemd = partial(_tell_systemd, parts, notifier)

    def started() -> None:
        _tell_addresses(listeners)
        parts.registry.on_change = partial(_changed, tell_systemd, notices)
        parts.couriers.notify(tell_systemd)
        tell_systemd()
        notifier.ready()

    await _settle(config, parts)
    async with upkeep(config, parts, notifier=notifier, stop=stop, reloading=reloading), endpoint.run():
        for turn in parts.recovery.adopted.values():
            parts.registry.attend(turn)
        await serve(
            Paths({MCP_PATH: endpoint, NOTICES_PATH: notices, **_shown_paths(config, parts)}),
            listeners.sockets,
            rule=rule,
            started=started,
            stop=stop.asked,
            close_streams=partial(_close_streams, parts, notices, endpoint),
        )
        if parts.registry.adopts and not stop.for_good and not await is_stopped_for_good(service):
            await parts.registry.leave()
        else:
            await parts.registry.stop()
        await parts.couriers.rest(within_seconds=LAST_DELIVERIES_SECONDS)


def _endpoint(parts: Parts, rule: AccessRule) -> McpEndpoint:
    listen = ListenHandler(InMemorySubscriptionBus())
    # The configured limit on prompts can change while we serve: it is checked at the spawn.
    server = build_server(
        parts.subagents,
        version=__version__,
        max_prompt_bytes=MOST_PROMPT_BYTES,
        listen=listen,
        nested=partial(_nested, parts),
    )
    return McpEndpoint(server, hosts=rule.hosts, listen=listen)


def _changed(tell_systemd: Callable[[], None], notices: NoticesEndpoint) -> None:
    """Tell everybody who follows what runs and what is open."""
    tell_systemd()
    notices.changed()


async def _close_streams(parts: Parts, notices: NoticesEndpoint, endpoint: McpEndpoint) -> None:
    """Let everybody go who waits for an answer."""
    parts.subagents.waits.close()
    notices.close_streams()
    await endpoint.close_streams()


def _useless_nesting(config: Config) -> list[str]:
    if not config.nests or config.limits.max_depth > 1:
        return []
    notice = (
        "subagents get the tools of this daemon (mcp_servers.subagent), and max_depth = 1 refuses each of "
        "their starts: set limits.max_depth = 2, or take the tools away"
    )
    _log.warning("%s", notice)
    return [notice]


def _nested(parts: Parts, turn_id: str) -> NestedSubagents:
    """Return the service for callers inside a turn."""
    turn = parts.registry.turn_with(turn_id)
    if turn is None:
        message = f"turn {turn_id} is beginning or ending right now: try again in a moment."
        raise RefusedError(message)
    return NestedSubagents(parts.subagents, parts.registry, parts.inbox, turn=turn)


def _shown_paths(config: Config, parts: Parts) -> dict[str, ASGIApp]:
    """Return the paths that only show something, for people and for Prometheus."""
    page = Page(parts.subagents, inbox=parts.inbox, store=parts.spawner.planner.store, agent=config.agent)
    shown = {"/": page.html, "/style.css": page.style, "/metrics": Metrics(parts).text}
    return {path: Reading(produce) for path, produce in shown.items()}


def _tell_systemd(parts: Parts, notifier: Notifier) -> None:
    """Keep the line of `systemctl status` current."""
    trouble = next(iter([*parts.spawner.trouble(), *parts.couriers.trouble()]), None)
    counts = {"running": len(parts.registry.running), "loose_ends": parts.inbox.open_count}
    notifier.status(status_line(**counts, trouble=trouble))


async def _settle(config: Config, parts: Parts) -> None:
    with _needing_the_disk(config.state_dir):
        settled = await parts.recovery.settle()
    if settled:
        _log.warning("turns of an earlier daemon that were settled: %d; see the loose ends", settled)
    if parts.recovery.adopted:
        _log.info("turns of an earlier daemon that go on: %d", len(parts.recovery.adopted))


def _rule(config: Config, parts: Parts, listeners: Listeners, *, token: BearerToken) -> AccessRule:
    """Return who may call; a host in `listen` is a right one for sockets that were passed in too."""
    hosts = listeners.names | names_in(config.listen)
    allowed = AllowedUids(config.auth.allow_uids)
    open_to_turns = MCP_PATH if config.nests else None
    return AccessRule(os.geteuid(), partial(_turn_of_peer, parts), hosts, allowed, token, open_to_turns)


def _reloading(
    config: Config, parts: Parts, listeners: Listeners, *, rule: AccessRule, load: Callable[[], Config]
) -> Reloading:
    """Return what a SIGHUP sets off; its trouble shows in `status`."""
    reachable = [listener.url for listener in listeners.all if is_reachable(listener.socket)]
    reloading = Reloading(
        config,
        load=load,
        set_limits=parts.subagents.set_limits,
        token=rule.token,
        allowed=rule.allowed,
        reachable=reachable,
    )
    parts.subagents.reload_trouble = reloading.trouble
    return reloading


def _tell_addresses(listeners: Listeners) -> None:
    for listener in listeners.all:
        _log.info("listening on %s", listener.url)
        if is_reachable(listener.socket):
            _log.warning(
                "other machines can reach %s: the token crosses the network unencrypted, and whoever has it "
                "can run code as this user",
                listener.url,
            )


async def _turn_of_peer(parts: Parts, peer: Peer) -> str | None:
    """Return the running turn that a peer's process belongs to: certain with scopes, best effort without."""
    if (turn := parts.launcher.turn_of(peer)) is not None:
        return turn
    told = (peer.cgroup if isinstance(peer, UnixPeer) else peer.cgroup_id) is not None
    if told and parts.launcher.makes_scopes and not parts.registry.strayed:
        return None
    roots = [*parts.registry.roots(), *parts.spawner.pending.values()]
    if not roots:
        return None
    if isinstance(peer, TcpPeer):
        return await in_thread(membership.turn_with_socket, peer.inode, roots)
    return await in_thread(membership.turn_with_process, peer.pid, roots)
