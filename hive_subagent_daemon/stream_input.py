"""What a steerable turn is told on its stdin, line by line, and what follows from what it has answered.

Measured on claude 2.1.150, 2.1.197 and 2.1.332 with `--input-format stream-json --replay-user-messages`: a
message comes back on stdout, with its id, when claude takes it, in the middle of a round with the next tool
result and otherwise as a round of its own. What was written before the end of stdin is still taken. After an
interrupt request claude ends its round with a result and a marker in the session. A line that is not JSON
ends claude.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.claude_command import as_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hive_subagent_daemon.skim import Seen

MOST_UNREAD: Final = 32


@dataclass(frozen=True)
class Message:
    """One user message as a line of stdin; the id comes back when claude takes it."""

    id: str
    line: bytes


def message(prompt: str) -> Message:
    """Return a prompt as a message with an id of its own, such that it reaches the model as text."""
    message_id = str(uuid.uuid4())
    content = {"role": "user", "content": as_text(prompt)}
    return Message(
        message_id,
        _line({"type": "user", "message": content, "parent_tool_use_id": None, "uuid": message_id}),
    )


def interrupt_request(unread: Iterable[str]) -> bytes:
    """Return the lines that take back what was not read yet, which would run afterwards, and interrupt."""
    takes_back = ({"subtype": "cancel_async_message", "message_uuid": one} for one in unread)
    requests = [*takes_back, {"subtype": "interrupt"}]
    return b"".join(
        _line({"type": "control_request", "request_id": str(uuid.uuid4()), "request": request})
        for request in requests
    )


def _line(event: Mapping[str, object]) -> bytes:
    """Return one line. All but ASCII is escaped: some readers take U+2028 for the end of a line."""
    return json.dumps(event).encode() + b"\n"


def still_unread(sent: Iterable[str], seen: Seen) -> tuple[str, ...]:
    """Return which of these messages claude has not taken yet, in order."""
    return tuple(one for one in sent if one not in seen.taken)


def is_finished(seen: Seen, unread: tuple[str, ...], *, waited_seconds: float, grace_seconds: float) -> bool:
    """Tell whether nothing more is to be said, so that stdin ends and claude with it.

    `waited_seconds` is the time since the result.

    A message that was not read when its round ended begins a further round. Claude begins it at once; one
    that it leaves is waited for no longer than the grace, and it still is taken after that, if at all. After
    an error nobody waits: claude at the end of its budget takes nothing more. Nor for the only message when a
    result with words tells of no round: a hook of the user's has refused it, and it never comes back. One
    without words reports on background work of a killed turn, before the first message (all measured).
    """
    result = seen.result
    if result is None or seen.round_open:
        return False
    if result.is_error is not False or not (unread or seen.round_due):
        return True
    if result.rounds == 0 and result.text and len(unread) == 1 and not seen.round_due:
        return True
    return waited_seconds > grace_seconds
