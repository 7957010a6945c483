"""Wall-clock times as text, and turn ids that sort by time."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

_TURN_ID = re.compile(r"[0-8][0-9]{7}_[0-9]{6}_[0-9]{3}_[0-9a-f]{4}")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def now() -> datetime:
    """Return the wall-clock time in UTC."""
    return datetime.now(UTC)


def as_text(moment: datetime) -> str:
    """Render a time as ISO 8601 in UTC with milliseconds, `2026-01-31T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_text(text: str) -> datetime:
    """Read what `as_text` wrote."""
    return datetime.fromisoformat(text)


def lasting(seconds: float) -> str:
    """Return a length of time in the two largest units that matter."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def new_turn_id(moment: datetime, after: str | None) -> str:
    """Return a turn id that sorts after the given one, even when the wall clock was set back.

    24 characters of `[0-9a-z_]`: no dash, because dashes nest systemd slices.
    """
    stamp = moment.strftime("%Y%m%d_%H%M%S_") + f"{moment.microsecond // 1000:03d}"
    if after is not None and stamp <= after[: len(stamp)]:
        stamp = _next_stamp(after[: len(stamp)])
    return f"{stamp}_{secrets.token_hex(2)}"


def is_turn_id(text: str) -> bool:
    """Tell whether this could be the id of a turn of ours."""
    return _TURN_ID.fullmatch(text) is not None


def turn_time(turn: str) -> datetime:
    """Return about when a turn with this id was begun; now for an id that is none of ours."""
    try:
        return datetime.strptime(turn[:15], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return now()


def _next_stamp(stamp: str) -> str:
    """Return the following stamp, counting on in its digits; the date in it may then not exist."""
    digits = str(int(stamp.replace("_", "")) + 1).zfill(17)
    return f"{digits[:8]}_{digits[8:14]}_{digits[14:]}"
