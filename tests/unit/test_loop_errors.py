"""What the event loop reports: a lack of descriptors is told once for a while, everything else as usual."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

import pytest

from hive_subagent_daemon.loop_errors import LoopErrors

LACK = OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_thousand_connections_that_cannot_be_accepted_are_one_line(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    errors = LoopErrors()
    with socket.socket() as listening:
        for _ in range(1000):
            error = OSError(number, "none left")
            errors(loop, {"message": "accept", "exception": error, "socket": listening})
    loop.close()
    [record] = caplog.records
    assert "none left" in record.getMessage()
    assert record.exc_info is None


def test_every_other_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    errors = LoopErrors()
    errors(loop, {"message": "a callback failed", "exception": ValueError("why")})
    errors(loop, {"message": "no socket of ours", "exception": LACK})
    loop.close()
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert all(record.exc_info for record in caplog.records)
