"""Texts of others made fit to be shown: no control character and no change of direction acts in them.

Markup is not the concern of this module: whoever writes HTML escapes what comes from here.
"""

from __future__ import annotations

import re
from typing import Final

# Colours and cursor movements of a terminal (ECMA-48), and what sets its title.
_TERMINAL: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)")
_REPLACEMENT: Final = "\ufffd"
_BIDI: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_NO_TEXT: Final = (range(0x80, 0xA0), range(0xD800, 0xE000), range(0xFFF9, 0xFFFC), range(0xE0000, 0xE0080))
_LINE_ENDS: Final = {"\u2028": "\n", "\u2029": "\n", "\x85": "\n"}

_SHOWN: Final = str.maketrans(
    {chr(code): _REPLACEMENT for codes in _NO_TEXT for code in codes}
    | {mark: f"[U+{ord(mark):04X}]" for mark in (*map(chr, range(0x20)), "\x7f", *_BIDI)}
    | {"\t": "\t", "\n": "\n", "\ufeff": ""}
    | _LINE_ENDS
)


def harmless(text: str) -> str:
    """Return the text with visible signs for what would act on a display; lines and tabs stay."""
    return _TERMINAL.sub("", text).replace("\r\n", "\n").replace("\r", "\n").translate(_SHOWN)


def cut(text: str, characters: int) -> str:
    """Return at most so many characters, and how many there were when that is less than all."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}… [{len(text):,} characters in all]"
