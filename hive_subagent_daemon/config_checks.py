"""Checkers of single configuration values: a raw TOML value in, a checked value or its faults out.

A `Kind` is one type of value. It says in words what is allowed, reads a raw value, and writes a checked
value back as TOML. Faults carry the place below the key, so that one look at a table finds all of them.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_SHOWN_CHARACTERS = 60
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True)
class Places:
    """Where relative paths and `~` lead to."""

    cwd: Path
    home: Path


@dataclass(frozen=True)
class Fault:
    """One thing wrong: the keys below the value that was checked, and the reason."""

    where: tuple[str, ...]
    reason: str


class FaultsError(Exception):
    """A value that is not allowed; stays inside the configuration modules."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        """Carry the faults, at least one."""
        super().__init__(faults)
        self.faults = tuple(faults)


def refusal(reason: str) -> FaultsError:
    """Return the error of one fault in the value itself."""
    return FaultsError([Fault((), reason)])


@dataclass(frozen=True)
class Kind:
    """A type of value: what is allowed in words ("must be …"), reading, and writing back."""

    allowed: str
    read: Callable[[object, Places], Any]
    write: Callable[[Any], object] = lambda value: value


class FaultCollector:
    """Reads many values and remembers every fault, instead of giving up at the first."""

    def __init__(self) -> None:
        """Begin without faults."""
        self.faults: list[Fault] = []

    def read(self, kind: Kind, value: object, *, places: Places, where: tuple[str, ...]) -> object:
        """Return the checked value; on a fault remember it and return None."""
        try:
            return kind.read(value, places)
        except FaultsError as error:
            self.faults.extend(Fault((*where, *fault.where), fault.reason) for fault in error.faults)
            return None

    def add(self, reason: str, *, where: tuple[str, ...] = ()) -> None:
        """Remember a fault."""
        self.faults.append(Fault(where, reason))

    def finish(self) -> None:
        """Raise what was found, if anything."""
        if self.faults:
            raise FaultsError(self.faults)


def dotted(keys: Iterable[str]) -> str:
    """Return a key path for a reader; a key that TOML would quote is quoted and cut, so it stays one line."""
    return ".".join(key if _BARE_KEY.fullmatch(key) else shown(key) for key in keys)


def shown(value: object) -> str:
    """Return a short description of a raw value, one line, whatever it holds."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}…")
        case int() | float():
            # An integer of thousands of digits cannot be printed: Python refuses.
            return (
                "a number beyond 64 bits"
                if isinstance(value, int) and not fits_64_bits(value)
                else str(value)
            )
        case _:
            return type_of(value)


def type_of(value: object) -> str:
    """Return the type of a raw value in words, for values that may be secret."""
    match value:
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case dict():
            return "a table"
        case _:
            return "a date or time"


def quoted(text: str) -> str:
    """Return the text in quotes on one line."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{"".join(each if each.isprintable() else ascii(each)[1:-1] for each in escaped)}"'


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that a misspelt one was probably meant to be."""
    close = difflib.get_close_matches(word[:_SHOWN_CHARACTERS], list(known), n=1)
    return close[0] if close else None


def must_be(value: object, allowed: str) -> FaultsError:
    """Return the error of a value that is not what is allowed."""
    return refusal(f"must be {allowed}, not {shown(value)}")


def fits_64_bits(value: int) -> bool:
    """Tell whether every reader of TOML and JSON can hold this whole number."""
    return -(2**63) <= value < 2**63


def text_of(value: object, allowed: str) -> str:
    """Return the value if it is text that can be a path, an argument or an environment value.

    The message never shows the value, which may be secret.
    """
    if not isinstance(value, str):
        reason = f"must be {allowed}, not {type_of(value)}"
        raise refusal(reason)
    if "\0" in value:
        reason = f"must be {allowed}, without NUL characters"
        raise refusal(reason)
    if not _is_utf8(value):
        reason = f"must be {allowed}, in UTF-8"
        raise refusal(reason)
    return value


def _is_utf8(value: str) -> bool:
    # Arguments and environment variables that are not UTF-8 reach Python as lone surrogates.
    return not any("\ud800" <= character <= "\udfff" for character in value)


def nonempty_text(value: object, allowed: str) -> str:
    """Return the value if it is text with something in it."""
    text = text_of(value, allowed)
    if not text.strip():
        raise must_be(value, allowed)
    return text
