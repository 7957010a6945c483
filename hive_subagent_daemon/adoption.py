"""Turns of an earlier daemon that still run, taken over as if nothing had happened (`on_restart`)."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from hive_subagent_daemon import gate, procfs
from hive_subagent_daemon.config_values import OnRestart
from hive_subagent_daemon.output import Output, TurnFiles
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turns import OomHistory, Turn
from hive_subagent_daemon.values import Cause

if TYPE_CHECKING:
    from pathlib import Path

    from hive_subagent_daemon.config_values import Config
    from hive_subagent_daemon.launcher import Child, Launcher
    from hive_subagent_daemon.own_service import OwnService
    from hive_subagent_daemon.records import Records, TurnRecord

_log = logging.getLogger(__name__)


def can_adopt(config: Config, launcher: Launcher, service: OwnService | None) -> tuple[bool, list[str]]:
    """Tell whether turns outlive this daemon, as configured, and what to warn of in `status`.

    systemd kills whatever is left in the cgroup of a service that ends: there only scopes outlive it.
    """
    if config.on_restart is not OnRestart.ADOPT:
        return False, []
    if launcher.makes_scopes or service is None:
        return True, []
    notice = (
        f'on_restart = "adopt" has no effect: turns run as process groups inside {service.unit}, and systemd '
        "kills whatever is in there when it ends; only turns in scopes of their own survive that"
    )
    _log.warning("%s", notice)
    return False, [notice]


async def adopted(
    record: TurnRecord, child: Child, *, folder: Path, records: Records, looked_in: str
) -> Turn | None:
    """Return the turn if its claude lives and is to live on, None when the turn is to be settled."""
    if record.pid is None or record.pid != child.pid:
        return None
    if any(sent.cause is Cause.DAEMON_STOPPED for sent in record.sent):
        return None  # a stop for good was under way
    if not await gate.left_gate(record.pid) or not child.hold():
        return None
    return await in_thread(partial(_taken_over, record, child, folder, records=records, looked_in=looked_in))


def _taken_over(record: TurnRecord, child: Child, folder: Path, *, records: Records, looked_in: str) -> Turn:
    """Return the turn as its earlier daemon knew it. Blocks."""
    began = _began(record)
    files = TurnFiles(folder)
    files.complete()
    output = Output(
        files, since=began, progress=records.progress(folder), keep=partial(records.keep_progress, folder)
    )
    turn = Turn(
        record,
        child,
        output,
        looked_in,
        began,
        sent=list(record.sent),
        stopped_after_result=record.stopped_after_result,
        timed_out=record.timed_out,
        oom_kills=OomHistory(record.oom_outlived, record.oom_outlived),
        adopted=True,
    )
    age = output.age_seconds()  # before the look, which may give back: that changes the modification time
    turn.look()
    turn.activity = output.seen.activity
    turn.activity_since = time.monotonic() - age
    return turn


def _began(record: TurnRecord) -> float:
    """Return when a turn began by the monotonic clock; an older record tells only when its process did."""
    now = time.monotonic()
    if record.began is not None:
        return min(record.began, now)
    return now - procfs.age_seconds(record.pid_start or 0)
