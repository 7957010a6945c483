"""Readings in Prometheus' words. Imported at the first call of `/metrics`.

A registry is made for each answer: nothing is global, and nothing is counted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from hive_subagent_daemon.metrics import Readings
    from hive_subagent_daemon.tally import Distribution

_OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def exposition(readings: Readings, *, open_metrics: bool) -> tuple[bytes, str]:
    """Return the text for Prometheus and its content type. Blocks shortly."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Readings(readings))
    encode, content_type = choose_encoder(_OPEN_METRICS if open_metrics else "")
    return encode(registry), content_type


class _Readings(Collector):
    """Gives one set of readings to a registry."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    @override
    def collect(self) -> Iterator[Metric]:
        yield from _now(self._readings)
        yield from _counted(self._readings)
        yield from _of_sinks(self._readings)


def _now(readings: Readings) -> Iterator[Metric]:
    build = {
        "version": readings.version,
        "claude_version": readings.claude_version,
        "launcher": readings.launcher,
    }
    yield InfoMetricFamily("hive_subagent_build", "What runs here, and how turns are run.", build)
    gauges = (
        ("turns_running", "Turns that run now.", readings.running),
        ("turns_running_limit", "How many turns may run at the same time.", readings.max_running),
        ("turns_stalled", "Running turns silent for longer than stall_after_seconds.", readings.stalled),
        (
            "longest_turn_seconds",
            "How long the oldest running turn has run; 0 without one.",
            readings.longest_turn_seconds,
        ),
        (
            "longest_silence_seconds",
            "The greatest age of a running turn's last output; 0 without one.",
            readings.longest_silence_seconds,
        ),
        ("turns_memory_bytes", "Memory of all running turns.", readings.memory_bytes),
        ("loose_ends_open", "Loose ends that the parent has not closed.", readings.open),
        (
            "loose_ends_undelivered",
            "Loose ends that at least one sink has not taken.",
            readings.undelivered,
        ),
        ("turns_unstored", "Ended turns whose end the disk does not take yet.", readings.unstored),
        (
            "starts_refused",
            "1 while every start would be refused for want of disk or scopes.",
            readings.refusing,
        ),
    )
    for name, meaning, value in gauges:
        yield GaugeMetricFamily(f"hive_subagent_{name}", meaning, value)


def _counted(readings: Readings) -> Iterator[Metric]:
    counts = readings.counts
    turns = CounterMetricFamily(
        "hive_subagent_turns",
        "Turns that ended, by outcome, by cause when killed, by error class when failed.",
        labels=["outcome", "cause", "error_class"],
    )
    for ending, number in sorted(counts.endings.items()):
        turns.add_metric([ending.outcome, ending.cause, ending.error_class], number)
    yield turns
    meaning = "Processes of ended turns that were killed for lack of memory."
    yield CounterMetricFamily("hive_subagent_oom_kills", meaning, counts.oom_kills)
    histograms = (
        ("start_duration_seconds", "From the call until claude was confirmed to run.", counts.starts),
        ("turn_duration_seconds", "How long turns ran that ended.", counts.durations),
        ("turn_cost_usd", "What claude says that its turns cost.", counts.costs),
    )
    for name, meaning, observed in histograms:
        histogram = HistogramMetricFamily(f"hive_subagent_{name}", meaning, labels=[])
        histogram.add_metric([], _buckets(observed), observed.total)
        yield histogram


def _of_sinks(readings: Readings) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "hive_subagent_sink_waiting", "Loose ends that wait for a sink, in order.", labels=["sink"]
    )
    aside = GaugeMetricFamily(
        "hive_subagent_sink_stepped_aside",
        "Loose ends that a sink has refused again and again.",
        labels=["sink"],
    )
    failing = GaugeMetricFamily(
        "hive_subagent_sink_failing_seconds",
        "For how long a sink has taken nothing although something waits; 0 when it takes.",
        labels=["sink"],
    )
    for sink in readings.sinks:
        waiting.add_metric([sink.label], sink.waiting)
        aside.add_metric([sink.label], sink.aside)
        failing.add_metric([sink.label], sink.failing_seconds)
    yield from (waiting, aside, failing)
    attempts = CounterMetricFamily(
        "hive_subagent_sink_attempts",
        "Attempts to deliver to a sink, by its answer: taken, refused (that loose end), failed (the sink).",
        labels=["sink", "answer"],
    )
    delays = HistogramMetricFamily(
        "hive_subagent_sink_delay_seconds",
        "From the end of a turn until a sink had taken its loose end.",
        labels=["sink"],
    )
    for label, counted in readings.counts.sinks.items():
        for answer, number in counted.attempts.items():
            attempts.add_metric([label, answer], number)
        delays.add_metric([label], _buckets(counted.delays), counted.delays.total)
    yield from (attempts, delays)


def _buckets(observed: Distribution) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in observed.bounds), "+Inf"]
    return list(zip(bounds, map(float, observed.at_most), strict=True))
