"""A loopback server that speaks enough of the Messages API for the real claude to do scripted turns.

    with OfflineModel() as model:
        environment["ANTHROPIC_BASE_URL"] = model.url

or `python -m tests.support.offline_model --port 0`, which prints its address. What it answers is decided
by the content of each request alone, so that parallel turns do not mix: see offline_model_script.py for
the directives. `GET /requests` lists the bodies of all requests of turns, `POST /release/NAME` lets the
answers go that wait with `[[hold: NAME]]`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Self

from tests.support.offline_model_conversation import Conversation, read_conversation
from tests.support.offline_model_http import Answer, Exchange, ModelServer, Received
from tests.support.offline_model_replies import ErrorReply, Json
from tests.support.offline_model_script import (
    ScriptError,
    choose_step,
    program,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LOOK_SECONDS = 0.1  # how often a wait looks at its condition without being woken


class OfflineModel:
    """The server; as a context manager it serves until the block ends and then ends every open answer."""

    def __init__(self, *, port: int = 0) -> None:
        """Bind to a loopback port; 0 takes a free one."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._received: list[Received] = []
        self._failures: Counter[tuple[str, str, int]] = Counter()
        self._released: set[str] = set()
        self._closing = threading.Event()
        self._server = ModelServer(("127.0.0.1", port), partial(Exchange, self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="offline model")

    @property
    def url(self) -> str:
        """The value for ANTHROPIC_BASE_URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def received(self) -> list[Received]:
        """Everything that came in so far, probes and token counts too."""
        with self._lock:
            return list(self._received)

    @property
    def requests(self) -> list[Json]:
        """The bodies of all requests of turns so far, without side requests such as titles."""
        return [r.body for r in self.received if r.is_turn and r.body is not None]

    def requests_about(self, text: str) -> list[Json]:
        """Return the requests of turns in which a text stands, wherever in the request."""
        return [body for body in self.requests if text in json.dumps(body, ensure_ascii=False)]

    def wait_for(self, condition: Callable[[Self], bool], *, limit_seconds: float = 20.0) -> None:
        """Wait until a condition on what was received holds; TimeoutError after the limit."""
        end = time.monotonic() + limit_seconds
        while not condition(self):
            with self._changed:
                self._changed.wait(LOOK_SECONDS)
            if time.monotonic() > end:
                problem = f"not within {limit_seconds} s; {len(self.received)} requests came"
                raise TimeoutError(problem)

    def wait_for_request(self, text: str, *, count: int = 1, limit_seconds: float = 20.0) -> Json:
        """Wait until a text has come in so many requests of turns, and return the last of them."""
        self.wait_for(lambda model: len(model.requests_about(text)) >= count, limit_seconds=limit_seconds)
        return self.requests_about(text)[-1]

    def release(self, name: str) -> None:
        """Let the answers go that wait with `[[hold: name]]`, and those still to come."""
        with self._changed:
            self._released.add(name)
            self._changed.notify_all()

    def is_released(self, name: str) -> bool:
        """Tell whether release(name) has been called."""
        with self._lock:
            return name in self._released

    @property
    def is_closing(self) -> bool:
        """Tell whether open answers should end now."""
        return self._closing.is_set()

    def decide(self, body: Json, session: str) -> Answer:
        """Choose the answer to one request of a turn or beside one, and count it when it is a failure."""
        conversation = read_conversation(body)
        try:
            return self._decide(conversation, session)
        except ScriptError as error:
            return Answer(ErrorReply(400, f"offline model: {error}"), self._number())

    def _decide(self, conversation: Conversation, session: str) -> Answer:
        steps = program(conversation)
        with self._lock:
            keys = [(session, conversation.prompt, index) for index in range(len(steps))]
            index, step = choose_step(conversation, steps, [self._failures[key] for key in keys])
            if step.fails:
                self._failures[keys[index]] += 1
        return Answer(step.reply(conversation), self._number(), step.delay_seconds, step.hold)

    def _number(self) -> int:
        return len(self.received)

    def record(self, received: Received) -> None:
        """Remember a request, and wake who waits for one."""
        with self._changed:
            self._received.append(received)
            self._changed.notify_all()

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the open answers and connections, and wait for their threads."""
        self._closing.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()


def main() -> int:
    """Serve until SIGTERM or SIGINT; the first line on stdout is the address."""
    parser = argparse.ArgumentParser(description="A scripted model for the real claude, on loopback.")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on; 0, the default, takes a free one"
    )
    arguments = parser.parse_args()
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with OfflineModel(port=arguments.port) as model:
        print(model.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
