"""A real terminal, by tmux: what stands on its screen, and keys that are pressed in it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SESSION = "test"
LINES = 24


class Terminal:
    """One terminal with a shell in it."""

    def __init__(self, socket: Path) -> None:
        """Use the tmux server behind this socket."""
        self._words = [shutil.which("tmux") or "tmux", "-f", "/dev/null", "-S", str(socket)]

    def tmux(self, *words: str) -> str:
        """Call tmux and return what it prints."""
        ended = subprocess.run(
            [*self._words, *words], capture_output=True, text=True, check=True, timeout=20, encoding="utf-8"
        )
        return ended.stdout

    def keys(self, *keys: str) -> None:
        """Press keys, by tmux's names for them, or type words."""
        self.tmux("send-keys", "-t", SESSION, *keys)

    def resize(self, *, columns: int, lines: int) -> None:
        """Change the size, of which programs are told by a signal."""
        self.tmux("resize-window", "-t", SESSION, "-x", str(columns), "-y", str(lines))

    def text(self, *, escapes: bool = False) -> str:
        """Return what stands on the screen, with `escapes` also the colours."""
        return self.tmux("capture-pane", "-p", *(["-e"] if escapes else []), "-t", SESSION)

    def shows(self, pattern: str, *, within: float = 15.0, escapes: bool = False) -> str:
        """Wait until something stands on the screen, and return the whole screen."""
        screen = ""

        def shown() -> bool:
            nonlocal screen
            screen = self.text(escapes=escapes)
            return re.search(pattern, screen, re.MULTILINE) is not None

        try:
            eventually(shown, within=within, what=f"{pattern!r} on the screen")
        except AssertionError as error:
            message = f"{error}:\n{screen}"
            raise AssertionError(message) from None
        return screen

    def run(self, words: Sequence[str], **environment: str) -> None:
        """Run a program in the shell; after it the line `code N` is printed."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        self.keys("-l", f"clear; env {shlex.join([*settings, *words])}; echo code $?")
        self.keys("Enter")


@contextmanager
def terminal(
    folder: Path,
    environment: Mapping[str, str],
    *,
    columns: int = 80,
    shell: str = "bash --norc",
) -> Iterator[Terminal]:
    """Open a terminal of 24 lines with a shell; it is closed with all that runs in it."""
    if shutil.which("tmux") is None or shutil.which(shell.split()[0]) is None:
        pytest.skip(f"needs tmux and {shell.split()[0]} (Debian packages)")
    made = Terminal(folder / "tmux")
    settings = [f"{name}={value}" for name, value in environment.items()]
    command = shlex.join(["env", "-i", "PS1=$ ", "TERM=screen-256color", "LANG=C.UTF-8", *settings])
    made.tmux("new-session", "-d", "-s", SESSION, "-x", str(columns), "-y", str(LINES), f"{command} {shell}")
    try:
        made.shows(r"^\S*[$%>#] ?$")
        yield made
    finally:
        made.tmux("kill-server")
