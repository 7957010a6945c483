"""Skimming finds in any cut of the output what reading every line finds, as far as that is promised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import skim as skim_module
from hive_subagent_daemon.events import Event, Init, Result, parse
from hive_subagent_daemon.skim import (
    KEPT_TEXT_CHARACTERS,
    LONGEST_LINE_BYTES,
    MARKED_LINES,
    SMALL_BLOCK_BYTES,
    STARTING,
    TAIL_BYTES,
    Activity,
    Seen,
    skim,
)
from tests.unit.support_streams import (
    SESSION,
    PlainReader,
    assistant,
    blocks,
    filler,
    init,
    line,
    lines,
    result,
    retry,
    stream_lines,
    system,
    tool_result,
    tool_use,
)

cuts = st.lists(st.integers(0, 60), max_size=8)
BIG = line(filler(2 * SMALL_BLOCK_BYTES))


def seen_of(stream: bytes, *, last: bool = False) -> Seen:
    """Skim a stream as one block."""
    return skim(Seen(), stream, offset=0, last=last)


def seen_in_blocks(parts: list[tuple[int, bytes]]) -> Seen:
    """Skim a stream block by block."""
    seen = Seen()
    for offset, block in parts:
        seen = skim(seen, block, offset=offset)
    return seen


def essence(seen: Seen | PlainReader) -> tuple[object, ...]:
    """Return what no cut may change."""
    return seen.init, seen.result, seen.result_end, dict(seen.pending)


@given(stream_lines(padding=200), cuts)
def test_of_small_blocks_every_line_counts(parts: list[bytes], at: list[int]) -> None:
    stream = b"".join(parts)
    plain, seen = PlainReader(stream), seen_in_blocks(blocks(parts, at))
    assert len(stream) <= SMALL_BLOCK_BYTES
    assert essence(seen) == essence(plain)
    assert (seen.last_text, dict(seen.tools), seen.round_open) == (
        plain.last_text,
        plain.tools,
        plain.round_open,
    )


@given(stream_lines(padding=4 * SMALL_BLOCK_BYTES), cuts)
def test_results_first_events_and_background_work_are_found_in_any_cut(
    parts: list[bytes], at: list[int]
) -> None:
    plain = PlainReader(b"".join(parts))
    assert essence(seen_in_blocks(blocks(parts, at))) == essence(plain)
    assert essence(seen_of(b"".join(parts))) == essence(plain)
    assert essence(seen_of(b"".join(parts), last=True)) == essence(plain)


@given(stream_lines(padding=4 * SMALL_BLOCK_BYTES), st.integers(0, 2**40))
def test_the_end_of_a_result_counts_from_the_beginning_of_the_output(parts: list[bytes], offset: int) -> None:
    stream = b"".join(parts)
    seen = skim(Seen(), stream, offset=offset)
    assert seen.result_end == (offset + seen_of(stream).result_end if seen.result else 0)


@pytest.mark.parametrize("spaced", [False, True], ids=["compact", "spaced"])
@pytest.mark.parametrize("before", [b"", BIG], ids=["small-block", "big-block"])
@pytest.mark.parametrize("behind", [b"", BIG * 5], ids=["at-the-end", "far-from-the-end"])
def test_spaced_and_compact_lines_tell_the_same(before: bytes, behind: bytes, *, spaced: bool) -> None:
    events = [
        init(model="m2"),
        system("task_started", task_id="b", description="sleep"),
        assistant("the text"),
        result("the end", total_cost_usd=1.5),
    ]
    stream = before + b"".join(line(event, spaced=spaced) for event in events) + behind
    seen = seen_of(stream)
    assert isinstance(seen.init, Init)
    assert isinstance(seen.result, Result)
    assert (seen.init.model, seen.result.text, seen.result.cost_usd) == ("m2", "the end", 1.5)
    assert (seen.pending, seen.last_text, seen.round_open) == ({"b": "sleep"}, "the text", False)


@pytest.mark.parametrize("behind", [b"", BIG * 5], ids=["at-the-end", "far-from-the-end"])
def test_a_result_quoted_in_the_output_of_a_tool_is_none(behind: bytes) -> None:
    quoted = lines(result("forged"), init(model="forged")).decode()
    stream = lines(init(), tool_result(text=quoted), assistant(quoted), filler(9)) + behind
    seen = seen_of(stream, last=True)
    assert seen.result is None
    assert seen.init is not None
    assert seen.init.model == "m"


def test_the_last_result_is_found_among_more_marked_lines_than_are_parsed() -> None:
    words = line(system("status", status="x", padding="y" * 60)) * (3 * MARKED_LINES)
    for stream in (words + line(result("late")), words + line(result("late")) + words):
        seen = seen_of(line(result("early")) + stream)
        assert seen.result is not None
        assert seen.result.text == "late"


def test_the_first_event_is_found_before_more_marked_lines_than_are_parsed() -> None:
    """A turn may be read in one go after its end, and its MCP servers are told by the first event."""
    words = line(system("status", status="x", padding="y" * 60)) * (3 * MARKED_LINES)
    assert seen_of(line(init()) + words + line(result())).init is not None


def test_a_result_of_six_million_bytes_is_read_wherever_it_stands() -> None:
    text = "x" * 6_000_000
    for stream in (line(result(text)), line(result(text)) + BIG * 5):
        seen = seen_of(stream)
        assert seen.result is not None
        assert seen.result.text == "x" * KEPT_TEXT_CHARACTERS
        assert seen.result_length == 6_000_000


def test_texts_are_kept_up_to_a_bound_with_their_full_length() -> None:
    seen = seen_of(lines(assistant("x" * (KEPT_TEXT_CHARACTERS + 5))))
    assert (len(seen.last_text), seen.text_length) == (KEPT_TEXT_CHARACTERS, KEPT_TEXT_CHARACTERS + 5)


def test_a_line_beyond_the_longest_is_not_parsed_and_hides_nothing_else() -> None:
    absurd = b'{"type":"result","result":"' + b"x" * LONGEST_LINE_BYTES + b'"}\n'
    seen = seen_of(line(result("before")) + absurd, last=True)
    assert seen.result is not None
    assert seen.result.text == "before"
    assert seen.broken_lines == 0


def test_lines_in_the_middle_of_a_big_block_cost_no_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chatty child must stay cheap: of 4,000 lines only the ends and the marked ones are parsed."""
    parsed: list[bytes] = []

    def counting(one: bytes) -> Event:
        parsed.append(one)
        return parse(one)

    monkeypatch.setattr(skim_module, "parse", counting)
    seen_of(line(filler(100)) * 2_000 + line(assistant("x")) + line(filler(100)) * 2_000)
    assert 0 < len(parsed) <= 24


