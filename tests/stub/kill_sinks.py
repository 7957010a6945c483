"""A sink over HTTP and one that is a program: they live on while daemons die, and keep all that they get."""

from __future__ import annotations

import contextlib
import json
import shlex
from typing import TYPE_CHECKING, Any

from tests.stub.kill_story import all_delivered, readable, stored_ends
from tests.support.receivers import Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.daemon_harness import Daemon

COUNT = 2
Json = dict[str, Any]


class Sinks:
    """Both sinks of one daemon, and what they have got."""

    def __init__(self, folder: Path, receiver: Receiver, port: int) -> None:
        """Let the program write a file for each attempt."""
        self.receiver = receiver
        self.folder = folder
        self.folder.mkdir()
        name = f"{shlex.quote(str(folder))}/$HIVE_SUBAGENT_LOOSE_END.$$"
        # Half-written when its daemon dies, it got nothing.
        script = f"cat >{name}.part && mv {name}.part {name}"
        posts = {"type": "http", "url": f"http://127.0.0.1:{port}/"}
        self.table = {"sinks": [posts, {"type": "command", "argv": ["sh", "-c", script]}]}

    def posted(self) -> dict[str, list[Json]]:
        """Return by key what was posted."""
        found: dict[str, list[Json]] = {}
        for request in list(self.receiver.requests):
            found.setdefault(request.key, []).append(request.content)
        return found

    def written(self) -> dict[str, list[Json]]:
        """Return by key what the program has written."""
        found: dict[str, list[Json]] = {}
        for path in self.folder.iterdir():
            if path.suffix != ".part":
                found.setdefault(path.stem, []).append(json.loads(path.read_text()))
        return found

    def check(self, daemon: Daemon, *, most: int) -> int:
        """Wait until all is delivered, and check it: return how often anything came.

        Each loose end on disk came to both, at most so often, always under its own key and in the words in
        which a parent reads it, and nothing else did.
        """
        all_delivered(daemon)
        ends = stored_ends(daemon)
        owed = [end for end in ends.values() if end["undelivered"]]
        assert not owed, f"not noted as delivered: {owed}"
        told = {end["id"]: end | {"closed_at": None} for end in readable(daemon, sorted(ends))}
        for got in (self.posted(), self.written()):
            assert got.keys() == ends.keys(), f"{sorted(got)} came, of {sorted(ends)}"
            for key, contents in got.items():
                same = [content | {"closed_at": None} for content in contents]
                assert same == [told[key]] * len(contents), f"{key} came in other words: {contents}"
                assert len(contents) <= most, f"{key} came {len(contents)} times"
        return sum(len(contents) for got in (self.posted(), self.written()) for contents in got.values())


@contextlib.contextmanager
def sinks_in(folder: Path) -> Iterator[Sinks]:
    """Receive while the block lasts, whatever becomes of the daemon."""
    with receiving() as (receiver, port):
        yield Sinks(folder, receiver, port)
