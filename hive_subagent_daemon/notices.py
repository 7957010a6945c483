"""What a parent session is told about ended turns, and when: pure functions of what is open and was shown.

A notice is *unseen* by a session while its loose end is open and was in no answer to that session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from hive_subagent_daemon.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Claude's session ids are UUIDs; other harnesses have others. It becomes a file name.
ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_ID: Final = re.compile(ID_PATTERN)
_MOST_PARAMETERS: Final = 10


class Asked(StrEnum):
    """What a request wants to know."""

    NEXT = "next"
    OPEN = "open"
    COUNTS = "counts"


class Reason(StrEnum):
    """Why a request is answered."""

    NOTICES = "notices"
    NOTHING = "nothing"
    COUNTS = "counts"
    RELEASED = "released"
    STOPPING = "stopping"
    NOT_STORED = "not stored"


@dataclass(frozen=True)
class Question:
    """A request to `/notices`, read and checked; `waiter` tells one waiting program from another."""

    session: str
    show: Asked = Asked.NEXT
    waiter: str | None = None


@dataclass(frozen=True)
class Shown:
    """What a session has been shown of what is open; `last` is what its `last_waiter` was answered."""

    ids: frozenset[str] = frozenset()
    last_waiter: str | None = None
    last: tuple[str, ...] = ()


def is_id(text: str) -> bool:
    """Tell whether this can be the id of a session or of a waiter."""
    return _ID.fullmatch(text) is not None


def question_of(query: bytes) -> Question:
    """Read the query string of a request; RefusedError says which parameter is wrong and what is allowed."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:
        message = "the query cannot be read: ask for /notices?session=ID."
        raise RefusedError(message) from None
    given = dict(pairs)
    if len(given) != len(pairs) or not given.keys() <= {"session", "show", "waiter"}:
        message = "the query has other parameters than session, show and waiter, or one of them twice."
        raise RefusedError(message)
    if given.get("show", Asked.NEXT) not in set(Asked):
        message = f"show must be one of {', '.join(Asked)}."
        raise RefusedError(message)
    for name in ("session", "waiter"):
        if not is_id(given.get(name, "" if name == "session" else "none")):
            message = f"{name} must be 1 to 128 letters, digits, '.', '_' and '-', with no mark in front."
            raise RefusedError(message)
    return Question(given["session"], Asked(given.get("show", Asked.NEXT)), given.get("waiter"))


def due(question: Question, opened: Collection[str], shown: Shown) -> tuple[str, ...]:
    """Return what this request is to be shown of the open ones, in their order.

    A waiter ends with its answer, so one that asks again did not get it: it is shown the same once more.
    """
    is_repeat = question.waiter is not None and question.waiter == shown.last_waiter
    again = shown.last if is_repeat else ()
    return tuple(one for one in opened if one not in shown.ids or one in again)


def claimed(question: Question, due_ids: Iterable[str], shown: Shown, opened: Collection[str]) -> Shown:
    """Return what the session has been shown once this answer is given; what is closed is forgotten."""
    last = tuple(due_ids)
    return Shown((shown.ids & frozenset(opened)) | frozenset(last), question.waiter, last)


def withdrawn(shown: Shown, ids: Iterable[str]) -> Shown:
    """Return what the session has been shown if an answer with these did not reach it."""
    return Shown(shown.ids - frozenset(ids))


def still_needed(shown: Shown, opened: Collection[str]) -> Shown:
    """Return what has to be remembered: only what is open."""
    kept = frozenset(opened)
    return Shown(shown.ids & kept, shown.last_waiter, tuple(one for one in shown.last if one in kept))
