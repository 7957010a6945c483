"""A real claude that is not the daemon's: a user's own session in the same HOME, or a parent of subagents."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Self

from tests.claude.real_daemon import PATH, claude_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.offline_model import OfflineModel
    from tests.support.scripted_daemon import ScriptedDaemon

END_SECONDS = 30.0
ALWAYS = (
    *("--print", "--verbose", "--output-format=stream-json", "--input-format=stream-json"),
    *("--dangerously-skip-permissions", "--strict-mcp-config"),
)


class OutsideClaude:
    """A claude that stays alive between its rounds; as a context manager it is ended with the block."""

    def __init__(
        self,
        daemon: ScriptedDaemon,
        model: OfflineModel,
        *flags: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it in the work directory and the HOME of a daemon."""
        own = {"PATH": PATH, "LANG": "C.UTF-8", "DISABLE_AUTOUPDATER": "1"}
        own |= {"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}
        own |= claude_environment(daemon.home, model) | dict(environment or {})
        self.stderr = daemon.folder / "outside-claude.stderr"
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [daemon.claude, *ALWAYS, *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=own,
                cwd=daemon.work,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout

    def ask(self, prompt: str) -> list[dict[str, Any]]:
        """Give it a prompt and return the events of its round, the result included."""
        message = {"type": "user", "message": {"role": "user", "content": prompt}}
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()
        return list(self._until_result())

    def _until_result(self) -> Iterator[dict[str, Any]]:
        for line in self._stdout:
            event = json.loads(line)
            yield event
            if event["type"] == "result":
                return
        message = f"the claude ended without a result: {self.stderr.read_text()}"
        raise AssertionError(message)

    def end(self) -> None:
        """Let it end by itself."""
        self._stdin.close()
        self.process.wait(END_SECONDS)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_SECONDS)
        self._stdin.close()
        self._stdout.close()


def text_of(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the result among some events."""
    return str(next(event for event in events if event["type"] == "result").get("result", ""))
