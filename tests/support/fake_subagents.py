"""A service behind the tools that only remembers how it was called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.sample_answers import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]


@dataclass(frozen=True)
class FakeSubagents:
    """Answers each tool with a sample, or with what a test has put in its place: an error or a function."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: dict[str, Answer | BaseException | Callable[..., Answer]] = field(
        default_factory=lambda: dict(ANSWERS)
    )

    def _answer(self, tool: str, **arguments: object) -> Answer:
        self.calls.append((tool, arguments))
        answer = self.answers[tool]
        if isinstance(answer, BaseException):
            raise answer
        return answer(**arguments) if callable(answer) else answer

    async def start(self, **arguments: object) -> Answer:
        """Remember a start."""
        return self._answer("start", **arguments)

    async def continue_turn(self, **arguments: object) -> Answer:
        """Remember a continue."""
        return self._answer("continue", **arguments)

    async def interrupt(self, *, name: str, force: bool) -> Answer:
        """Remember an interrupt."""
        return self._answer("interrupt", name=name, force=force)

    async def steer(self, *, name: str, text: str) -> Answer:
        """Remember a message."""
        return self._answer("steer", name=name, text=text)

    async def status(self, name: str | None) -> Answer:
        """Remember a status."""
        return self._answer("status", name=name)

    async def wait(self, *, names: list[str] | None, timeout_seconds: float) -> Answer:
        """Remember a wait."""
        return self._answer("wait", names=names, timeout_seconds=timeout_seconds)

    async def get_loose_ends(self, *, name: str | None, ids: list[str] | None, limit: int) -> Answer:
        """Remember a reading."""
        return self._answer("get_loose_ends", name=name, ids=ids, limit=limit)

    async def close_loose_ends(self, ids: list[str]) -> Answer:
        """Remember a closing."""
        return self._answer("close_loose_ends", ids=ids)
