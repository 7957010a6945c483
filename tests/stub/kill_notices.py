"""A parent's hook in the story that kills the daemon: what it was shown, and is shown after a crash."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.support.daemon_harness import Daemon

SESSION = "the-parent"
FIRST, LATER, LAST = "first-hook", "later-hook", "last-hook"
LIMIT_SECONDS = 30.0


def shown(daemon: Daemon, waiter: str = FIRST) -> list[str]:
    """Ask on behalf of a hook what is open and unseen, and return the ids."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", f"/notices?session={SESSION}&show=open&waiter={waiter}")
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    assert response.status == http.HTTPStatus.OK, content
    answer: dict[str, Any] = json.loads(content)
    assert not answer["more"], "the story has not so many turns"
    return [one["id"] for one in answer["loose_ends"]]


def check_notices(daemon: Daemon, *, opened: Collection[str], was_shown: Collection[str]) -> None:
    """A hook is shown the rest by the next daemon: nothing twice, and what its answer did not bring again."""
    now = shown(daemon, LATER if was_shown else FIRST)
    assert not {*now} & {*was_shown}, "a notice was shown to the session twice"
    assert {*now} == {*opened} - {*was_shown}, "a notice was never shown to the session"
    assert not shown(daemon, LAST), "a notice was shown to the session twice"
