"""What reaches the terminal: text without control characters, in any encoding, coloured where that shows."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

# C0 and C1 talk to the terminal; the bidirectional controls let a text read otherwise than it is.
_BIDIRECTIONAL: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL: Final = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
} | {code: f"\\u{code:04x}" for code in _BIDIRECTIONAL}

_CODES: Final = {"": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def safe(text: str) -> str:
    """Return a text with its control characters written out, line ends and tabs left as they are."""
    return text.translate(_CONTROL)


def wrapped(text: str, *, indent: int = 0) -> str:
    """Return a line broken between words, all but the first indented; whole where nobody looks at stdout."""
    if not is_terminal(sys.stdout):
        return text
    width = max(20, shutil.get_terminal_size().columns)
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False) or [""]
    )


def one_line(text: str) -> str:
    """Return a text on one line, safe to print."""
    return safe(" ".join(text.split()))


def is_terminal(stream: TextIO) -> bool:
    """Tell whether people look at this stream."""
    return stream.isatty()


def can_redraw(stream: TextIO) -> bool:
    """Tell whether what was printed there can be drawn over."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def shows_colour(stream: TextIO) -> bool:
    """Tell whether to colour (no-color.org: any value of NO_COLOR but an empty one says no)."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def coloured(text: str, tone: str, *, colour: bool) -> str:
    """Return a text in a tone, or as it is."""
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m" if colour and tone else text


def say(text: str) -> None:
    """Print lines to stdout, made safe before."""
    put(safe(text))


def put(text: str) -> None:
    """Print to stdout what is safe already, whatever the encoding of the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(text)
    sys.stdout.write("\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Print a line to stderr, with the name of the program before it."""
    sys.stderr.write(f"hive-subagent: {safe(text)}\n")


def put_json(value: Mapping[str, Any], *, lines: bool = False) -> None:
    """Print JSON, over several lines or (`lines`) on one."""
    # json leaves DEL as it is; everything else beyond ASCII is escaped.
    put(json.dumps(value, indent=None if lines else 2).replace("\x7f", "\\u007f"))
