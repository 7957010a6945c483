"""What SIGHUP changes: the configuration is read again, and what can change under turns is taken over.

Everything else is named and waits for a restart. What cannot be used is reported, and the old values stay.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import log
from hive_subagent_daemon.config import changed_keys
from hive_subagent_daemon.errors import ConfigError
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.token_files import TokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hive_subagent_daemon.access import AllowedUids
    from hive_subagent_daemon.config_values import Auth, Config, Limits
    from hive_subagent_daemon.tokens import BearerToken

_log = logging.getLogger(__name__)

TAKEN_OVER: Final = ("log_level", "idle_exit_seconds", "limits.", "retention.", "auth.")


class Reloading:
    """The configuration in effect, and how a changed file comes into effect. Use from the event loop only."""

    def __init__(
        self,
        config: Config,
        *,
        load: Callable[[], Config],
        set_limits: Callable[[Limits], None],
        set_idle_exit: Callable[[float], None],
        token: BearerToken,
        allowed: AllowedUids,
        reachable: Sequence[str],
    ) -> None:
        """Begin with the configuration of the start; `reachable` are our addresses beyond this machine."""
        self._at_start: Final = config
        self._load: Final = load
        self._set_limits: Final = set_limits
        self._set_idle_exit: Final = set_idle_exit
        self._token: Final = token
        self._allowed: Final = allowed
        self._reachable: Final = reachable
        self._one_at_a_time: Final = anyio.Lock()
        self._trouble: tuple[str, ...] = ()
        self.retention = config.retention
        self.changed = anyio.Event()

    def trouble(self) -> tuple[str, ...]:
        """Say what of the configuration's files is not in effect, and why."""
        return self._trouble

    async def again(self) -> None:
        """Take over what the files say now; whatever is wrong with them, what was in effect stays."""
        async with self._one_at_a_time:
            try:
                now = await in_thread(self._load)
            except ConfigError as error:
                self._trouble = (f"the configuration was not read again, the old one stays: {error}",)
                _log.error("%s", self._trouble[0])
                # The token is a file of its own, and may have been replaced for a reason that cannot wait.
                await self._take_token(self._token.file)
                return
            self._trouble = ()
            log.set_up(now.log_level, agent=self._at_start.agent)
            self._set_limits(now.limits)
            self._set_idle_exit(now.idle_exit_seconds)
            self.retention = now.retention
            await self._take_auth(now.auth)
            self.changed.set()
            self.changed = anyio.Event()
            self._tell(now)

    async def _take_auth(self, auth: Auth) -> None:
        """Let in whom the configuration names now, and nobody else any more."""
        if auth.allow_uids != self._allowed.uids:
            self._allowed.uids = auth.allow_uids
            uids = ", ".join(["0", str(os.geteuid()), *map(str, auth.allow_uids)])
            _log.info("uids that need no token from now on: %s", uids)
        if auth.token_file is None and self._token.configured and self._reachable:
            self._add_trouble(
                "auth.token_file was taken out of the configuration, but other machines can reach "
                f"{', '.join(self._reachable)}: the old token stays until a restart",
            )
            return
        await self._take_token(auth.token_file)

    async def _take_token(self, file: Path | None) -> None:
        before = self._token.configured
        try:
            await in_thread(self._token.take, file)
        except TokenError as error:
            self._add_trouble(f"the token file was not read again, the old token stays: {error}")
            return
        if file is not None:
            _log.info("the token file was read again")
        elif before:
            _log.info("there is no token any more")

    def _tell(self, now: Config) -> None:
        _log.info("retention, auth, log level, idle_exit_seconds and limits were read again")
        others = [name for name in changed_keys(self._at_start, now) if not name.startswith(TAKEN_OVER)]
        if others:
            told = f"changed in the configuration, but only a restart takes it up: {', '.join(others)}"
            self._trouble += (told,)
            _log.warning("%s", told)

    def _add_trouble(self, text: str) -> None:
        self._trouble += (text,)
        _log.error("%s", text)
