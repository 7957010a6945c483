"""All checks of `doctor` in order: what can be seen from here, then what only the daemon knows."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import clock
from hive_subagent_daemon.cli.checks import Check, Machine, Verdict, configuration, local_checks
from hive_subagent_daemon.cli.tables import mebibytes
from hive_subagent_daemon.client import UnreachableError, call_tool
from hive_subagent_daemon.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hive_subagent_daemon.cli.tables import Json
    from hive_subagent_daemon.client import Endpoint

_CLOCK_SLACK: Final = timedelta(minutes=2)


def all_checks(endpoint: Endpoint, config_file: Path | None) -> Iterator[Check]:
    """Yield every check as soon as it is made."""
    logging.disable()  # what the daemon would log is said by the checks
    try:
        yield from _all(endpoint, config_file)
    finally:
        logging.disable(logging.NOTSET)


def _all(endpoint: Endpoint, config_file: Path | None) -> Iterator[Check]:
    machine = Machine.here()
    limit = None
    try:
        config, found = configuration(machine, config_file)
    except ConfigError as error:
        fix = "correct it; `hive-subagent-daemon --check` tells whether it is right"
        yield Check("configuration", Verdict.BAD, str(error), fix)
    else:
        limit = config.scopes.memory_max
        yield found
        yield from local_checks(machine, config)
    yield from daemon_checks(endpoint, limit)


def daemon_checks(endpoint: Endpoint, limit: object) -> Iterator[Check]:
    """Yield what only the daemon knows."""
    good, note, bad = Verdict.GOOD, Verdict.NOTE, Verdict.BAD
    try:
        answer = call_tool(endpoint, "status", {}).structured
    except UnreachableError as error:
        fix = (
            "systemctl --user start hive-subagent.socket, or hive-subagent-daemon in a shell; --url, --socket"
        )
        yield Check("daemon", bad, str(error), fix)
        return
    except RefusedError as error:
        fix = "ask as the user that it runs as, or see auth.token_file and auth.allow_uids"
        yield Check("access", bad, str(error), fix)
        return
    version = answer["claude_version"]
    yield Check("daemon", good, f"{endpoint.shown}, claude {version or 'not asked yet'}")
    if answer["launcher"] == "process group":
        fix = "see `systemd` above, then restart the daemon"
        yield Check("turns", note, "run as process groups, without memory limits", fix)
    else:
        yield Check("turns", good, f"run in scopes ({answer['launcher']})")
        yield from _limits(answer, limit)
    if answer["undelivered"]:
        found = f"{answer['undelivered']} loose ends wait for a sink"
        yield Check("sinks", bad, found, "see the warnings below, and the journal of the daemon")
    for warning in answer["warnings"]:
        yield Check("warning", note, warning)
    newest = max((subagent["turn"] for subagent in answer["subagents"] if subagent["turn"]), default=None)
    if newest is not None and clock.turn_time(newest) > clock.now() + _CLOCK_SLACK:
        found = f"the last turn began in the future ({newest}): the clock was set back"
        yield Check("clock", bad, found, "set the clock: timedatectl set-ntp true")


def _limits(answer: Json, configured: object) -> Iterator[Check]:
    """Compare the memory limit as the kernel has it with the configured one."""
    for subagent in answer["subagents"]:
        if subagent["state"] != "running":
            continue
        limit = subagent.get("memory_limit_bytes")
        if limit is not None:
            yield Check("limit", Verdict.GOOD, f"{subagent['name']}: {mebibytes(limit)} of memory")
        elif configured is not None:
            found = f"{subagent['name']} runs without the configured memory_max ({configured})"
            yield Check("limit", Verdict.BAD, found, "see `controllers` above")
