"""The rules for single arguments, as types that pydantic checks.

A rule is a function that says what is wrong with a value and what to do, or None; the sentence that the
parent reads begins with the name of the argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, NoReturn

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.names import NAME_PATTERN, checked_name
from hive_subagent_daemon.values import MOST_ROUNDS, MOST_SECONDS, MOST_USD

MAX_PATH_BYTES = 4095
"""PATH_MAX of Linux without the final NUL: a longer path cannot be opened."""
MAX_MODEL_CHARACTERS = 200
MAX_ID_CHARACTERS = 200
MAX_IDS = 100
MAX_LIMIT = 100
MAX_NAMES = 100
MAX_WAIT_SECONDS = 240
"""claude gives up on a call over HTTP that has been silent for 300 s (measured, 2.1.197)."""
SHOWN_CHARACTERS = 60
REFUSED: Final = "refused"
"""The type of pydantic's error whose message is a sentence of ours."""

_BLANK = re.compile(r"[\s\ufeff]*")
"""A byte order mark is white space where claude trims a prompt, which would then be empty."""
_NOT_IN_A_MODEL = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

Rule = Callable[[str, ValidationInfo], str | None]


def quoted(text: str) -> str:
    """Return the text in quotes, on one line and not longer than a sentence bears."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")


def _refuse(sentence: str) -> NoReturn:
    """Make pydantic collect a sentence of ours, marked by the type of the error."""
    raise PydanticCustomError(REFUSED, "{sentence}", {"sentence": sentence})


def _name_rule(name: str) -> str:
    """Apply the one rule for names, in the words of names.py."""
    try:
        return checked_name(name)
    except RefusedError as refusal:
        _refuse(str(refusal))


def _checked_by(rule: Rule) -> AfterValidator:
    """Return the validator for a rule; text that is not Unicode meets no rule at all."""

    def check(text: str, info: ValidationInfo) -> str:
        if _SURROGATE.search(text):
            # Half of a surrogate pair can be written neither to a file nor to a path.
            complaint = "is not valid Unicode (it holds half of a surrogate pair): send well-formed text"
        else:
            complaint = rule(text, info) or ""
        if complaint:
            _refuse(f"argument '{info.field_name}' {complaint}.")
        return text

    return AfterValidator(check)


def _path_rule(path: str, info: ValidationInfo) -> str | None:
    """Refuse what the operating system could not open, whatever is on disk."""
    if not path:
        advice = "leave it out for the default" if info.field_name == "dir" else "pass the path of a file"
        return f"is empty: {advice}"
    if "\0" in path:
        return "holds a NUL character, which no path can have: remove it"
    size = len(path.encode())
    if size > MAX_PATH_BYTES:
        return f"has {size} bytes, and Linux allows {MAX_PATH_BYTES} in a path: pass a shorter one"
    return None


def _model_rule(model: str, _info: ValidationInfo) -> str | None:
    """Refuse what can be no model; which models exist is claude's business."""
    if len(model) > MAX_MODEL_CHARACTERS:
        return f"has {len(model)} characters: use the name of a model, up to {MAX_MODEL_CHARACTERS}"
    if _NOT_IN_A_MODEL.search(model):
        return f"is {quoted(model)}, with white space or a control character: use the name of a model"
    return None


def _prompt_rule(prompt: str, info: ValidationInfo) -> str | None:
    """Refuse a prompt that claude would not take: blank, or larger than its stdin limit."""
    if _BLANK.fullmatch(prompt):
        advice = "leave it out for the default prompt" if info.field_name == "trigger" else "say what to do"
        return f"is empty or only white space: {advice}"
    size, limit = len(prompt.encode()), (info.context or {})["max_prompt_bytes"]
    if size > limit:
        advice = "write the material to a file and name that file in the prompt"
        return f"has {size} bytes, more than the limit of {limit}: {advice}"
    return None


def _id_rule(loose_end_id: str, _info: ValidationInfo) -> str | None:
    """Refuse what no loose end can have as its id."""
    size = len(loose_end_id)
    if not 1 <= size <= MAX_ID_CHARACTERS:
        return f"holds an id of {size} characters: pass ids as get_loose_ends gives them"
    return None


Name = Annotated[
    str,
    AfterValidator(_name_rule),
    Field(json_schema_extra={"pattern": f"^{NAME_PATTERN}$", "maxLength": 63}),
]
Path = Annotated[str, _checked_by(_path_rule), Field(json_schema_extra={"minLength": 1})]
Model = Annotated[str, _checked_by(_model_rule), Field(json_schema_extra={"maxLength": MAX_MODEL_CHARACTERS})]
Prompt = Annotated[str, _checked_by(_prompt_rule), Field(json_schema_extra={"minLength": 1})]
LooseEndId = Annotated[
    str,
    _checked_by(_id_rule),
    Field(json_schema_extra={"minLength": 1, "maxLength": MAX_ID_CHARACTERS}),
]
Ids = Annotated[list[LooseEndId], Field(min_length=1, max_length=MAX_IDS)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Names = Annotated[list[Name], Field(min_length=1, max_length=MAX_NAMES)]
WaitSeconds = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Dollars = Annotated[float, Field(gt=0, le=MOST_USD)]
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
