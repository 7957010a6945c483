"""What the event loop itself reports: a lack of descriptors in one line now and then, all else as usual.

asyncio tries to accept as many connections at once as may wait, and tells of each that it cannot: without
this that is a thousand tracebacks a second (measured on Python 3.11).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from typing import Any, Final

_log = logging.getLogger(__name__)

TOLD_EVERY_SECONDS: Final = 10.0
_LACKING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class LoopErrors:
    """The exception handler of one event loop."""

    def __init__(self) -> None:
        """Nothing has been told yet."""
        self._told_at = -TOLD_EVERY_SECONDS

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error that asyncio could only report; a connection that cannot be accepted waits."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _LACKING or "socket" not in context:
            loop.default_exception_handler(context)
            return
        if time.monotonic() - self._told_at < TOLD_EVERY_SECONDS:
            return
        self._told_at = time.monotonic()
        _log.error(
            "connections have to wait: %s. With many callers, raise LimitNOFILE= of the service.",
            error.strerror,
        )


def install() -> None:
    """Handle the errors of the running loop."""
    asyncio.get_running_loop().set_exception_handler(LoopErrors())
