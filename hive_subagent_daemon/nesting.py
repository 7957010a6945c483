"""The tools as a subagent sees them that may start subagents of its own: only its own, and not too deep.

It works for its parent, so it neither touches nor sees what others have started; loose ends of its subagents
stay visible to the parent too, should it end before it has closed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.values import Parentage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.registry import Registry
    from hive_subagent_daemon.subagents import Subagents
    from hive_subagent_daemon.turns import Turn
    from hive_subagent_daemon.values import Terms
    from hive_subagent_daemon.views import Json


class NestedSubagents:
    """The service for callers inside one running turn; the same verbs as `Subagents`."""

    def __init__(self, subagents: Subagents, registry: Registry, inbox: Inbox, *, turn: Turn) -> None:
        """Serve a turn that runs."""
        self._subagents = subagents
        self._registry = registry
        self._inbox = inbox
        self._turn = turn
        self._name = turn.record.name

    async def start(
        self,
        *,
        name: str,
        prompt_file: str,
        model: str | None,
        trigger: str | None,
        dir: str | None,
        terms: Terms,
    ) -> Json:
        """Start a subagent one level deeper; its name must not be in use by another parent."""
        self._check_not_of_others([name])
        return await self._subagents.start(
            name=name,
            prompt_file=prompt_file,
            model=model,
            trigger=trigger,
            dir=dir,
            terms=terms,
            parentage=self._parentage(),
        )

    async def continue_turn(
        self, *, name: str, prompt: str, model: str | None, dir: str | None, terms: Terms
    ) -> Json:
        """Give one of its own subagents another turn."""
        self._check_not_of_others([name])
        return await self._subagents.continue_turn(
            name=name, prompt=prompt, model=model, dir=dir, terms=terms, parentage=self._parentage()
        )

    async def interrupt(self, *, name: str, force: bool) -> Json:
        """Interrupt one of its own."""
        self._check_not_of_others([name])
        return await self._subagents.interrupt(name=name, force=force)

    async def steer(self, *, name: str, text: str) -> Json:
        """Hand a message to one of its own."""
        self._check_not_of_others([name])
        return await self._subagents.steer(name=name, text=text)

    async def status(self, name: str | None) -> Json:
        """Show its own."""
        self._check_not_of_others([] if name is None else [name])
        return await self._subagents.status(name, among=self._is_own)

    async def wait(self, *, names: list[str] | None, timeout_seconds: float) -> Json:
        """Wait for its own."""
        self._check_not_of_others(names or [])
        running = sorted(name for name in self._registry.running if self._is_own(name))
        if names is None and not running:
            return {"ended": [], "timed_out": False, "subagents": [], "more": 0}
        return await self._subagents.wait(names=names or running, timeout_seconds=timeout_seconds)

    async def get_loose_ends(self, *, name: str | None, ids: list[str] | None, limit: int) -> Json:
        """Read the loose ends of its own."""
        self._check_not_of_others([] if name is None else [name])
        return await self._subagents.get_loose_ends(name=name, ids=ids, limit=limit, among=self._is_own)

    async def close_loose_ends(self, ids: list[str]) -> Json:
        """Close loose ends of its own; those of others are unknown to it."""
        own = set(self._inbox.select(name=None, ids=ids, among=self._is_own))
        answer = await self._subagents.close_loose_ends([one for one in ids if one in own])
        return answer | {"unknown": [one for one in dict.fromkeys(ids) if one not in answer["closed"]]}

    def _parentage(self) -> Parentage:
        """Return that of what this turn starts; raises RefusedError where that would be too deep."""
        if self._registry.is_forced(self._turn):
            message = f"turn {self._turn.record.turn} is being killed: nothing is started for it any more."
            raise RefusedError(message)
        own = self._turn.record
        depth = own.parentage.depth + 1
        most = self._registry.limits.max_depth
        if depth > most:
            message = (
                f"max_depth is {most}, and this subagent is at depth {depth - 1}: do the work in this turn, "
                "or say in its final text what the parent should start."
            )
            raise RefusedError(message)
        return Parentage(self._name, own.turn, depth, (own.turn, *own.parentage.above))

    def _is_own(self, name: str) -> bool:
        """Tell whether a subagent was started by this one, or by one of those."""
        seen: set[str] = set()
        while name not in seen:
            seen.add(name)
            parent = self._registry.parent_of(name)
            if parent == self._name:
                return True
            if parent is None:
                return False
            name = parent
        return False

    def _check_not_of_others(self, names: Iterable[str]) -> None:
        for name in names:
            if self._registry.knows(name) and not self._is_own(name):
                message = f"{name!r} is not a subagent of yours, {self._name!r}: use another name."
                raise RefusedError(message)
