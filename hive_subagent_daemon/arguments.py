"""What each tool takes: strict models of the arguments, and refusals that a model can act on.

The lowlevel server of the SDK validates nothing, and pydantic's own messages carry input dumps and
addresses of web pages. So everything is checked here, and every refusal is one sentence of ours.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hive_subagent_daemon.argument_rules import (
    MAX_IDS,
    MAX_LIMIT,
    MAX_NAMES,
    MAX_WAIT_SECONDS,
    REFUSED,
    SHOWN_CHARACTERS,
    Dollars,
    Ids,
    Limit,
    Model,
    Name,
    Names,
    Path,
    Prompt,
    Rounds,
    Seconds,
    WaitSeconds,
    quoted,
)
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.values import MOST_ROUNDS, MOST_SECONDS, MOST_USD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

DEFAULT_LIMIT = 10

_DIR = "Working directory, absolute or relative to the configured one; it must exist, `~` is not expanded."
_MODEL = "Model for claude: an alias such as opus or sonnet, or a full name. Remembered for later turns."
_TIMEOUT = Field(
    None,
    description="Seconds that this turn may take; then it is interrupted. Omitted: the configured bound.",
)
_BUDGET = Field(
    None, description="US dollars that this turn may cost; then it fails. Omitted: the configured bound."
)
_TURNS = Field(
    None, description="Rounds that this turn may take; then it fails. Omitted: the configured bound."
)
_STEERABLE = Field(
    default=False,
    description="true: steer can hand it further messages while this turn runs. False is the sturdier way.",
)


class Arguments(BaseModel):
    """Base of all arguments: exact JSON types, nothing unknown."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class StartArguments(Arguments):
    """What `start` takes."""

    name: Name = Field(
        description="Name of the subagent: 1 to 63 characters of a-z, 0-9 and '-', not shaped like a UUID. "
        "Free again when its turn has ended."
    )
    prompt_file: Path = Field(
        description="Path of a readable file with the subagent's instructions, which are added to its system "
        "prompt now and in later turns. Absolute, or relative to `dir`; `~` is not expanded."
    )
    model: Model | None = Field(None, description=f'{_MODEL} Omitted or "": claude\'s default.')
    trigger: Prompt | None = Field(
        None,
        description="The first prompt. Omitted: one sentence that tells it to carry out its instructions. "
        "Pass one to use the same prompt file for different pieces of work.",
    )
    dir: Path | None = Field(None, description=f"{_DIR} Omitted: the configured one.")
    timeout_seconds: Seconds | None = _TIMEOUT
    max_budget_usd: Dollars | None = _BUDGET
    max_turns: Rounds | None = _TURNS
    steerable: bool = _STEERABLE


class ContinueArguments(Arguments):
    """What `continue` takes."""

    name: Name = Field(description="Name of a subagent that is not running.")
    prompt: Prompt = Field(
        description="What it is to do now. It remembers its session and knows nothing of your conversation."
    )
    model: Model | None = Field(
        None,
        description=f'{_MODEL} Omitted: the remembered one. "": claude\'s default, which also forgets it.',
    )
    dir: Path | None = Field(None, description=f"{_DIR} Normally omitted: that of its last turn.")
    timeout_seconds: Seconds | None = _TIMEOUT
    max_budget_usd: Dollars | None = _BUDGET
    max_turns: Rounds | None = _TURNS
    steerable: bool = _STEERABLE


class SteerArguments(Arguments):
    """What `steer` takes."""

    name: Name = Field(description="Name of a subagent whose running turn is steerable.")
    text: Prompt = Field(description="The message: what to do differently or also. It reads it as a prompt.")


class InterruptArguments(Arguments):
    """What `interrupt` takes."""

    name: Name = Field(description="Name of the running subagent.")
    force: bool = Field(
        default=False,
        description="false: ask claude to stop (SIGINT). true: kill it with all its processes (SIGKILL).",
    )


class StatusArguments(Arguments):
    """What `status` takes."""

    name: Name | None = Field(None, description="Name of one subagent. Omitted: all, running ones first.")


class WaitArguments(Arguments):
    """What `wait` takes."""

    names: Names | None = Field(
        None, description="Wait for the first of these to end. Omitted: for the first of all that run."
    )
    timeout_seconds: WaitSeconds = Field(
        MAX_WAIT_SECONDS, description="Answer after so many seconds even when none has ended."
    )


