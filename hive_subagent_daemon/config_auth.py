"""The kinds of `[auth]`: the token's file and other users' uids."""

from __future__ import annotations

from pathlib import Path

from hive_subagent_daemon.config_checks import Kind, Places, must_be, nonempty_text, refusal, shown
from hive_subagent_daemon.config_kinds import path
from hive_subagent_daemon.config_values import CREDENTIALS

# The last one means "no uid" to the kernel.
_MAX_UID = 2**32 - 2


def token_file() -> Kind:
    """Return the kind of a token's file: a path, or one below `$CREDENTIALS_DIRECTORY`, kept as it stands.

    That folder is known to the running service alone, and `--check` has to work elsewhere too.
    """
    whole_path = path()
    allowed = f"a path, or {CREDENTIALS}/NAME"

    def _read(value: object, places: Places) -> Path:
        text = nonempty_text(value, allowed)
        if not text.startswith("$"):
            found: Path = whole_path.read(text, places)
            return found
        variable, _, name = text.partition("/")
        if variable != CREDENTIALS or name in {"", ".", ".."} or "/" in name:
            reason = f"{shown(text)}: of all variables only {CREDENTIALS}/NAME is known"
            raise refusal(reason)
        return Path(variable, name)

    return Kind(allowed, _read, str)


def uids() -> Kind:
    """Return the kind of lists of numeric user ids, each kept once."""
    allowed = f"a list of numeric uids, from 0 to {_MAX_UID}"

    def _read(value: object, _places: Places) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise must_be(value, allowed)
        for each in value:
            if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each <= _MAX_UID:
                reason = f"must be {allowed}; {shown(each)} is none"
                raise refusal(reason)
        return tuple(dict.fromkeys(value))

    return Kind(allowed, _read, list)
