"""The parts of a daemon, made from its configuration and its state directory."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.command_sink import CommandCarrier
from hive_subagent_daemon.couriers import Courier, Couriers
from hive_subagent_daemon.http_sink import HttpCarrier
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.notice_claims import Claims
from hive_subagent_daemon.planning import Planner
from hive_subagent_daemon.records import Records, SubagentRecord
from hive_subagent_daemon.recovery import Recovery
from hive_subagent_daemon.registry import Registry
from hive_subagent_daemon.sink_values import HttpSink, Sink
from hive_subagent_daemon.spawning import Spawner
from hive_subagent_daemon.storage import Storage
from hive_subagent_daemon.subagents import Subagents
from hive_subagent_daemon.tally import Tally
from hive_subagent_daemon.turn_ends import loose_end_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hive_subagent_daemon.children import Children
    from hive_subagent_daemon.config_values import Config
    from hive_subagent_daemon.launcher import Launcher

_log = logging.getLogger(__name__)

_BALLAST_BASE_BYTES: Final = 1024 * 1024
_BALLAST_BYTES_A_TURN: Final = 384 * 1024  # a loose end, what is remembered, and the records around them


@dataclass(frozen=True)
class Parts:
    """What works together; each owns what its module says."""

    records: Records
    storage: Storage
    inbox: Inbox
    launcher: Launcher
    spawner: Spawner
    registry: Registry
    subagents: Subagents
    recovery: Recovery
    children: Children
    couriers: Couriers
    claims: Claims
    tally: Tally


def open_storage(config: Config) -> tuple[Storage, str]:
    """Return the storage of the state directory and its instance id, a random one made at its first use."""
    ballast = _BALLAST_BASE_BYTES + _BALLAST_BYTES_A_TURN * config.limits.max_running
    storage = Storage(config.state_dir, ballast_bytes=ballast)
    _remove_halves(storage)
    storage.restore_ballast()
    return storage, _instance(storage, config.state_dir / "instance")


def assemble(
    config: Config,
    *,
    storage: Storage,
    launcher: Launcher,
    children: Children,
    environ: Mapping[str, str],
    adopts: bool = False,
) -> Parts:
    """Read the state directory and put the parts together. Blocks.

    With `adopts` turns outlive this daemon, and those that have outlived an earlier one are taken over.
    """
    records = Records(storage)
    sinks = config.loose_ends.sinks
    inbox = Inbox(records, records.loose_ends(), sinks=[sink.id for sink in sinks])
    claims = Claims(storage, partial(inbox.select, name=None, ids=None))
    known = {record.name: record for record in records.subagents()}
    _restore_damaged(records, inbox, known)
    _forget_other_sinks(inbox)
    carrier = partial(_carrier, children=children, environ=environ, state_dir=config.state_dir)
    couriers = Couriers(Courier(sink, carrier(sink), inbox) for sink in sinks)
    inbox.on_show = couriers.add
    planner = Planner(config, records=records, environ=environ)
    spawner = Spawner(planner, storage=storage, records=records, launcher=launcher)
    turns = [turn for turn, _, _ in records.turns()]
    turns += [record.last_turn.turn for record in known.values()]
    spawner.continue_ids_after(max([*turns, *filter(None, [inbox.newest])], default=None))
    registry = Registry(config.limits, records=records, inbox=inbox, known=known)
    subagents = Subagents(
        registry, spawner=spawner, records=records, inbox=inbox, launcher=launcher, couriers=couriers
    )
    recovery = Recovery(
        storage=storage,
        records=records,
        inbox=inbox,
        launcher=launcher,
        known=known,
        looked_in=planner.looked_in,
    )
    registry.adopts = recovery.adopts = adopts
    tally = _tally_of(inbox, subagents, couriers)
    working = (spawner, registry, subagents, recovery)
    return Parts(records, storage, inbox, launcher, *working, children, couriers, claims, tally)


def _tally_of(inbox: Inbox, subagents: Subagents, couriers: Couriers) -> Tally:
    """Let everything that is to be counted be told to one tally."""
    tally = Tally(courier.label for courier in couriers.all)
    inbox.on_end = tally.ended
    subagents.on_spawn = tally.spawned
    for courier in couriers.all:
        courier.on_answer = tally.answered
    return tally


def _carrier(
    sink: Sink, *, children: Children, environ: Mapping[str, str], state_dir: Path
) -> HttpCarrier | CommandCarrier:
    if isinstance(sink, HttpSink):
        return HttpCarrier(sink)
    return CommandCarrier(sink, children, environ=environ, state_dir=state_dir)


def _forget_other_sinks(inbox: Inbox) -> None:
    """Let nothing wait for a sink that is no longer configured."""
    try:
        forgotten = inbox.forget_other_sinks()
    except OSError as error:
        _log.warning("removed sinks are forgotten at the next start: %s", error)
        return
    if forgotten:
        _log.warning(
            "loose ends of which the inbox alone knows now: %d not delivered to sinks that are no longer "
            "configured",
            forgotten,
        )


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
    """Return the id that stands in the names of this state directory's units."""
    if path.exists() and _is_instance(text := path.read_text(errors="replace").strip()):
        return text
    made = secrets.token_hex(4)
    storage.write(path, f"{made}\n".encode())
    return made


def _is_instance(text: str) -> bool:
    return len(text) == 8 and all(letter in "0123456789abcdef" for letter in text)