class GetLooseEndsArguments(Arguments):
    """What `get_loose_ends` takes."""

    name: Name | None = Field(None, description="Only those of this subagent.")
    ids: Ids | None = Field(
        None, description="Only these, each with up to 20,000 characters of its text instead of 4,000."
    )
    limit: Limit = Field(DEFAULT_LIMIT, description="At most so many, the oldest first.")


class CloseLooseEndsArguments(Arguments):
    """What `close_loose_ends` takes."""

    ids: Ids = Field(description="The `id` of each loose end that you have dealt with.")


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)

_EXPECTED = {
    "name": "a string of 1 to 63 characters of a-z, 0-9 and '-'",
    "limit": f"an integer from 1 to {MAX_LIMIT}",
    "timeout_seconds": f"a number of seconds above 0, up to {MOST_SECONDS}",
    "max_budget_usd": f"a number of US dollars above 0, up to {MOST_USD}",
    "max_turns": f"an integer from 1 to {MOST_ROUNDS}",
    "force": "true or false",
    "steerable": "true or false",
    "wait.timeout_seconds": f"a number of seconds from 0 to {MAX_WAIT_SECONDS}",
    "names": f"an array of 1 to {MAX_NAMES} strings",
    "ids": f"an array of 1 to {MAX_IDS} strings",
}
"""What is allowed, in words, by argument or by tool and argument; what is not listed is a string."""


def checked_arguments(
    model: type[ArgumentsT], arguments: Mapping[str, Any], *, tool: str, max_prompt_bytes: int
) -> ArgumentsT:
    """Return the arguments as a value, or refuse them with one sentence that names an argument."""
    for argument, value in arguments.items():
        if argument not in model.model_fields:
            raise RefusedError(_unknown(argument, tool=tool, allowed=list(model.model_fields)))
        if value is None:
            raise RefusedError(_null(argument, model, tool=tool))
    try:
        return model.model_validate(arguments, context={"max_prompt_bytes": max_prompt_bytes})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RefusedError(_sentence(first, tool=tool, model=model)) from None


def _unknown(argument: str, *, tool: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(argument[:SHOWN_CHARACTERS], allowed, n=1)
    advice = f"perhaps {near[0]!r} is meant" if near else "leave it out"
    return f"argument {quoted(argument)} is unknown to {tool}, {advice}: it takes only {', '.join(allowed)}."


def _null(argument: str, model: type[Arguments], *, tool: str) -> str:
    advice = "" if model.model_fields[argument].is_required() else ": leave it out for the default"
    return f"{_must_be((argument,), None, tool=tool)}{advice}."


def _must_be(place: tuple[int | str, ...], value: object, *, tool: str) -> str:
    field, *index = place
    where = f"{field}[{index[0]}]" if index else str(field)
    expected = _EXPECTED.get(f"{tool}.{field}") or _EXPECTED.get(str(field), "a string")
    expected = "a string" if index else expected
    return f"argument '{where}' must be {expected}, not {_shown(value)}"


def _shown(value: object) -> str:
    """Say what a JSON value is, never at length."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    # A JSON integer may have thousands of digits, which Python refuses to print.
    return "a huge number" if isinstance(value, int) and value.bit_length() > 64 else f"the number {value}"


def _sentence(problem: ErrorDetails, *, tool: str, model: type[Arguments]) -> str:
    """Translate one finding of pydantic's into a sentence of ours."""
    if problem["type"] == REFUSED:
        return str(problem["ctx"]["sentence"])
    if problem["type"] == "missing":
        required = [name for name, field in model.model_fields.items() if field.is_required()]
        return f"argument '{problem['loc'][0]}' is missing: {tool} needs {' and '.join(required)}."
    return f"{_must_be(problem['loc'], problem['input'], tool=tool)}."


def input_schema(model: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, without what says nothing to its reader.

    An optional argument may be left out but not be null, so that `model: null` is never mistaken for
    "the remembered one" when "claude's default" was meant.
    """
    schema = model.model_json_schema()
    properties = {name: _plain(described) for name, described in schema["properties"].items()}
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _plain(described: dict[str, Any]) -> dict[str, Any]:
    """Drop pydantic's titles, and the null that only stands for an argument left out."""
    merged = {**described.get("anyOf", [{}])[0], **described}
    superfluous = {"title", "anyOf"} | ({"default"} if merged.get("default", "") is None else set())
    return {key: value for key, value in sorted(merged.items()) if key not in superfluous}
