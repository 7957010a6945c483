"""The metrics as text: valid, complete, with few series, and what the alerts and the docs speak of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from prometheus_client.openmetrics import parser as open_metrics_parser
from prometheus_client.parser import text_string_to_metric_families

from hive_subagent_daemon import metrics
from hive_subagent_daemon.assembly import Parts as Assembled
from hive_subagent_daemon.assembly import assemble, open_storage
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.config_values import LooseEnds
from hive_subagent_daemon.deliveries import TAKEN
from hive_subagent_daemon.metric_families import exposition
from hive_subagent_daemon.metrics import Metrics, Readings, SinkNow
from hive_subagent_daemon.reading import Document
from hive_subagent_daemon.sink_values import CommandSink
from hive_subagent_daemon.tally import Ending, Tally
from hive_subagent_daemon.values import Terms
from tests.unit.support_records import KILLED_OUTCOME, OUTCOME, loose_end
from tests.unit.support_turns import Parts, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

REPOSITORY = Path(__file__).resolve().parents[2]
ALERTS = REPOSITORY / "docs" / "alerts.yml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (of Prometheus) is not installed")
HOSTILE = 'a"b\\c\nd{}'


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Use a fresh state directory."""
    return Parts(tmp_path)


def readings() -> Readings:
    """Return what a busy daemon tells."""
    tally = Tally(["hook", HOSTILE])
    tally.ended(OUTCOME)
    tally.ended(KILLED_OUTCOME)
    tally.spawned(0.03)
    tally.answered("hook", loose_end(), TAKEN)
    return Readings(
        version="1.2.3",
        claude_version="2.1.197",
        launcher="user scope",
        running=2,
        max_running=8,
        stalled=1,
        longest_turn_seconds=100.5,
        longest_silence_seconds=50.25,
        memory_bytes=1 << 30,
        open=3,
        undelivered=1,
        unstored=0,
        refusing=False,
        sinks=(SinkNow("hook", 1, 0, 0.0), SinkNow(HOSTILE, 0, 2, 12.5)),
        counts=tally.so_far(),
    )


