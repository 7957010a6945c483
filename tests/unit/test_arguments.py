"""Arguments of the tools: what is refused, in which words, and what the schemas promise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hive_subagent_daemon.arguments import (
    Arguments,
    CloseLooseEndsArguments,
    ContinueArguments,
    GetLooseEndsArguments,
    InterruptArguments,
    StartArguments,
    StatusArguments,
    SteerArguments,
    WaitArguments,
    checked_arguments,
    input_schema,
)
from hive_subagent_daemon.errors import RefusedError
from tests.support.schema_values import fits

MODELS: dict[str, type[Arguments]] = {
    "start": StartArguments,
    "continue": ContinueArguments,
    "interrupt": InterruptArguments,
    "status": StatusArguments,
    "get_loose_ends": GetLooseEndsArguments,
    "close_loose_ends": CloseLooseEndsArguments,
    "wait": WaitArguments,
    "steer": SteerArguments,
}
VALID: dict[str, dict[str, Any]] = {
    "start": {"name": "a", "prompt_file": "p.md"},
    "continue": {"name": "a", "prompt": "go on"},
    "interrupt": {"name": "a"},
    "steer": {"name": "a", "text": "less"},
    "status": {},
    "get_loose_ends": {},
    "close_loose_ends": {"ids": ["x"]},
    "wait": {},
}
UUID = "0f0e0d0c-0b0a-0908-0706-050403020100"
LIMIT = 100


def check(tool: str, arguments: dict[str, Any]) -> Arguments:
    """Check the arguments of a tool under a small limit for prompts."""
    return checked_arguments(MODELS[tool], arguments, tool=tool, max_prompt_bytes=LIMIT)


def refusal(tool: str, changed: dict[str, Any]) -> str:
    """Return the sentence with which valid arguments, so changed, are refused."""
    with pytest.raises(RefusedError) as caught:
        check(tool, VALID[tool] | changed)
    return str(caught.value)


TERMS = "timeout_seconds, max_budget_usd, max_turns, steerable"
START_TAKES = f"it takes only name, prompt_file, model, trigger, dir, {TERMS}."
NAME = "argument 'name' must be a string of 1 to 63 characters of a-z, 0-9 and '-', not"


@pytest.mark.parametrize(
    ("tool", "changed", "sentence"),
    [
        (
            "start",
            {"prompt": "x"},
            f"'prompt' is unknown to start, perhaps 'prompt_file' is meant: {START_TAKES}",
        ),
        ("start", {"modle": "x"}, f"'modle' is unknown to start, perhaps 'model' is meant: {START_TAKES}"),
        ("start", {"zzzz": 1}, f"argument 'zzzz' is unknown to start, leave it out: {START_TAKES}"),
        ("start", {"\ud800\n": 1}, "argument '\\ud800\\n' is unknown to start"),
        ("start", {"x" * 500: 1}, f"argument '{'x' * 60}…' is unknown to start"),
        ("start", {"steerable": "yes"}, "argument 'steerable' must be true or false, not"),
        ("steer", {"text": " \n"}, "'text' is empty or only white space: say what to do."),
        ("start", {"name": 7}, f"{NAME} the number 7."),
        ("start", {"name": None}, f"{NAME} null."),
        ("start", {"name": ["a"]}, f"{NAME} an array of 1."),
        ("start", {"name": {}}, f"{NAME} an object."),
        ("start", {"name": ""}, "name '' is not valid"),
        ("start", {"name": "a\n"}, "name 'a\\n' is not valid"),
        ("start", {"name": "A"}, "name 'A' is not valid"),
        ("start", {"name": "é"}, "name 'é' is not valid"),
        ("start", {"name": "../x"}, "name '../x' is not valid"),
        ("start", {"name": "--model=x"}, "name '--model=x' is not valid"),
        ("start", {"name": "a" * 300}, f"name '{'a' * 80}…' is not valid"),
        ("start", {"name": "\ud800"}, "name '\\ud800' is not valid"),
        ("start", {"prompt_file": 1.5}, "argument 'prompt_file' must be a string, not the number 1.5."),
        ("start", {"prompt_file": ""}, "argument 'prompt_file' is empty: pass the path of a file."),
        ("start", {"prompt_file": "a\0b"}, "argument 'prompt_file' holds a NUL character"),
        (
            "start",
            {"prompt_file": "x/" * 3000},
            "argument 'prompt_file' has 6000 bytes, and Linux allows 4095",
        ),
        ("start", {"prompt_file": "\udc80"}, "argument 'prompt_file' is not valid Unicode"),
        ("start", {"dir": ""}, "argument 'dir' is empty: leave it out for the default."),
        ("start", {"dir": "/\0"}, "argument 'dir' holds a NUL character"),
        ("start", {"dir": None}, "argument 'dir' must be a string, not null: leave it out for the default."),
        ("start", {"model": "a b"}, "argument 'model' is 'a b', with white space or a control character"),
        ("start", {"model": "a\0"}, "argument 'model' is 'a\\x00', with white space or a control character"),
        ("start", {"model": "m" * 201}, "argument 'model' has 201 characters"),
        ("start", {"model": "\ud800"}, "argument 'model' is not valid Unicode"),
        ("start", {"trigger": ""}, "argument 'trigger' is empty or only white space: leave it out"),
        ("start", {"trigger": " \n\ufeff\u3000"}, "argument 'trigger' is empty or only white space"),
        (
            "start",
            {"trigger": "x" * 101},
            "argument 'trigger' has 101 bytes, more than the limit of 100: write",
        ),
        ("continue", {"prompt": ""}, "argument 'prompt' is empty or only white space: say what to do."),
        (
            "continue",
            {"prompt": "ä" * 51},
            "argument 'prompt' has 102 bytes, more than the limit of 100: write",
        ),
        ("continue", {"prompt": "x\ud800"}, "argument 'prompt' is not valid Unicode"),
        ("continue", {"prompt": True}, "argument 'prompt' must be a string, not true."),
        ("interrupt", {"force": "yes"}, "argument 'force' must be true or false, not the string 'yes'."),
        ("interrupt", {"force": 1}, "argument 'force' must be true or false, not the number 1."),
        (
            "get_loose_ends",
            {"limit": "7"},
            "argument 'limit' must be an integer from 1 to 100, not the string '7'.",
        ),
        ("get_loose_ends", {"limit": True}, "argument 'limit' must be an integer from 1 to 100, not true."),
        (
            "get_loose_ends",
            {"limit": 3.0},
            "argument 'limit' must be an integer from 1 to 100, not the number 3.0.",
        ),
        (
            "get_loose_ends",
            {"limit": 0},
            "argument 'limit' must be an integer from 1 to 100, not the number 0.",
        ),
        (
            "get_loose_ends",
            {"limit": 101},
            "argument 'limit' must be an integer from 1 to 100, not the number 101.",
        ),
        (
            "get_loose_ends",
            {"limit": 10**6000},
            "argument 'limit' must be an integer from 1 to 100, not a huge number",
        ),
        (
            "get_loose_ends",
            {"ids": "a"},
            "argument 'ids' must be an array of 1 to 100 strings, not the string 'a'.",
        ),
        (
            "get_loose_ends",
            {"ids": []},
            "argument 'ids' must be an array of 1 to 100 strings, not an array of 0.",
        ),
        (
            "close_loose_ends",
            {"ids": ["x"] * 101},
            "'ids' must be an array of 1 to 100 strings, not an array of 101.",
        ),
        ("start", {"timeout_seconds": 0}, "'timeout_seconds' must be a number of seconds above 0, up to"),
        ("start", {"timeout_seconds": True}, "above 0, up to 31536000, not true."),
        (
            "continue",
            {"max_budget_usd": -1},
            "a number of US dollars above 0, up to 1000000, not the number",
        ),
        (
            "continue",
            {"max_turns": 1.5},
            "must be an integer from 1 to 1000000, not the number 1.5.",
        ),
        ("wait", {"timeout_seconds": 241}, "must be a number of seconds from 0 to 240, not the number 241."),
        ("wait", {"names": []}, "'names' must be an array of 1 to 100 strings, not an array of 0."),
        ("wait", {"names": ["a", 3]}, "argument 'names[1]' must be a string, not the number 3."),
        ("wait", {"names": ["A"]}, "name 'A'"),
        ("close_loose_ends", {"ids": ["x", 3]}, "argument 'ids[1]' must be a string, not the number 3."),
        ("close_loose_ends", {"ids": ["x", None]}, "argument 'ids[1]' must be a string, not null."),
        ("close_loose_ends", {"ids": ["x" * 201]}, "argument 'ids' holds an id of 201 characters"),
        ("close_loose_ends", {"ids": [""]}, "argument 'ids' holds an id of 0 characters"),
        ("close_loose_ends", {"ids": ["\ud800"]}, "argument 'ids' is not valid Unicode"),
    ],
)
def test_a_bad_argument_is_refused_by_its_name(tool: str, changed: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(tool, changed)


@pytest.mark.parametrize("tool", [tool for tool in MODELS if "name" in MODELS[tool].model_fields])
def test_a_name_shaped_like_a_uuid_is_refused_by_every_tool(tool: str) -> None:
    assert "looks like a UUID" in refusal(tool, {"name": UUID})


@pytest.mark.parametrize(
    ("tool", "missing", "sentence"),
    [
        ("start", "name", "argument 'name' is missing: start needs name and prompt_file."),
        ("start", "prompt_file", "argument 'prompt_file' is missing: start needs name and prompt_file."),
        ("continue", "prompt", "argument 'prompt' is missing: continue needs name and prompt."),
        ("interrupt", "name", "argument 'name' is missing: interrupt needs name."),
        ("close_loose_ends", "ids", "argument 'ids' is missing: close_loose_ends needs ids."),
    ],
)
def test_a_missing_argument_is_named_with_what_else_is_needed(tool: str, missing: str, sentence: str) -> None:
    rest = {name: value for name, value in VALID[tool].items() if name != missing}
    with pytest.raises(RefusedError) as caught:
        check(tool, rest)
    assert str(caught.value) == sentence


def test_an_unknown_argument_is_reported_before_the_one_that_is_missing_for_it() -> None:
    with pytest.raises(RefusedError, match="'nam' is unknown to interrupt, perhaps 'name' is meant"):
        check("interrupt", {"nam": "a"})


@pytest.mark.parametrize("name", ["-p", "a", "0", "a" * 63, "-", "a-b-c"])
def test_a_name_may_begin_with_a_dash_and_have_63_characters(name: str) -> None:
    assert check("status", {"name": name}) == StatusArguments(name=name)


def test_an_empty_model_passes_because_it_means_the_default_of_claude() -> None:
    assert check("start", VALID["start"] | {"model": ""}).model_dump()["model"] == ""


def test_a_prompt_at_the_limit_passes() -> None:
    assert check("continue", {"name": "a", "prompt": "ä" * 50}).model_dump()["prompt"] == "ä" * 50


def test_left_out_arguments_have_the_defaults_of_the_contract() -> None:
    assert check("get_loose_ends", {}) == GetLooseEndsArguments(name=None, ids=None, limit=10)
    assert check("interrupt", {"name": "a"}) == InterruptArguments(name="a", force=False)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
LIKELY_KEYS = st.sampled_from(
    ["name", "prompt_file", "prompt", "model", "trigger", "dir", "force", "ids", "limit"]
)
ARGUMENTS = st.dictionaries(LIKELY_KEYS | st.text(max_size=8), JSON_VALUES, max_size=5)


@given(tool=st.sampled_from(sorted(MODELS)), changed=ARGUMENTS)
@example(tool="start", changed={"name": "\ud800"})
def test_any_arguments_are_taken_as_they_are_or_refused_in_one_short_sentence(
    tool: str, changed: dict[str, Any]
) -> None:
    arguments = VALID[tool] | changed
    try:
        taken = check(tool, arguments)
    except RefusedError as refused:
        sentence = str(refused)
        assert len(sentence) < 400
        assert sentence.isprintable()
        assert sentence.endswith(".")
        assert "pydantic" not in sentence
    else:
        assert taken.model_dump(exclude_unset=True) == arguments


@given(tool=st.sampled_from(sorted(MODELS)), changed=ARGUMENTS)
def test_what_a_schema_forbids_is_refused(tool: str, changed: dict[str, Any]) -> None:
    arguments = VALID[tool] | changed
    if not fits(arguments, input_schema(MODELS[tool])):
        with pytest.raises(RefusedError):
            check(tool, arguments)


@pytest.mark.parametrize("tool", sorted(MODELS))
def test_a_schema_describes_each_argument_and_admits_no_other(tool: str) -> None:
    schema = input_schema(MODELS[tool])
    assert fits(VALID[tool], schema)
    assert schema["additionalProperties"] is False
    assert set(schema) <= {"type", "properties", "required", "additionalProperties"}
    for argument in schema["properties"].values():
        assert len(argument["description"]) > 10
        assert isinstance(argument["type"], str)
    assert "null" not in json.dumps(schema)
