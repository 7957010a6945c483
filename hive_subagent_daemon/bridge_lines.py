"""Lines of stdin: whole ones, as bytes, with bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""A prompt of ten million bytes may come with each of its characters escaped."""


@dataclass(frozen=True)
class TooLong:
    """A line that was dropped because it is longer than the limit."""


@dataclass
class LineSplitter:
    """Gives the lines in what arrives in pieces; of one that is too long only the fact."""

    most_bytes: int = MAX_LINE_BYTES
    _begun: bytearray = field(default_factory=bytearray)
    _dropping: bool = False

    def feed(self, piece: bytes) -> Iterator[bytes | TooLong]:
        """Yield the lines that end in this piece, without their line ends."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._add(end)
            line, dropped = bytes(self._begun), self._dropping
            self._begun, self._dropping = bytearray(), False
            yield TooLong() if dropped else line
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if len(self._begun) + len(part) > self.most_bytes:
            self._dropping = True
            self._begun = bytearray()
        elif not self._dropping:
            self._begun += part
