"""Blocking work beside the event loop, also when the system gives no thread."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")


async def in_thread(function: Callable[[Unpack[ArgumentsT]], ResultT], *arguments: *ArgumentsT) -> ResultT:
    """Run a blocking function in a worker thread and return what it returns; cancelling waits for it.

    Where no thread can be made (a limit on processes), it runs here and holds up everything else meanwhile:
    how a turn ended must be stored all the same.
    """
    began = False

    def beginning() -> ResultT:
        nonlocal began
        began = True
        return function(*arguments)

    try:
        return await anyio.to_thread.run_sync(beginning)
    except RuntimeError as error:
        if began:
            raise
        say_once(str(error))
        return function(*arguments)


@cache
def say_once(reason: str) -> None:
    """Log why work is done in the event loop, the first time."""
    _log.warning("blocking work holds up the daemon from now on, now and then: %s", reason)
