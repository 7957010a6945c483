"""The file that holds a bearer token: one rule for the daemon, which asks for it, and for who brings it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.regular_files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

# 22 characters of base64 are 128 random bits; 16 of anything else are the least that nobody guesses.
MIN_CHARACTERS: Final = 16
MAX_CHARACTERS: Final = 4096
HOW_TO_MAKE_ONE: Final = "`openssl rand -hex 32` makes a good one"
# What an Authorization header can carry (RFC 6750, b64token).
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class TokenError(SubagentError):
    """A token file that cannot be used; the message names it and never shows what is in it."""


def read_token(path: Path, *, named_by: str) -> bytes:
    """Return the token in a file, or raise TokenError; `named_by` is the setting that names the file."""
    try:
        token = read_regular(path, MAX_CHARACTERS + 3).rstrip(b"\r\n")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"{path}: the token file cannot be read ({reason}); mend it, or change {named_by}."
        raise TokenError(message) from error
    if not MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS:
        message = (
            f"{path}: a token has {MIN_CHARACTERS} to {MAX_CHARACTERS} characters, in one line; "
            f"{HOW_TO_MAKE_ONE}."
        )
        raise TokenError(message)
    if not _TOKEN.fullmatch(token):
        message = (
            f"{path}: a token consists of letters, digits and -._~+/ in one line, because a header has to "
            f"carry it; {HOW_TO_MAKE_ONE}."
        )
        raise TokenError(message)
    return token
