"""What a turn's output has told so far, gathered by skimming: most lines are never parsed.

A turn may write thousands of lines a second, or lines of megabytes. Of each block of complete lines three
kinds are parsed: those that hold the word of a result, some system events, and the last lines, which tell
what claude is doing now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from hive_subagent_daemon.events import (
    Assistant,
    BackgroundBegan,
    BackgroundEnded,
    Event,
    Init,
    LimitTold,
    MessageTaken,
    Noise,
    Other,
    Result,
    Retry,
    ToolResults,
    Words,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

TAIL_BYTES: Final = 64 * 1024
TAIL_LINES: Final = 12
SMALL_BLOCK_BYTES: Final = 16 * 1024  # of a block up to this size every line is parsed
MARKED_LINES: Final = 256
FIRST_LINES: Final = 4
EARLIER_RESULTS: Final = 8
TAKEN_MESSAGES: Final = 256
LONGEST_LINE_BYTES: Final = 64 * 1024 * 1024  # claude's longest measured: 6 MB
KEPT_TEXT_CHARACTERS: Final = 20_000
_MARKS: Final = (b'"result"', b'"system"', b'"rate_limit_event"', b'"isReplay"')
_USER_LINE: Final = re.compile(rb'\{\s*"type"\s*:\s*"user"')
_ASSISTANT_LINE: Final = re.compile(rb'\{\s*"type"\s*:\s*"assistant"')
_ASSISTANT_MARK: Final = b'"assistant"'


@dataclass(frozen=True)
class Activity:
    """What claude is doing; `tool` only for `tool`, the other three only for `retry`."""

    kind: Literal["starting", "model", "tool", "retry"]
    tool: str | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    error: str | None = None


STARTING: Final = Activity("starting")


@dataclass(frozen=True)
class EarlierResult:
    """A result after which a further round began: where its line ended, and where that round's first did."""

    result: Result
    end: int
    length: int
    followed_at: int


@dataclass(frozen=True)
class Seen:
    """All that the output of a turn has told so far.

    `result_end` is the offset behind the last result's line. `round_open` tells that a further round began
    after the last result (or that there is none yet); `earlier` has the last results that were followed by
    a round. `pending` maps the id of unfinished background work to its description, `cut_off` that of work
    which claude ended after its result. `taken` are the ids of the last messages that claude took from its
    stdin; `round_due` tells that one of them came after the last result. `limited_until` is in seconds since
    the epoch. Texts are cut at KEPT_TEXT_CHARACTERS; `text_length` is the full length of `last_text`.
    """

    init: Init | None = None
    result: Result | None = None
    result_end: int = 0
    result_length: int = 0
    earlier: tuple[EarlierResult, ...] = ()
    round_open: bool = True
    last_text: str = field(default="", repr=False)
    text_length: int = 0
    api_error: str | None = None
    pending: Words = field(default_factory=dict)
    cut_off: Words = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    round_due: bool = False
    limited_until: int | None = None
    tools: Words = field(default_factory=dict)
    retry: Retry | None = None
    broken_lines: int = 0

    @property
    def activity(self) -> Activity | None:
        """What claude is doing now; None once its result is out."""
        if self.result is not None and not self.round_open:
            return None
        if self.retry is not None:
            return Activity("retry", None, self.retry.attempt, self.retry.max_attempts, self.retry.error)
        if self.tools:
            return Activity("tool", list(self.tools.values())[-1])
        return Activity("starting" if self.init is None else "model")


def skim(seen: Seen, block: bytes, *, offset: int, last: bool = False) -> Seen:
    """Return what is known after a further block of complete lines that began at `offset` of the output.

    `last` says that no more will come: then long lines at its end are parsed too.
    """
    longest = LONGEST_LINE_BYTES if last else TAIL_BYTES
    for (start, end), marked in _interesting(block, last=last, first=seen.init is None):
        line = block[start:end]
        whole = len(line) <= (LONGEST_LINE_BYTES if marked else longest)
        event = parse(line) if whole else _by_its_beginning(line)
        seen = _after(seen, event, line_end=offset + end)
    return seen


def _by_its_beginning(line: bytes) -> Event:
    """Return the kind of a line that is too long to be parsed while the turn runs, without its content."""
    if _USER_LINE.match(line):
        return ToolResults(None)
    return Assistant("", {}) if _ASSISTANT_LINE.match(line) else Other()


