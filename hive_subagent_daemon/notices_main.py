"""The command `hive-subagent notices`, for hooks of claude: it tells a parent of ended turns, or is silent.

It reads the hook's JSON on stdin and asks the daemon on behalf of its session. After `Stop` it waits for the
next notice and exits with 2, which wakes claude with the text on stderr; every wake costs money, so that code
is for nothing else, and whatever goes wrong is 0. For `UserPromptSubmit` and `SessionStart` it prints what
claude adds to the conversation.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import syslog
import time
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.ancestors import Ancestors
from hive_subagent_daemon.notices_client import (
    Address,
    Unreachable,
    ask,
    ask_until_told,
    from_url,
    new_waiter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType

TURN_VARIABLE: Final = "HIVE_SUBAGENT_TURN"
URL_VARIABLE: Final = "HIVE_SUBAGENT_URL"
TOKEN_FILE_VARIABLE: Final = "HIVE_SUBAGENT_TOKEN_FILE"
OPTIONS: Final = ("--url", "--socket", "--token-file")
DEFAULT_URL: Final = "http://127.0.0.1:7310/mcp"
QUIET, WAKE = 0, 2
STDIN, STDOUT, STDERR = 0, 1, 2

# A prompt of ten million characters is part of what a hook is given.
MOST_INPUT_BYTES: Final = 64 * 1024 * 1024
INPUT_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 10.0
# A person's prompt waits for its hook.
QUICK_SECONDS: Final = 3.0
MOST_ID_CHARACTERS: Final = 128
ID_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
USAGE: Final = """Usage: hive-subagent notices [--url URL | --socket PATH] [--token-file FILE]

For hooks of claude: reads the hook's JSON on stdin. After Stop it waits for the end of a subagent's turn and
exits with 2 and a text on stderr; at UserPromptSubmit and SessionStart it prints what there is to tell, if
anything. Every other case, errors included, is silence and the exit code 0.
"""


def is_meant(words: Sequence[str]) -> bool:
    """Tell whether these arguments of `hive-subagent` name this command."""
    return next(iter(_without_options(words)), None) == "notices"


def main(words: Sequence[str] | None = None) -> int:
    """Answer one hook; 2 only when a notice has been written that its session has not been shown before."""
    if os.environ.get(TURN_VARIABLE):
        return QUIET
    words = sys.argv[1:] if words is None else words
    sys.excepthook = _give_up
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end_quietly)
    if {"-h", "--help"} & {*words}:
        _write(STDOUT, USAGE)
        return QUIET
    address = _address(words)
    if address is None or os.isatty(STDIN):
        return QUIET
    hook = _hook()
    session = hook.get("session_id")
    if not isinstance(session, str) or not _is_id(session):
        return QUIET
    match hook.get("hook_event_name"):
        case "Stop":
            return wait(address, session)
        case "UserPromptSubmit":
            return _tell(address, f"session={session}&show=open")
        case "SessionStart":
            return _tell(address, f"session={session}&show=counts")
    return QUIET


def wait(address: Address, session: str) -> int:
    """Wait for the next notice; when a daemon that was there stays away, say so in the journal."""
    query = f"session={session}&show=next&waiter={new_waiter()}"
    ancestors = Ancestors()
    told = ask_until_told(address, query, ancestors)
    if isinstance(told, Unreachable) and told.heard:
        _note("gave up waiting for notices: the daemon has been away for ten minutes")
    if not isinstance(told, dict) or told.get("reason") != "notices":
        return QUIET
    text = told.get("text")
    if not isinstance(text, str) or not text:
        return QUIET
    return WAKE if _write(STDERR, f"{text}\n") else QUIET


def _tell(address: Address, query: str) -> int:
    """Print what there is to tell at once."""
    told = ask(address, query, Ancestors(), seconds=QUICK_SECONDS)
    if isinstance(told, dict) and isinstance(text := told.get("text"), str) and text:
        _write(STDOUT, f"{text}\n")
    return QUIET


def _without_options(words: Sequence[str]) -> list[str]:
    """Return the arguments that are no options and no values of ours."""
    found, is_value = [], False
    for word in words:
        if not is_value and not word.startswith("-"):
            found.append(word)
        is_value = not is_value and word in OPTIONS
    return found


def _options(words: Sequence[str]) -> dict[str, str] | None:
    """Return the options with their values; None when the arguments cannot be understood."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if name == "notices" and not has_value:
            continue
        if name not in OPTIONS or not (has_value or rest):
            return None
        given[name] = value if has_value else rest.pop(0)
    return None if {"--url", "--socket"} <= given.keys() else given


def _address(words: Sequence[str]) -> Address | None:
    """Return where to ask; None when that cannot be understood."""
    given = _options(words)
    if given is None:
        return None
    token_file = given.get("--token-file") or os.environ.get(TOKEN_FILE_VARIABLE) or ""
    if "--socket" in given:
        return Address("/notices", socket_path=given["--socket"], token_file=token_file)
    address = from_url(given.get("--url") or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
    return None if address is None else address._replace(token_file=token_file)


def _hook() -> dict[str, object]:
    """Read what claude tells its hook; nothing where that cannot be understood."""
    try:
        hook = json.loads(_input().decode(errors="replace"))
    except (OSError, ValueError, RecursionError, MemoryError):
        return {}
    return hook if isinstance(hook, dict) else {}


def _input() -> bytes:
    """Read stdin to its end, bounded in size and time."""
    pieces: list[bytes] = []
    size = 0
    ends = time.monotonic() + INPUT_SECONDS
    poll = select.poll()
    poll.register(STDIN, select.POLLIN)
    while size <= MOST_INPUT_BYTES and poll.poll(max(ends - time.monotonic(), 0) * 1000):
        piece = os.read(STDIN, 1024 * 1024)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces) if size <= MOST_INPUT_BYTES else b""


def _is_id(text: str) -> bool:
    return 0 < len(text) <= MOST_ID_CHARACTERS and ID_CHARACTERS.issuperset(text)


def _write(descriptor: int, text: str) -> bool:
    """Write the whole text in bounded time; tell whether its reader has taken all of it."""
    left = memoryview(text.encode(errors="replace"))
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    ends = time.monotonic() + WRITE_SECONDS
    while left:
        if not poll.poll(max(ends - time.monotonic(), 0) * 1000):
            return False
        try:
            left = left[os.write(descriptor, left[: select.PIPE_BUF]) :]
        except BlockingIOError:
            continue
        except OSError:
            return False
    return True


def _note(sentence: str) -> None:
    """Say something in the journal: a hook's own output is claude's."""
    syslog.openlog("hive-subagent", syslog.LOG_PID, syslog.LOG_USER)
    syslog.syslog(syslog.LOG_NOTICE, sentence)


def _give_up(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """End quietly at what nobody thought of: with any other code claude would show it, or wake."""
    _note(f"gave up: {kind.__name__}: {error}")
    os._exit(QUIET)


def _end_quietly(_number: int, _frame: FrameType | None) -> None:
    # Not by an exception: it could come up anywhere, and its way out would be a code of its own.
    os._exit(QUIET)


if __name__ == "__main__":
    sys.exit(main())
