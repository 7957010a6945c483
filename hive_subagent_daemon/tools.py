"""The eight tools: what clients are told about each, what it takes, and what it calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

import mcp_types as types

from hive_subagent_daemon import answer_schemas, answers, tool_texts
from hive_subagent_daemon.arguments import (
    ArgumentsT,
    CloseLooseEndsArguments,
    ContinueArguments,
    GetLooseEndsArguments,
    InterruptArguments,
    StartArguments,
    StatusArguments,
    SteerArguments,
    WaitArguments,
    input_schema,
)
from hive_subagent_daemon.values import Bounds, Terms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Answer = dict[str, Any]


class Subagents(Protocol):
    """What the tools call: each verb returns its answer in the shape of answer_schemas.py.

    A refusal is a RefusedError; then nothing was spawned or changed.
    """

    async def start(
        self,
        *,
        name: str,
        prompt_file: str,
        model: str | None,
        trigger: str | None,
        dir: str | None,
        terms: Terms,
    ) -> Answer:
        """Start a fresh subagent; return when its process is confirmed running."""

    async def continue_turn(
        self,
        *,
        name: str,
        prompt: str,
        model: str | None,
        dir: str | None,
        terms: Terms,
    ) -> Answer:
        """Give a subagent a new turn; return when its process is confirmed running."""

    async def interrupt(self, *, name: str, force: bool) -> Answer:
        """Signal the running turn of a subagent."""

    async def steer(self, *, name: str, text: str) -> Answer:
        """Hand a message to the running turn of a subagent."""

    async def status(self, name: str | None) -> Answer:
        """Show one subagent, or all."""

    async def wait(self, *, names: list[str] | None, timeout_seconds: float) -> Answer:
        """Wait until one of these turns has ended, or the time is over."""

    async def get_loose_ends(self, *, name: str | None, ids: list[str] | None, limit: int) -> Answer:
        """Read open loose ends, the oldest first."""

    async def close_loose_ends(self, ids: list[str]) -> Answer:
        """Close loose ends, also those that are closed already."""


@dataclass(frozen=True, kw_only=True)
class ToolBinding(Generic[ArgumentsT]):
    """One tool: its public definition, the model of its arguments, its verb and its text for people."""

    tool: types.Tool
    arguments: type[ArgumentsT]
    call: Callable[[Subagents, ArgumentsT], Awaitable[Answer]]
    text: Callable[[Answer], str]


def _starts(title: str) -> types.ToolAnnotations:
    """Describe a tool after which a process with full permissions works, which may do anything."""
    return types.ToolAnnotations(
        title=title, read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
    )


def _reads(title: str) -> types.ToolAnnotations:
    """Describe a tool that changes nothing."""
    return types.ToolAnnotations(
        title=title, read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )


def _call_start(subagents: Subagents, given: StartArguments) -> Awaitable[Answer]:
    return subagents.start(
        name=given.name,
        prompt_file=given.prompt_file,
        model=given.model,
        trigger=given.trigger,
        dir=given.dir,
        terms=_terms(given),
    )


def _call_continue(subagents: Subagents, given: ContinueArguments) -> Awaitable[Answer]:
    return subagents.continue_turn(
        name=given.name, prompt=given.prompt, model=given.model, dir=given.dir, terms=_terms(given)
    )


def _terms(given: StartArguments | ContinueArguments) -> Terms:
    return Terms(Bounds(given.timeout_seconds, given.max_budget_usd, given.max_turns), given.steerable)


def _call_interrupt(subagents: Subagents, given: InterruptArguments) -> Awaitable[Answer]:
    return subagents.interrupt(name=given.name, force=given.force)


def _call_steer(subagents: Subagents, given: SteerArguments) -> Awaitable[Answer]:
    return subagents.steer(name=given.name, text=given.text)


def _call_status(subagents: Subagents, given: StatusArguments) -> Awaitable[Answer]:
    return subagents.status(given.name)


def _call_wait(subagents: Subagents, given: WaitArguments) -> Awaitable[Answer]:
    return subagents.wait(names=given.names, timeout_seconds=given.timeout_seconds)


def _call_get(subagents: Subagents, given: GetLooseEndsArguments) -> Awaitable[Answer]:
    return subagents.get_loose_ends(name=given.name, ids=given.ids, limit=given.limit)


def _call_close(subagents: Subagents, given: CloseLooseEndsArguments) -> Awaitable[Answer]:
    return subagents.close_loose_ends(given.ids)


START = ToolBinding(
    tool=types.Tool(
        name="start",
        title="Start a subagent",
        description=tool_texts.START,
        annotations=_starts("Start a subagent"),
        input_schema=input_schema(StartArguments),
        output_schema=answer_schemas.START_ANSWER,
    ),
    arguments=StartArguments,
    call=_call_start,
    text=answers.started,
)

CONTINUE = ToolBinding(
    tool=types.Tool(
        name="continue",
        title="Continue a subagent",
        description=tool_texts.CONTINUE,
        annotations=_starts("Continue a subagent"),
        input_schema=input_schema(ContinueArguments),
        output_schema=answer_schemas.CONTINUE_ANSWER,
    ),
    arguments=ContinueArguments,
    call=_call_continue,
    text=answers.continued,
)

INTERRUPT = ToolBinding(
    tool=types.Tool(
        name="interrupt",
        title="Interrupt a subagent",
        description=tool_texts.INTERRUPT,
        annotations=types.ToolAnnotations(
            title="Interrupt a subagent",
            read_only_hint=False,
            destructive_hint=True,
            idempotent_hint=False,
            open_world_hint=False,
        ),
        input_schema=input_schema(InterruptArguments),
        output_schema=answer_schemas.INTERRUPT_ANSWER,
    ),
    arguments=InterruptArguments,
    call=_call_interrupt,
    text=answers.interrupted,
)

STATUS = ToolBinding(
    tool=types.Tool(
        name="status",
        title="Status of subagents",
        description=tool_texts.STATUS,
        annotations=_reads("Status of subagents"),
        input_schema=input_schema(StatusArguments),
        output_schema=answer_schemas.STATUS_ANSWER,
    ),
    arguments=StatusArguments,
    call=_call_status,
    text=answers.status_shown,
)

WAIT = ToolBinding(
    tool=types.Tool(
        name="wait",
        title="Wait for subagents",
        description=tool_texts.WAIT,
        annotations=_reads("Wait for subagents"),
        input_schema=input_schema(WaitArguments),
        output_schema=answer_schemas.WAIT_ANSWER,
    ),
    arguments=WaitArguments,
    call=_call_wait,
    text=answers.waited,
)

GET_LOOSE_ENDS = ToolBinding(
    tool=types.Tool(
        name="get_loose_ends",
        title="Read loose ends",
        description=tool_texts.GET_LOOSE_ENDS,
        annotations=_reads("Read loose ends"),
        input_schema=input_schema(GetLooseEndsArguments),
        output_schema=answer_schemas.LOOSE_ENDS_ANSWER,
    ),
    arguments=GetLooseEndsArguments,
    call=_call_get,
    text=answers.loose_ends_shown,
)

CLOSE_LOOSE_ENDS = ToolBinding(
    tool=types.Tool(
        name="close_loose_ends",
        title="Close loose ends",
        description=tool_texts.CLOSE_LOOSE_ENDS,
        annotations=types.ToolAnnotations(
            title="Close loose ends",
            read_only_hint=False,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        input_schema=input_schema(CloseLooseEndsArguments),
        output_schema=answer_schemas.CLOSE_ANSWER,
    ),
    arguments=CloseLooseEndsArguments,
    call=_call_close,
    text=answers.closed,
)

STEER = ToolBinding(
    tool=types.Tool(
        name="steer",
        title="Steer a subagent",
        description=tool_texts.STEER,
        annotations=_starts("Steer a subagent"),
        input_schema=input_schema(SteerArguments),
        output_schema=answer_schemas.STEER_ANSWER,
    ),
    arguments=SteerArguments,
    call=_call_steer,
    text=answers.steered,
)

TOOLS: tuple[ToolBinding[Any], ...] = (
    START,
    CONTINUE,
    INTERRUPT,
    STATUS,
    GET_LOOSE_ENDS,
    CLOSE_LOOSE_ENDS,
    WAIT,
    STEER,
)
"""In the order in which clients see them, which never changes."""
