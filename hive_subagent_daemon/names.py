"""What may be the name of a subagent."""

from __future__ import annotations

import re

from hive_subagent_daemon.errors import RefusedError

NAME_PATTERN = r"[a-z0-9-]{1,63}"
_NAME = re.compile(NAME_PATTERN)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_name(text: str) -> bool:
    """Tell whether this is a valid name, without the words of a refusal."""
    return _NAME.fullmatch(text) is not None and _UUID.fullmatch(text) is None


def any_name(_name: str) -> bool:
    """Choose every name."""
    return True


def checked_name(name: str) -> str:
    """Return the name, or refuse it.

    A name shaped like a UUID is refused because claude takes such a value of `--resume` for a session id
    and never looks for it among the titles (measured, claude 2.1.197).
    """
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        message = f"name {shown!r} is not valid: use 1 to 63 characters of a-z, 0-9 and '-'."
        raise RefusedError(message)
    if _UUID.fullmatch(name):
        message = f"name {name!r} looks like a UUID, which claude cannot find by title: choose another name."
        raise RefusedError(message)
    return name
