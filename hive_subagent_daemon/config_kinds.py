"""The plain kinds of configuration values: numbers, words, names, paths."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from hive_subagent_daemon.config_checks import (
    Kind,
    Places,
    fits_64_bits,
    must_be,
    nearest,
    nonempty_text,
    quoted,
    refusal,
    shown,
)
from hive_subagent_daemon.values import MOST_SECONDS


def boolean() -> Kind:
    """Return the kind of true and false."""
    allowed = "true or false"

    def _read(value: object, _places: Places) -> bool:
        if not isinstance(value, bool):
            raise must_be(value, allowed)
        return value

    return Kind(allowed, _read)


def whole_number(lowest: int, highest: int | None = None) -> Kind:
    """Return the kind of whole numbers in a range, both ends included."""
    allowed = (
        f"a whole number of at least {lowest}"
        if highest is None
        else f"a whole number from {lowest} to {highest}"
    )

    def _read(value: object, _places: Places) -> int:
        # For Python a bool is an int; for the writer of a configuration it is not.
        if not isinstance(value, int) or isinstance(value, bool) or not fits_64_bits(value):
            raise must_be(value, allowed)
        if value < lowest or (highest is not None and value > highest):
            raise must_be(value, allowed)
        return value

    return Kind(allowed, _read)


def seconds() -> Kind:
    """Return the kind of durations: plain numbers of seconds up to a year, which every timer can take."""
    allowed = f"a number of seconds from 0 to {MOST_SECONDS}"

    def _read(value: object, _places: Places) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_SECONDS:
            raise must_be(value, allowed)
        return float(value)

    return Kind(allowed, _read)


def above_zero(unit: str, highest: float) -> Kind:
    """Return the kind of amounts that are more than nothing, up to a highest one that everything can take."""
    allowed = f"a number of {unit} above 0, up to {highest}"

    def _read(value: object, _places: Places) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= highest:
            raise must_be(value, allowed)
        return float(value)

    return Kind(allowed, _read)


def choice(*words: str) -> Kind:
    """Return the kind of a closed set of words."""
    allowed = " or ".join(f'"{word}"' for word in words)

    def _read(value: object, _places: Places) -> str:
        if not isinstance(value, str):
            raise must_be(value, allowed)
        if value not in words:
            near = nearest(value, words)
            hint = f' (did you mean "{near}"?)' if near else ""
            reason = f"must be {allowed}, not {shown(value)}{hint}"
            raise refusal(reason)
        return value

    return Kind(allowed, _read)


def umask() -> Kind:
    """Return the kind of file creation masks, octal digits in a string as `umask` prints them."""
    allowed = 'octal digits in a string, from "0000" to "0777"'

    def _read(value: object, _places: Places) -> int:
        if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{1,3}", value):
            raise must_be(value, allowed)
        return int(value, 8)

    return Kind(allowed, _read, lambda mask: f"{mask:04o}")


def agent_name() -> Kind:
    """Return the kind of the parent's name, which stands in paths, unit names and the journal."""
    allowed = "1 to 63 printable characters without '/'"

    def _read(value: object, _places: Places) -> str:
        name = nonempty_text(value, allowed)
        if len(name) > 63 or "/" in name or not name.isprintable() or name in {".", ".."}:
            raise must_be(value, allowed)
        return name

    return Kind(allowed, _read)


def expanded(text: str, places: Places) -> Path:
    """Return the path with a leading `~` replaced by the home directory."""
    first, _, rest = text.partition("/")
    if first == "~":
        return places.home / rest.lstrip("/")
    if first.startswith("~"):
        reason = f"{shown(text)}: only ~ and ~/ are expanded; write the path in full"
        raise refusal(reason)
    return Path(text)


def _settled(text: str, places: Places) -> Path:
    return places.cwd / expanded(text, places)


def path() -> Kind:
    """Return the kind of paths, made absolute from the daemon's working directory."""
    allowed = "a path"

    def _read(value: object, places: Places) -> Path:
        return _settled(nonempty_text(value, allowed), places)

    return Kind(allowed, _read, str)


def directory() -> Kind:
    """Return the kind of paths to a directory that exists."""
    whole_path = path()

    def _read(value: object, places: Places) -> Path:
        found: Path = whole_path.read(value, places)
        try:
            mode = found.stat().st_mode
        except OSError as error:
            reason = f"must be an existing directory; {quoted(str(found))}: {error.strerror}"
            raise refusal(reason) from error
        if not stat.S_ISDIR(mode):
            reason = f"must be an existing directory; {quoted(str(found))} is not a directory"
            raise refusal(reason)
        return found

    return Kind("an existing directory", _read, str)


def program() -> Kind:
    """Return the kind of programs: a name for PATH, or a path when it has a slash."""
    allowed = "the name or path of a program"

    def _read(value: object, places: Places) -> str:
        text = nonempty_text(value, allowed)
        # Turns run in other directories, so a relative path must be settled now.
        return str(_settled(text, places)) if "/" in text else text

    return Kind(allowed, _read)
