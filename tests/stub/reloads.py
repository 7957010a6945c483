"""Reloading a daemon by a real SIGHUP, and what another user then gets from it."""

from __future__ import annotations

import http.client
import signal
from functools import partial
from typing import TYPE_CHECKING

from tests.support.other_user import as_user
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

DONE = "limits were read again"


def reload(daemon: Daemon, *, said: str = DONE) -> str:
    """Send SIGHUP, wait until this has been said, and return the log from then on."""
    assert daemon.process is not None
    offset = len(daemon.log)
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: said in daemon.log[offset:], what=f"after a reload: {said}")
    return daemon.log[offset:]


def asked(port: int, secret: str | None) -> bytes:
    """Send one call and return the status and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    connection.request("POST", "/mcp", b"{}", headers)
    response = connection.getresponse()
    return b"%d %s" % (response.status, response.read())


def status_for_another_user(daemon: Daemon, secret: str | None) -> int:
    """Return the status that another user gets."""
    with as_user(partial(asked, daemon.port, secret)) as other:
        return int(other.result()[:3])
