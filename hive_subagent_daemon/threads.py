"""Blocking work beside the event loop, also when the system gives no thread."""

from __future__ import annotations

import logging
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
        _log.warning("blocking work holds up the daemon: %s", error)
        return function(*arguments)
