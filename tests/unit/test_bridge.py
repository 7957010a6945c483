"""The bridge in this process, on pipes: its ends, and what it does when it meets an error of its own."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Any

from hive_subagent_daemon import bridge
from hive_subagent_daemon.bridge import Bridge
from hive_subagent_daemon.client import TcpEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

END_SECONDS = 30.0
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "start"}}
PING = {"jsonrpc": "2.0", "id": 8, "method": "ping"}


@dataclass
class Client:
    """The other ends of a bridge's pipes."""

    saying: FileIO
    hearing: FileIO
    served: threading.Thread

    def say(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self.saying.write(json.dumps(message).encode() + b"\n")

    def heard(self) -> dict[str, Any]:
        """Read a message that is alone on its way."""
        message: dict[str, Any] = json.loads(self.hearing.read(65536) or b"")
        return message

    def ends(self) -> bool:
        """Wait for the end of the bridge."""
        self.served.join(END_SECONDS)
        return not self.served.is_alive()


@contextmanager
def client_of_a_bridge() -> Iterator[Client]:
    """Run a bridge to nobody."""
    stdin, saying = os.pipe()
    hearing, stdout = os.pipe()
    one = Bridge(TcpEndpoint("127.0.0.1", 1), stdin=stdin, stdout=stdout)
    with FileIO(saying, "w") as words, FileIO(hearing) as answers:
        client = Client(words, answers, threading.Thread(target=one.run))
        client.served.start()
        yield client
    client.served.join(END_SECONDS)
    for descriptor in (stdin, stdout):
        os.close(descriptor)


def test_an_error_of_its_own_is_an_answer_too_and_not_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError

    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    monkeypatch.setattr(bridge, "carried", fails)
    with client_of_a_bridge() as client:
        client.say(CALL)
        answer = client.heard()
        assert (answer["id"], answer["result"]["isError"]) == (7, True)
        assert "may or may not have taken effect" in answer["result"]["content"][0]["text"]
        client.say(PING)
        assert client.heard() == {"jsonrpc": "2.0", "id": 8, "result": {}}
    assert [report.exc_type for report in reported] == [KeyError]


def test_a_client_that_says_no_more_is_the_end() -> None:
    with client_of_a_bridge() as client:
        client.saying.close()
        assert client.ends()


def test_a_client_that_hears_no_more_is_the_end() -> None:
    with client_of_a_bridge() as client:
        client.hearing.close()
        assert client.ends()


def test_half_a_line_at_the_end_is_not_acted_on() -> None:
    with client_of_a_bridge() as client:
        client.saying.write(json.dumps(PING).encode())
        client.saying.close()
        assert client.ends()
        os.set_blocking(client.hearing.fileno(), False)
        assert client.hearing.read(1) is None
