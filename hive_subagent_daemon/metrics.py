"""The metrics at `/metrics`, for Prometheus: what is counted, and what is so right now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon import __version__
from hive_subagent_daemon.on_demand import OnDemand
from hive_subagent_daemon.reading import Document
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from starlette.types import Scope

    from hive_subagent_daemon.access import Refusal
    from hive_subagent_daemon.assembly import Parts
    from hive_subagent_daemon.couriers import Couriers
    from hive_subagent_daemon.tally import Counts


@dataclass(frozen=True)
class SinkNow:
    """What waits for one sink, and for how long it has taken nothing although something was due."""

    label: str
    waiting: int
    aside: int
    failing_seconds: float


@dataclass(frozen=True)
class Readings:
    """Everything that the metrics tell, as it is at one moment; ages are 0 when nothing runs."""

    version: str
    claude_version: str
    launcher: str
    running: int
    max_running: int
    stalled: int
    longest_turn_seconds: float
    longest_silence_seconds: float
    memory_bytes: int
    open: int
    undelivered: int
    unstored: int
    refusing: bool
    sinks: tuple[SinkNow, ...]
    counts: Counts


_OPEN_METRICS: Final = b"application/openmetrics-text"
_exposition: Final = OnDemand[..., tuple[bytes, str]]("metric_families", "exposition")


class Metrics:
    """Makes the document at `/metrics`. Use from the event loop only."""

    def __init__(self, parts: Parts) -> None:
        """Tell how these parts are."""
        self._parts: Final = parts

    async def text(self, scope: Scope) -> Document | Refusal:
        """Return all metrics, in the format that was asked for."""
        accepted = [value for name, value in scope["headers"] if name == b"accept"]
        open_metrics = any(_OPEN_METRICS in value for value in accepted)
        expose = partial(_exposition, readings(self._parts), open_metrics=open_metrics)
        body, content_type = await in_thread(expose)
        return Document(content_type, body)


def readings(parts: Parts) -> Readings:
    """Read everything that the metrics tell; cheap."""
    registry = parts.registry
    turns = list(registry.running.values())
    now = time.monotonic()
    return Readings(
        version=__version__,
        claude_version=registry.claude_version or "",
        launcher=parts.launcher.description,
        running=len(turns),
        max_running=registry.limits.max_running,
        stalled=len(registry.stalled()),
        longest_turn_seconds=max((now - turn.started for turn in turns), default=0.0),
        longest_silence_seconds=max((turn.output.silent_seconds() for turn in turns), default=0.0),
        memory_bytes=sum(turn.child.memory_bytes() or 0 for turn in turns),
        open=parts.inbox.open_count,
        undelivered=parts.couriers.undelivered,
        unstored=len(registry.unstored),
        refusing=bool(parts.spawner.trouble()),
        sinks=_sinks(parts.couriers),
        counts=parts.tally.so_far(),
    )


def _sinks(couriers: Couriers) -> tuple[SinkNow, ...]:
    """Return one for each label: two sinks at one place may have the same."""
    found: dict[str, SinkNow] = {}
    for courier in couriers.all:
        before = found.get(courier.label, SinkNow(courier.label, 0, 0, 0.0))
        found[courier.label] = SinkNow(
            courier.label,
            before.waiting + len(courier.queue.waiting),
            before.aside + len(courier.queue.aside),
            max(before.failing_seconds, courier.failing_seconds),
        )
    return tuple(found.values())
