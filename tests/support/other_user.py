"""Do something as another user, in a forked child: no interpreter that the other user would have to reach."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from typing import TYPE_CHECKING

import anyio
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOBODY = 65534
RESULT_LIMIT_SECONDS = 30.0

# A child of another user cannot load modules from a folder closed to it; name look-ups need this one.
"localhost".encode("idna")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class OtherUser:
    """A child that runs one action as another user and then waits to be ended."""

    def __init__(self, pid: int, result: int) -> None:
        """Keep the pid and the pipe that brings what the action returned."""
        self.pid = pid
        self._result = result

    def result(self) -> bytes:
        """Wait for what the action returned."""
        return self._read()

    async def async_result(self) -> bytes:
        """Wait for what the action returned while a server runs in this event loop."""
        with anyio.fail_after(RESULT_LIMIT_SECONDS):
            await anyio.wait_readable(self._result)
        return self._read()

    def _read(self) -> bytes:
        size = int.from_bytes(os.read(self._result, 4), "big")
        content = b""
        while len(content) < size:
            content += os.read(self._result, size - len(content))
        return content


@contextlib.contextmanager
def as_user(action: Callable[[], bytes], uid: int = NOBODY) -> Iterator[OtherUser]:
    """Run the action in a child with that uid; the child and its sockets live until the block ends."""
    result, answer = os.pipe()
    with warnings.catch_warnings():
        # The child does nothing but the action, so threads of the test runner do not matter.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _play(action, uid, answer)
    os.close(answer)
    try:
        yield OtherUser(pid, result)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(result)


def _play(action: Callable[[], bytes], uid: int, answer: int) -> None:
    """Be the child; never return into the test runner."""
    content = b"the action failed"
    try:
        signal.alarm(60)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        content = action()
    except (OSError, ValueError, TypeError, LookupError, ImportError) as error:
        content = repr(error).encode()
    finally:
        os.write(answer, len(content).to_bytes(4, "big") + content)
        signal.pause()
        os._exit(0)
