"""The bearer token: read from its file, compared in constant time, replaced when the file is read again."""

from __future__ import annotations

import hmac
import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.config_values import CREDENTIALS
from hive_subagent_daemon.token_files import TokenError, read_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_log = logging.getLogger(__name__)

SETTING: Final = "auth.token_file"
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH


class BearerToken:
    """The token that lets other peers in, or none; nothing ever shows it."""

    def __init__(self, file: Path | None, environ: Mapping[str, str] | None = None) -> None:
        """Remember the file, without reading it: until `read` has succeeded nothing matches."""
        self.file = file
        self._environ: Final = environ or {}
        self._token: bytes | None = None

    @property
    def configured(self) -> bool:
        """Whether there is a file, so that a peer may come with a token."""
        return self.file is not None

    def read(self) -> None:
        """Take over what the file holds now; on TokenError what was read before stays. Blocks."""
        self.take(self.file)

    def take(self, file: Path | None) -> None:
        """Take over this file and what it holds now, or no token; on TokenError all stays. Blocks."""
        if file is None:
            self.file, self._token = None, None
            return
        path = _place(file, self._environ)
        self._token = read_token(path, named_by=SETTING)
        self.file = file
        if (mode := path.stat().st_mode) & _OTHERS:
            _log.warning(
                "the token file %s can be read or written by others (mode %04o): chmod 600 it",
                path,
                stat.S_IMODE(mode),
            )

    def came_with(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Tell whether the one Authorization header of a request carries the token."""
        values = [value for name, value in headers if name == b"authorization"]
        if self._token is None or len(values) != 1:
            return False
        scheme, _, given = values[0].partition(b" ")
        same = hmac.compare_digest(given.strip(b" "), self._token)
        return scheme.lower() == b"bearer" and same


def _place(file: Path, environ: Mapping[str, str]) -> Path:
    """Return where the file is; a credential's folder is known only to the service that it is given to."""
    if file.parts[0] != CREDENTIALS:
        return file
    folder = environ.get(CREDENTIALS[1:])
    if not folder:
        message = (
            f"{file}: {CREDENTIALS} is not set, which systemd does for a service with LoadCredential=; "
            f"add that to the service, or name the file itself in {SETTING}."
        )
        raise TokenError(message)
    return Path(folder, *file.parts[1:])
