"""Addresses of host names: from a thread that nobody has to wait for."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import anyio
import pytest

from hive_subagent_daemon.resolver import addresses_of
from tests.support.scripted_daemon import REPOSITORY


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3"])
async def test_an_address_is_its_own(host: str) -> None:
    def never(_host: str) -> tuple[tuple[str, ...], OSError | None]:
        raise AssertionError

    assert await addresses_of(host, lookup=never) == (host,)


async def test_a_name_has_the_addresses_that_the_system_knows() -> None:
    with anyio.fail_after(10):
        assert set(await addresses_of("localhost")) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["nobody.invalid", "x" * 70 + ".invalid", "a..b"])
async def test_a_name_without_an_address_is_an_error(host: str) -> None:
    with anyio.fail_after(15), pytest.raises(OSError, match=r"\w"):
        await addresses_of(host)


async def test_where_there_is_no_thread_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(BlockingIOError, match="no thread"):
        await addresses_of("localhost")


async def test_waiting_for_a_resolver_can_be_given_up() -> None:
    go_on = threading.Event()

    def stuck(_host: str) -> tuple[tuple[str, ...], OSError | None]:
        go_on.wait(10)
        return ("127.0.0.1",), None

    began = time.monotonic()
    with anyio.move_on_after(0.1) as limit:
        await addresses_of("slow.example", lookup=stuck)
    assert limit.cancelled_caught
    assert time.monotonic() - began < 5
    go_on.set()


def test_a_process_ends_although_its_resolver_is_stuck() -> None:
    """The daemon has 15 seconds for its stop, a resolver can take longer."""
    program = """
import threading, anyio
from hive_subagent_daemon.resolver import addresses_of
async def main():
    with anyio.move_on_after(0.1):
        await addresses_of("slow.example", lookup=lambda host: threading.Event().wait())
anyio.run(main)
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        cwd=REPOSITORY,
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")