def _interesting(block: bytes, *, last: bool, first: bool) -> list[tuple[tuple[int, int], bool]]:
    """Return the spans of the lines worth parsing, in order, and whether each holds a mark.

    `first`: claude has not told of itself yet.
    """
    spans: dict[tuple[int, int], bool] = {}
    if first:
        spans.update(dict.fromkeys(_first_lines(block), False))
    spans.update(dict.fromkeys(_lines_with(block, _ASSISTANT_MARK, most=4 if last else 1), False))
    most = TAIL_LINES if len(block) > SMALL_BLOCK_BYTES else MARKED_LINES
    spans.update(
        dict.fromkeys(_last_lines(block, from_offset=max(0, len(block) - TAIL_BYTES), most=most), False)
    )
    for mark in _MARKS:
        spans.update(dict.fromkeys(_lines_with(block, mark, most=MARKED_LINES), True))
    return sorted(spans.items())


def _first_lines(block: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    for _ in range(FIRST_LINES):
        end = block.find(b"\n", start) + 1
        if end == 0:
            return
        yield start, end
        start = end


def _lines_with(block: bytes, mark: bytes, *, most: int) -> Iterator[tuple[int, int]]:
    """Yield the last lines that hold the mark, backwards."""
    end = len(block)
    for _ in range(most):
        found = block.rfind(mark, 0, end)
        if found < 0:
            return
        start = block.rfind(b"\n", 0, found) + 1
        stop = block.find(b"\n", found)
        yield start, stop + 1 if stop >= 0 else len(block)
        end = start


def _last_lines(block: bytes, *, from_offset: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the last lines of a block that end behind an offset, backwards."""
    end = len(block)
    for _ in range(most):
        if end <= from_offset:
            return
        start = block.rfind(b"\n", 0, end - 1) + 1
        yield start, end
        end = start


def _after(seen: Seen, event: Event, *, line_end: int) -> Seen:
    """Return what is known after one event."""
    match event:
        case Init():
            return replace(_round_begun(seen, line_end), init=event, api_error=None, tools={}, retry=None)
        case Result():
            return _after_result(seen, event, line_end)
        case Retry():
            return replace(seen, retry=event)
        case BackgroundBegan() | BackgroundEnded():
            return _after_background(seen, event)
        case LimitTold(resets_at):
            return replace(seen, limited_until=resets_at)
        case Assistant():
            return _after_assistant(_round_begun(seen, line_end), event)
        case ToolResults():
            left = {} if event.ids is None else _without(seen.tools, event.ids)
            return replace(_round_begun(seen, line_end), tools=left, retry=None)
        case MessageTaken(message_id):
            # Not a round yet: a hook of the user's may refuse the message, and nothing more would come.
            return replace(seen, taken=(*seen.taken, message_id)[-TAKEN_MESSAGES:], round_due=True)
        case Noise(broken=True):
            return replace(seen, broken_lines=seen.broken_lines + 1)
        case _:
            return seen


def _without(entries: Mapping[str, str], ids: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in entries.items() if key not in ids}


def _round_begun(seen: Seen, line_end: int) -> Seen:
    """Return what is known once claude works again, after a result or at the beginning."""
    if seen.result is None or seen.round_open:
        return replace(seen, round_open=True)
    followed = EarlierResult(seen.result, seen.result_end, seen.result_length, line_end)
    return replace(seen, round_open=True, earlier=(*seen.earlier, followed)[-EARLIER_RESULTS:])


def _after_background(seen: Seen, event: BackgroundBegan | BackgroundEnded) -> Seen:
    if isinstance(event, BackgroundBegan):
        return replace(seen, pending={**seen.pending, event.id: event.description})
    cut_off = dict(seen.cut_off)
    if not event.finished and not seen.round_open and event.id in seen.pending:
        cut_off[event.id] = seen.pending[event.id]
    return replace(seen, pending=_without(seen.pending, {event.id}), cut_off=cut_off)


def _after_result(seen: Seen, result: Result, line_end: int) -> Seen:
    kept = replace(result, text=result.text[:KEPT_TEXT_CHARACTERS])
    return replace(
        seen,
        result=kept,
        result_end=line_end,
        result_length=len(result.text),
        round_open=False,
        round_due=False,
        tools={},
        retry=None,
    )


def _after_assistant(seen: Seen, event: Assistant) -> Seen:
    seen = replace(seen, retry=None, tools={**seen.tools, **event.tools})
    if event.error is not None:
        return replace(seen, api_error=event.error)
    if event.text:
        return replace(seen, last_text=event.text[:KEPT_TEXT_CHARACTERS], text_length=len(event.text))
    return seen
