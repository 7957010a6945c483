"""One line on stderr that is drawn over, and gone in the end."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text


class ProgressLine:
    """A line that tells what is being waited for; what is printed meanwhile stands above it."""

    def __init__(self) -> None:
        """Draw nothing yet."""
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._live: Live | None = None

    def show(self, text: str) -> None:
        """Draw the line over the last one, cut to the width of the terminal."""
        line = Text(text, "dim", no_wrap=True, overflow="ellipsis")
        if self._live is None:
            self._live = Live(line, console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        else:
            self._live.update(line, refresh=True)

    def clear(self) -> None:
        """Take the line away and give the cursor back."""
        if self._live is not None:
            self._live.stop()
            self._live = None
