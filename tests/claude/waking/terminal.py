"""A parent as a person has it: claude in a terminal, inside a tmux of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Self

import pytest

from tests.claude.waking.parents import END_SECONDS, Conversation
from tests.claude.waking.plugged import tool
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.claude.waking.plugged import PluggedDaemon

TMUX = shutil.which("tmux")
SHOWN_SECONDS = 30.0
GREETING = "[[say: hello]]"
TMUX_SECONDS = 10.0


class TerminalParent(Conversation):
    """A claude that a person could type to; as a context manager its terminal is closed with the block."""

    def __init__(self, daemon: PluggedDaemon, *, prompt: str) -> None:
        """Start it in the work directory and the HOME of a daemon, and give it a prompt of any length.

        Claude in a terminal does not wait for MCP servers: it is greeted until it has the daemon's tools.
        """
        super().__init__(daemon)
        if TMUX is None:
            pytest.skip("no tmux here, which a claude in a terminal needs")
        self.socket = daemon.folder / "tmux"
        variables = daemon.environment_of_parent() | {"TERM": "xterm-256color"}
        words = [
            *("env", "-i", *(f"{name}={value}" for name, value in variables.items()), str(daemon.claude)),
            *("--dangerously-skip-permissions", f"--session-id={self.session}"),
            f"--append-system-prompt={prompt}",
            GREETING,
        ]
        self._tmux(
            *("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "50", "-c", str(daemon.work)), *words
        )

        eventually(self.requests, within=SHOWN_SECONDS, what="the first request from a terminal")
        eventually(self._has_tools, within=SHOWN_SECONDS, what="the tools in a terminal")
        self.write("go")

    def _has_tools(self) -> bool:
        """Tell whether the model was shown the daemon's tools; greet claude once more where it was not."""
        requests = self.requests()
        if tool("start") in json.dumps(requests[-1]):
            return True
        self.write(GREETING)
        return eventually(
            lambda: len(self.requests()) > len(requests), within=SHOWN_SECONDS, what="a greeting"
        )

    def _tmux(self, *words: str) -> str:
        assert TMUX is not None
        ran = subprocess.run(
            [TMUX, "-S", self.socket, *words],
            env={"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TMUX_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"tmux {words[0]}: {ran.stderr}"
        return ran.stdout

    @property
    def screen(self) -> str:
        """Return what the terminal shows."""
        return self._tmux("capture-pane", "-p")

    def shows(self, text: str) -> None:
        """Wait until the terminal shows a text."""
        eventually(lambda: text in self.screen, within=SHOWN_SECONDS, what=f"{text!r} on the screen")

    def write(self, text: str, *, enter: bool = True) -> None:
        """Type a line, and press enter once it is shown."""
        self._tmux("send-keys", "-l", text)
        self.shows(text)
        if enter:
            self._tmux("send-keys", "Enter")

    def ends(self) -> None:
        """Wait until claude has ended by itself, and the terminal with it."""

        eventually(self._has_ended, within=END_SECONDS, what="the end of a claude in a terminal")

    def _has_ended(self) -> bool:
        assert TMUX is not None
        asked = subprocess.run([TMUX, "-S", self.socket, "has-session"], capture_output=True, check=False)
        return asked.returncode != 0

    def close(self) -> None:
        """Close the terminal, as a person closes a window."""
        self._tmux("kill-server")

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, problem: type[BaseException] | None, *_: object) -> None:
        """Close the terminal if it is still open; what it showed explains a failure."""
        if problem is not None and not self._has_ended():
            print(self.screen)
        assert TMUX is not None
        subprocess.run([TMUX, "-S", self.socket, "kill-server"], capture_output=True, check=False)