def samples(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample by its name and labels; one that comes twice is an error."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def told(content: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample of a text."""
    return samples(text_string_to_metric_families(content.decode()))


def labelled(**labels: str) -> frozenset[tuple[str, str]]:
    """Return labels as they are kept."""
    return frozenset(labels.items())


def test_both_formats_tell_the_same() -> None:
    parse_open_metrics: Callable[[str], Iterable[Metric]] = open_metrics_parser.text_string_to_metric_families
    one_moment = readings()
    plain, plain_type = exposition(one_moment, open_metrics=False)
    open_metrics, open_type = exposition(one_moment, open_metrics=True)
    assert plain_type.startswith("text/plain; version=0.0.4")
    assert open_type.startswith("application/openmetrics-text; version=1.0.0")
    ours = [
        {key: value for key, value in one.items() if key[0].startswith("hive_subagent_")}
        for one in (told(plain), samples(parse_open_metrics(open_metrics.decode())))
    ]
    assert ours[0] == ours[1]
    assert len(ours[0]) < 150


def test_what_is_read_is_told() -> None:
    content, _ = exposition(readings(), open_metrics=False)
    found = told(content)
    expected = {
        ("hive_subagent_turns_running", labelled()): 2,
        ("hive_subagent_turns_stalled", labelled()): 1,
        ("hive_subagent_longest_silence_seconds", labelled()): 50.25,
        ("hive_subagent_loose_ends_open", labelled()): 3,
        ("hive_subagent_loose_ends_undelivered", labelled()): 1,
        ("hive_subagent_turns_total", labelled(outcome="killed", cause="oom", error_class="")): 1,
        ("hive_subagent_turns_total", labelled(outcome="failed", cause="", error_class="auth")): 0,
        ("hive_subagent_oom_kills_total", labelled()): 2,
        ("hive_subagent_turn_duration_seconds_count", labelled()): 2,
        ("hive_subagent_turn_cost_usd_sum", labelled()): 0.25,
        ("hive_subagent_start_duration_seconds_bucket", labelled(le="0.05")): 1,
        ("hive_subagent_start_duration_seconds_bucket", labelled(le="0.025")): 0,
        ("hive_subagent_sink_stepped_aside", labelled(sink=HOSTILE)): 2,
        ("hive_subagent_sink_attempts_total", labelled(sink="hook", answer="taken")): 1,
        ("hive_subagent_sink_delay_seconds_count", labelled(sink="hook")): 1,
    }
    assert {key: found[key] for key in expected} == expected
    assert any(name == "process_resident_memory_bytes" for name, _ in found)


def test_no_label_is_the_name_of_a_subagent() -> None:
    """There is no end of them, and each would be a series for ever."""
    content, _ = exposition(readings(), open_metrics=False)
    labels = {label for _, labels in told(content) for label, _ in labels}
    build = {"version", "claude_version", "launcher"}
    assert labels == build | {"outcome", "cause", "error_class", "sink", "answer", "le"}
    assert OUTCOME.name not in content.decode()


def assembled(parts: Parts, *sinks: CommandSink) -> Assembled:
    """Put the parts of a daemon with these sinks together."""
    storage, _ = open_storage(parts.config)
    config = replace(parts.config, loose_ends=LooseEnds(sinks))
    children, environ = Children(), {"HOME": str(parts.home), "PATH": os.defpath}
    return assemble(config, storage=storage, launcher=parts.launcher, children=children, environ=environ)


async def start(made: Assembled, name: str) -> None:
    """Start a subagent."""
    await made.subagents.start(
        name=name, prompt_file="recipe.md", model=None, trigger=None, dir=None, terms=Terms()
    )


async def test_a_daemon_counts_what_happens_in_it_and_tells_what_is_so_now(parts: Parts) -> None:
    made = assembled(parts)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await tasks.start(made.registry.run)
            await start(made, "docs")
            parts.launcher.children[-1].succeed()
            await until(lambda: not made.registry.running)
            await start(made, "reviewer")
            now = metrics.readings(made)
            tasks.cancel_scope.cancel()
    assert (now.running, now.open, now.stalled, now.refusing) == (1, 1, 0, False)
    assert 0 < now.longest_turn_seconds < 60
    assert now.counts.starts.at_most[-1] == 2
    assert now.counts.durations.at_most[-1] == 1
    assert now.counts.endings[Ending("completed")] == 1


async def test_a_loose_end_of_an_earlier_daemon_is_open_but_not_counted_again(parts: Parts) -> None:
    parts.records.store_loose_end(loose_end())
    now = metrics.readings(assembled(parts))
    assert now.open == 1
    assert sum(now.counts.endings.values()) == 0


async def test_a_sink_that_fails_and_two_with_one_label_are_told_once_each(parts: Parts) -> None:
    """`/usr/bin/false` takes nothing; sinks without a name have that of their program."""
    made = assembled(parts, *(CommandSink(("/usr/bin/false", str(number))) for number in range(2)))
    made.inbox.store(loose_end())
    made.inbox.show(loose_end())
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.couriers.run)
            await until(lambda: made.tally.so_far().sinks["false"].attempts["failed"] >= 2)
            await until(lambda: len(made.couriers.trouble()) == 2)
            [sink] = metrics.readings(made).sinks
            tasks.cancel_scope.cancel()
    assert (sink.label, sink.waiting, sink.aside) == ("false", 2, 0)
    assert sink.failing_seconds > 0
    assert metrics.readings(made).undelivered == 1


@pytest.mark.parametrize(
    ("accepted", "kind"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
        ("application/openmetrics-text;version=x\xff", "application/openmetrics-text"),
    ],
)
async def test_the_format_is_the_one_that_is_asked_for(parts: Parts, accepted: str, kind: str) -> None:
    document = await Metrics(assembled(parts)).text(
        {"type": "http", "headers": [(b"accept", accepted.encode("latin-1"))]}
    )
    assert isinstance(document, Document)
    assert document.content_type.startswith(kind)
    assert "\xff" not in document.content_type


def names_in(text: str) -> set[str]:
    """Return the metrics that a text speaks of."""
    return set(re.findall(r"\bhive_subagent_[a-z_]+|\bprocess_[a-z_]+", text))


def test_alerts_and_docs_speak_of_metrics_that_there_are_and_the_docs_of_all() -> None:
    content, _ = exposition(readings(), open_metrics=False)
    names = {name for name, _ in told(content)}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    documented = names_in((REPOSITORY / "docs" / "metrics.md").read_text())
    assert names_in(ALERTS.read_text()) <= names
    assert documented <= names | families
    assert {name for name in families if name.startswith("hive_")} <= documented


def promtool(*words: str | Path, given: bytes = b"") -> None:
    """Let Prometheus' own tool judge."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], input=given, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr


@needs_promtool
def test_prometheus_itself_finds_no_fault_in_the_metrics() -> None:
    """Its conventions too: base units, `_total`, a help text for each."""
    promtool("check", "metrics", given=exposition(readings(), open_metrics=False)[0])


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then() -> None:
    promtool("check", "rules", ALERTS)
    promtool("test", "rules", Path(__file__).with_name("alert_cases.yml"))


def test_each_alert_has_a_case() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    cases = Path(__file__).with_name("alert_cases.yml").read_text()
    assert alerts == set(re.findall(r"alertname: (\w+)", cases))