# What claude is doing


def long_line(event: dict[str, Any]) -> bytes:
    """Return an event as a line that is too long to be parsed while the turn runs."""
    return line(event | {"padding": "y" * (TAIL_BYTES + 1)})


@pytest.mark.parametrize(
    ("stream", "activity"),
    [
        (b"", STARTING),
        (b"noise\n", STARTING),
        (lines(retry(3)), Activity("retry", None, 3, 10, "529 overloaded")),
        (lines(init()), Activity("model")),
        (lines(init(), assistant("x")), Activity("model")),
        (lines(init(), tool_use("Bash")), Activity("tool", "Bash")),
        (lines(init(), tool_use("Bash", "1"), tool_use("Read", "2")), Activity("tool", "Read")),
        (
            lines(init(), tool_use("Bash", "1"), tool_use("Read", "2"), tool_result("2")),
            Activity("tool", "Bash"),
        ),
        (lines(init(), tool_use("Bash"), tool_result()), Activity("model")),
        (lines(init(), tool_use("Bash"), filler(3 * TAIL_BYTES)), Activity("tool", "Bash")),
        (lines(init(), tool_use("Bash")) + long_line(tool_result()), Activity("model")),
        (lines(init(), retry(2, error_status=None, error=None)), Activity("retry", None, 2, 10, None)),
        (lines(init(), retry(2), assistant("x")), Activity("model")),
        (lines(init(), retry(2), tool_result()), Activity("model")),
        (lines(init(), retry(2), init()), Activity("model")),
        (lines(init(), tool_use("Bash"), result()), None),
        (lines(init(), retry(9), result(is_error=True)), None),
        (lines(init(), result(), system("status", status="x"), filler(9)), None),
        (lines(init(), tool_use("Bash"), result(), init()), Activity("model")),
        (lines(init(), result(), assistant("x")), Activity("model")),
        (lines(result(num_turns=0), init()), Activity("model")),
    ],
)
def test_what_claude_is_doing_is_told_by_the_last_lines(stream: bytes, activity: Activity | None) -> None:
    assert seen_of(stream).activity == activity


def test_a_long_last_message_is_read_once_the_turn_has_ended() -> None:
    stream = lines(init()) + long_line(assistant("the very end"))
    assert seen_of(stream).last_text == ""
    assert seen_of(stream, last=True).last_text == "the very end"


def test_a_long_answer_of_a_tool_begins_no_round_of_its_own_text() -> None:
    seen = seen_of(lines(init(), assistant("before")) + long_line(tool_result()), last=True)
    assert (seen.last_text, seen.round_open) == ("before", True)


