"""Real claudes as parents: one that keeps reading its input, one that prints and ends."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from tests.claude.real_daemon import TURN_SECONDS
from tests.support.offline_model_conversation import LOOSE_END_ID, wakes
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.claude.waking.plugged import PluggedDaemon

END_SECONDS = 30.0
ALWAYS = ("--print", "--verbose", "--output-format=stream-json", "--dangerously-skip-permissions")


class Conversation:
    """What the offline model has heard of one parent's session."""

    def __init__(self, daemon: PluggedDaemon) -> None:
        """Choose the session of a parent that begins now."""
        self.daemon = daemon
        self.session = str(uuid.uuid4())

    def requests(self) -> list[dict[str, Any]]:
        """Return the bodies of all requests of this session's turns."""
        return [
            received.body
            for received in self.daemon.model.received
            if received.is_turn and received.body and self._is_ours(received.headers)
        ]

    def _is_ours(self, headers: dict[str, str]) -> bool:
        return headers.get("x-claude-code-session-id") == self.session

    def waits(self) -> None:
        """Wait until it has ended its turn and its hook waits for a notice.

        Before the model is asked for the first time other hooks run the same command.
        """
        eventually(self.requests, within=TURN_SECONDS, what="the first request of a parent")
        self.daemon.hooks_wait()

    def wakes(self) -> list[str]:
        """Return what hooks said so far by which they woke this parent."""
        requests = self.requests()
        return wakes(requests[-1]) if requests else []

    def woken(self, number: int = 1, *, within: float = TURN_SECONDS) -> str:
        """Wait until the parent has been woken so many times, and return what the last hook said."""
        found = self.woken_at_least(number, within=within)
        assert len(found) == number, found
        return found[-1]

    def woken_at_least(self, number: int, *, within: float = TURN_SECONDS) -> list[str]:
        """Wait until the parent has been woken so many times, and return what the hooks said."""
        eventually(lambda: len(self.wakes()) >= number, within=within, what=f"wake {number}")
        return self.wakes()

    def woken_at(self, number: int) -> float:
        """Return when (time.monotonic) the model was asked after the parent had been woken so many times."""
        return next(
            received.arrived
            for received in self.daemon.model.received
            if received.body and self._is_ours(received.headers) and len(wakes(received.body)) >= number
        )

    def told(self) -> list[list[str]]:
        """Return the loose ends that each wake told of; each must tell of one that is new."""
        told = [list(dict.fromkeys(LOOSE_END_ID.findall(text))) for text in self.wakes()]
        for number, ids in enumerate(told):
            earlier = {one for before in told[:number] for one in before}
            assert set(ids) - earlier, f"wake {number + 1} told of nothing new: {ids}"
        return told


class Parent(Conversation):
    """A claude without a terminal; as a context manager it is ended with the block."""

    flags: tuple[str, ...] = ()

    def __init__(self, daemon: PluggedDaemon, *flags: str, prompt: str = "") -> None:
        """Start it in the work directory and the HOME of a daemon."""
        super().__init__(daemon)
        self._events: list[tuple[float, dict[str, Any]]] = []
        self.stderr = daemon.folder / f"parent-{self.session}.stderr"
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [daemon.claude, *ALWAYS, *self.flags, f"--session-id={self.session}", *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=daemon.environment_of_parent(),
                cwd=daemon.work,
            )
        self._reader = threading.Thread(target=self._read, name="parent's events")
        self._reader.start()
        if prompt:
            self.ask(prompt)

    def ask(self, prompt: str) -> None:
        """Give it a prompt."""
        raise NotImplementedError

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return what it has printed so far."""
        return [event for _, event in list(self._events)]

    def results(self) -> list[dict[str, Any]]:
        """Return the results of the turns that have ended so far."""
        return [event for event in self.events if event["type"] == "result"]

    def result(self, number: int = 1) -> dict[str, Any]:
        """Wait for the end of so many turns, and return the result of the last of them."""

        def ended() -> bool:
            assert len(self.results()) >= number or self._reader.is_alive(), self.stderr.read_text()
            return len(self.results()) >= number

        eventually(ended, within=TURN_SECONDS, what=f"result {number} of a parent")
        return self.results()[number - 1]

    def init(self) -> dict[str, Any]:
        """Wait for the first event and return it."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if event.get("subtype") == "init"]

        return eventually(found, within=TURN_SECONDS, what="the init of a parent")[0]

    def ends(self, *, within: float = END_SECONDS) -> int:
        """Wait until it has ended by itself and return its code."""
        code = self.process.wait(within)
        self._reader.join(within)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.append((time.monotonic(), json.loads(line)))

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.ends()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


class ListeningParent(Parent):
    """A parent that stays alive between its turns, as an agent's harness keeps it."""

    flags = ("--input-format=stream-json",)

    @override
    def ask(self, prompt: str) -> None:
        assert self.process.stdin is not None
        message = {"type": "user", "message": {"role": "user", "content": prompt}}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def leave(self) -> int:
        """Tell it that no more prompts come, and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ends()


class PrintingParent(Parent):
    """A parent that has one prompt and ends when it has nothing more to do."""

    @override
    def ask(self, prompt: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(prompt.encode())
        self.process.stdin.close()
