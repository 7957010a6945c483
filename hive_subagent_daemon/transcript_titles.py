"""What claude takes for the title of a session: read from the two ends of its transcript, as claude does.

Measured with `--resume TITLE` (2.1.150, 2.1.197, 2.1.332): only the first and the last 64 KiB of a transcript
count, the end before the beginning, a custom title before a generated one, and an empty custom title hides
both. Releases differ in what they take for a title within these ends:

- up to 2.1.197: the last `"customTitle":"…"` in the text, whatever record holds it, torn or whole;
- 2.1.332: the last whole record of the type `custom-title`, also one glued to the torn line before it.

For what claude itself writes the two agree. Where they differ, both titles count here: a session that any of
these releases would find must make way, or a later `--resume` by title finds two.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

END_BYTES: Final = 65_536
KEPT_TITLE_CHARACTERS: Final = 200
_OPENED: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# What JavaScript's trim() takes off: str.strip() would also take control characters and leave U+FEFF.
_WHITESPACE: Final = "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_TRIMMED: Final = _WHITESPACE + "\u2028\u2029\u202f\u205f\u3000\ufeff"
_VALUE: Final = re.compile(rb'([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_TEAM: Final = re.compile(rb'"teamName": ?"[^"]')
_ANY_TEAM: Final = re.compile(rb'"teamName": ?"')
_KINDS: Final = (("custom-title", "customTitle"), ("ai-title", "aiTitle"))


def normalized(title: str) -> str:
    """Return the form in which two titles are compared: trimmed, lower case."""
    return title.strip(_TRIMMED).lower()


def read_ends(name: str, *, folder: int) -> tuple[bytes, ...]:
    """Return the last and the first 64 KiB of a regular file in an open folder, one piece when not longer.

    Never follows a symbolic link and never waits (claude, too, looks at regular files only). Raises OSError.
    """
    descriptor = os.open(name, _OPENED, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ()
        head = os.pread(descriptor, END_BYTES, 0)
        if status.st_size <= END_BYTES:
            return (head,)
        return os.pread(descriptor, END_BYTES, status.st_size - END_BYTES), head
    finally:
        os.close(descriptor)


def titles_in(ends: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return the normalized titles under which claude would find a session; empty when it would not.

    Any bytes do. A title longer than any name could match is left out.
    """
    if not ends or _is_no_session(ends[-1]):
        return ()
    found = {normalized(title) for title in (_by_text(ends), _by_record(ends)) if title is not None}
    return tuple(sorted(title for title in found if 0 < len(title) <= KEPT_TITLE_CHARACTERS))


def _is_no_session(head: bytes) -> bool:
    """Tell whether claude leaves this transcript out: a side chain, or a member of an agent team."""
    if b'"isSidechain":true' in head or b'"isSidechain": true' in head:
        return True
    first_team = _ANY_TEAM.search(head) if b'"teamName":' in head else None
    return first_team is not None and _TEAM.match(head, first_team.start()) is not None


def _by_text(ends: tuple[bytes, ...]) -> str | None:
    for _, key in _KINDS:
        for end in ends:
            if (title := _last_value(end, key)) is not None:
                return title
    return None


def _last_value(end: bytes, key: str) -> str | None:
    """Return the last string value of a key anywhere in the text; one that is cut off does not count."""
    found: list[re.Match[bytes]] = []
    for opening in (f'"{key}":"'.encode(), f'"{key}": "'.encode()):
        position = end.find(opening)
        while position >= 0 and (value := _VALUE.match(end, position + len(opening))) is not None:
            found.append(value)
            position = end.find(opening, value.end())
    return _unescaped(max(found, key=re.Match.start)[1]) if found else None


def _unescaped(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    value = _parsed(f'"{text}"') if "\\" in text else text
    return (
        value if isinstance(value, str) else text
    )  # claude, too, takes what it cannot unescape as it stands


def _by_record(ends: tuple[bytes, ...]) -> str | None:
    for kind, key in _KINDS:
        for end in ends:
            for line in _lines_from_the_end(end, f'"{key}":'.encode()):
                if (title := _title_of_record(line, kind, key)) is not None:
                    return title
    return None


def _lines_from_the_end(end: bytes, key: bytes) -> Iterator[bytes]:
    """Yield the lines that hold the key, the last one first."""
    stop = len(end)
    while (position := end.rfind(key, 0, stop)) >= 0:
        start = end.rfind(b"\n", 0, position) + 1
        line_end = end.find(b"\n", position, stop)
        yield end[start : stop if line_end < 0 else line_end]
        stop = start


def _title_of_record(line: bytes, kind: str, key: str) -> str | None:
    mark = f'"type":"{kind}"'.encode()
    if mark not in line and f'"type": "{kind}"'.encode() not in line:
        return None
    record = _parsed(line.decode(errors="replace"))
    if record is None:
        record = _parsed_after_a_torn_one(line, b"{" + mark)
    if not isinstance(record, dict) or record.get("type") != kind:
        return None
    title = record.get(key)
    return title if isinstance(title, str) else None


def _parsed_after_a_torn_one(line: bytes, mark: bytes) -> object:
    """Parse the record that was glued to a torn one; one that is a value inside another record is none."""
    start = line.rfind(mark)
    if start <= 0 or line[start - 1 : start] in (b":", b",", b"["):
        return None
    return _parsed(line[start:].decode(errors="replace"))


def _parsed(text: str) -> object:
    """Return the JSON value, None when it is not JSON (too deep or too long a number included)."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