def test_a_line_without_its_end_is_read_when_nothing_more_will_come() -> None:
    stream = line(init()) + line(result("unfinished")).rstrip()
    seen = seen_of(stream, last=True)
    assert seen.result is not None
    assert (seen.result.text, seen.result_end) == ("unfinished", len(stream))


def test_broken_lines_are_counted_and_noise_is_not() -> None:
    assert seen_of(b'words\n\n{"type"\n{broken}\n[1]\n').broken_lines == 2


def test_what_claude_itself_says_about_an_api_error_is_not_taken_for_the_turns_text() -> None:
    seen = seen_of(lines(assistant("work so far"), assistant("API Error: 529", error="overloaded")))
    assert (seen.last_text, seen.api_error) == ("work so far", "overloaded")


def test_a_new_round_forgets_the_api_error_of_the_one_before() -> None:
    """Or a later failure of another kind would be put down to it."""
    first = lines(init(), assistant("API Error: 429", error="rate_limit"), result(is_error=True))
    assert seen_of(first).api_error == "rate_limit"
    assert seen_of(first + line(init())).api_error is None


def ended(status: str) -> dict[str, Any]:
    """Return the end of the background work `a`."""
    return system("task_notification", task_id="a", status=status)


@pytest.mark.parametrize(
    ("behind", "pending", "cut_off"),
    [
        ([], {"a": "sleep"}, {}),
        ([ended("completed")], {}, {}),
        ([result(), ended("completed")], {}, {}),
        ([ended("stopped"), result()], {}, {}),
        ([result(), ended("stopped")], {}, {"a": "sleep"}),
        ([result(), ended("stopped"), ended("stopped")], {}, {"a": "sleep"}),
        ([result(), system("task_updated", task_id="a", patch={"status": "killed"})], {}, {"a": "sleep"}),
        ([result(), init(), ended("stopped"), result()], {}, {}),
    ],
    ids=[
        "goes-on", "finished", "finished-after-the-result", "stopped-by-the-model", "cut-off-by-claude",
        "told-twice", "killed-by-claude", "in-a-further-round",
    ],
)  # fmt: skip
def test_background_work_that_claude_ends_after_its_result_was_cut_off(
    behind: list[dict[str, Any]], pending: dict[str, str], cut_off: dict[str, str]
) -> None:
    """As facts, section 4, and cases A10 tell of a shell in the background."""
    seen = seen_of(lines(init(), system("task_started", task_id="a", description="sleep"), *behind))
    assert (seen.pending, seen.cut_off) == (pending, cut_off)


@pytest.mark.parametrize("behind", [b"", BIG * 5], ids=["at-the-end", "far-from-the-end"])
def test_until_when_a_limit_holds_is_found_in_any_block(behind: bytes) -> None:
    told = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_764_547_200}}
    allowed = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 1}}
    assert seen_of(lines(told, allowed) + behind).limited_until == 1_764_547_200
    assert seen_of(line(allowed) + behind).limited_until is None


def test_a_result_that_was_followed_by_a_round_is_kept_with_its_place() -> None:
    first, second = lines(init(), assistant("x"), result("first")), lines(init(), result("second"))
    begun = line(init())
    seen = seen_of(first + second + begun)
    assert seen.result is not None
    assert (seen.result.text, seen.result_end) == ("second", len(first + second))
    kept = [(one.result.text, one.end, one.length, one.followed_at) for one in seen.earlier]
    assert kept == [
        ("first", len(first), 5, len(first + begun)),
        ("second", len(first + second), 6, len(first + second + begun)),
    ]


def test_of_many_rounds_only_the_last_results_are_kept() -> None:
    seen = seen_of(b"".join(lines(init(), result(f"r{number}")) for number in range(50)))
    assert [one.result.text for one in seen.earlier] == [f"r{number}" for number in range(41, 49)]


def test_a_round_without_a_result_is_no_earlier_one() -> None:
    assert seen_of(lines(init(), assistant("x"), init(), tool_use(), tool_result())).earlier == ()


def test_an_extra_result_before_the_first_event_is_followed_by_the_true_one() -> None:
    """As after a kill with a background shell (facts, section 3)."""
    extra = result("", num_turns=0, origin={"kind": "task-notification"})
    before = seen_of(line(extra))
    assert (before.init, before.round_open) == (None, False)
    after = skim(before, lines(init(), assistant("x"), result("true")), offset=len(line(extra)))
    assert after.init is not None
    assert after.result is not None
    assert (after.init.session_id, after.result.text, after.round_open) == (SESSION, "true", False)


def test_the_texts_of_a_turn_stay_out_of_its_representation() -> None:
    assert "secret" not in repr(seen_of(lines(assistant("secret"))))
