"""JSON Schemas in tests: does a value fit, and every value that fits as a hypothesis strategy."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it comes with the SDK and has no types
from hypothesis import strategies as st

TEXT = st.text(max_size=30)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "integer": st.integers(min_value=-(2**63), max_value=2**63),
    "number": st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)
    | st.integers(0, 9),
    "boolean": st.booleans(),
    "null": st.none(),
}


def fits(value: object, schema: dict[str, Any]) -> bool:
    """Tell whether a value fits a schema; a schema that is none is an error."""
    jsonschema.Draft202012Validator.check_schema(schema)
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a schema allows, as far as ours go."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_of_kind(kind, schema) for kind in kinds])


def _of_kind(kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    if kind == "object":
        properties = {name: values_of(inner) for name, inner in schema["properties"].items()}
        required = {name: properties.pop(name) for name in schema["required"]}
        return st.fixed_dictionaries(required, optional=properties)
    return PLAIN[kind]
