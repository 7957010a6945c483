"""Whatever a turn writes, it has one verdict, which can be stored, read back and shown."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from hive_subagent_daemon import clock, views
from hive_subagent_daemon.evidence import Evidence
from hive_subagent_daemon.judge import judge
from hive_subagent_daemon.output import Output, TurnFiles
from hive_subagent_daemon.records import Records
from hive_subagent_daemon.skim import Seen, skim
from hive_subagent_daemon.storage import Storage, open_state_dir
from hive_subagent_daemon.turn_ends import loose_end_of, outcome_of
from hive_subagent_daemon.values import Cause, Exited, ExitUnknown, OutcomeKind, SentSignal, Signalled
from tests.support.fuzzing import JSON_JUNK, LONG_LIMIT_SECONDS, damaged, fuzz, retyped
from tests.unit.support_output import on_tmpfs
from tests.unit.support_records import turn_record
from tests.unit.support_streams import (
    assistant,
    filler,
    init,
    line,
    lines,
    result,
    retry,
    system,
    tool_result,
    tool_use,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.values import Exit

EVENTS = [
    init(mcp_servers=[{"name": "a", "status": "failed"}]),
    assistant("working"),
    tool_use(),
    tool_result(),
    retry(),
    system("task_started", task_id="b1", description="x"),
    system("task_notification", task_id="b1", status="stopped"),
    system("task_updated", task_id="b1", patch={"status": "completed"}),
    {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1893456000}},
    result("no", is_error=True, api_error_status=429),
    result("done"),
    filler(20_000),
]
STREAM = lines(*EVENTS)
ALPHABET = b'{}[]",:\\ \nresultypsm0123456789eE+-.nulltrufasu\\ud800'
STREAMS = st.one_of(
    damaged([STREAM, lines(init(), result()), b""], alphabet=ALPHABET),
    st.lists(retyped(EVENTS, JSON_JUNK), max_size=8).map(
        lambda events: b"".join(json.dumps(event).encode() + b"\n" for event in events)
    ),
    st.binary(max_size=400),
)
STDERRS = st.binary(max_size=200) | damaged(
    [b"Error: limit reached|1893456000 resets 3pm\n", b"hive-subagent-gate: closed before the release"],
    alphabet=b"|0123456789 :\n",
)
EXITS: st.SearchStrategy[Exit] = st.one_of(
    st.builds(Exited, st.integers(0, 255)),
    st.builds(Signalled, st.integers(1, 64)),
    st.just(ExitUnknown()),
)
SIGNALS = st.lists(
    st.builds(SentSignal, st.sampled_from([2, 9, 15]), st.sampled_from(Cause), st.integers(0, 3000)),
    max_size=2,
).map(tuple)


@pytest.fixture
def records() -> Iterator[Records]:
    """Keep records in a state directory on tmpfs, if there is one."""
    with on_tmpfs() as folder:
        os.close(open_state_dir(folder))
        yield Records(Storage(folder, ballast_bytes=0))


@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_any_output_in_any_cut_is_skimmed(request: pytest.FixtureRequest) -> None:
    """The first event is found in any case, the result where its line is whole; nothing raises."""

    def check(given: tuple[bytes, list[int]]) -> None:
        """Try one input."""
        stream, cuts = given
        seen, offset = Seen(), 0
        for end in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
            upto = stream.rfind(b"\n", 0, end) + 1
            if upto > offset:
                seen = skim(seen, stream[offset:upto], offset=offset)
                offset = upto
        seen = skim(seen, stream[offset:], offset=offset, last=True)
        assert seen.result_end <= len(stream)
        assert (seen.activity is None) == (seen.result is not None and not seen.round_open)

    cut_streams = st.tuples(STREAMS, st.lists(st.integers(0, 50_000), max_size=4))
    fuzz(cut_streams, check, seconds=8, what="streams", request=request)


@pytest.mark.timeout(LONG_LIMIT_SECONDS)
def test_any_output_has_a_verdict_that_can_be_stored_and_shown(
    request: pytest.FixtureRequest, records: Records
) -> None:
    """And success only with a result that says so."""
    folder = records.begin_turn(turn_record())
    files = TurnFiles(folder)

    def check(given: tuple[bytes, bytes, Exit, tuple[SentSignal, ...]]) -> None:
        """Try one input."""
        stdout, stderr, exit_, sent = given
        files.stdout.write_bytes(stdout)
        files.stderr.write_bytes(stderr)
        output = Output(files)
        output.finish()
        evidence = Evidence(exit_, output.seen, output.stderr_tail(), sent=sent, unreadable=output.trouble)
        output.retire()
        output.close()
        now = clock.now()
        outcome = outcome_of(turn_record(), evidence, ended_at=now, duration_seconds=timedelta(1).seconds)
        verdict = judge(evidence)
        if verdict.kind is OutcomeKind.COMPLETED:
            assert b'"result"' in stdout
            assert b"false" in stdout
        loose_end = loose_end_of(outcome)
        records.store_loose_end(loose_end)
        assert records.read_loose_end(loose_end.id) == loose_end
        shown = views.loose_end_json(loose_end, text_characters=views.NOTICE_TEXT_CHARACTERS)
        assert json.loads(json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()) == shown

    ends = st.tuples(STREAMS, STDERRS, EXITS, SIGNALS)
    fuzz(ends, check, seconds=12, what="ends of turns", request=request)


def test_a_line_of_a_kind_that_once_failed_is_read() -> None:
    """Kept for what the fuzzing finds: each stands here with what was wrong."""
    seen = skim(Seen(), line(init()) + b'{"type":"result","is_error":false,"num_turns":1e400}\n', offset=0)
    assert seen.result is not None
    assert seen.result.rounds is None
