"""The tools as Markdown, from what they tell their callers: descriptions, arguments and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hive_subagent_daemon import answer_schemas
from hive_subagent_daemon.tools import TOOLS, ToolBinding
from tests.docs.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]
SUBAGENT = answer_schemas.STATUS_ANSWER["properties"]["subagents"]["items"]
SHARED = (
    ("Subagent", {"description": "What is known of a subagent.", **SUBAGENT}),
    ("Outcome", answer_schemas.OUTCOME),
    ("Loose end", answer_schemas.LOOSE_END),
)
"""Objects that several answers hold, with a section of their own."""
BOUNDS = {
    "minLength": "at least {} character",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "pattern": "pattern `{}`",
}


def rendered() -> str:
    """Return a section for each tool, then one for each object that several answers hold."""
    parts = [_tool(binding) for binding in TOOLS]
    parts += [f"## {title}\n\n{schema['description']}\n\n{_answer(schema)}" for title, schema in SHARED]
    return "\n".join(parts)


def _tool(binding: ToolBinding[Any]) -> str:
    tool = binding.tool
    arguments = tool.input_schema
    required = arguments.get("required", [])
    rows = [
        (f"`{name}`", _type(schema), "required" if name in required else _default(schema), _meaning(schema))
        for name, schema in arguments["properties"].items()
    ]
    return "\n".join(
        [
            f"## {tool.name}\n",
            f"{tool.description}\n",
            f"*{_hints(binding)}*\n",
            table(("argument", "type", "", "meaning"), rows),
            table(("answer", "type", "meaning"), _fields(tool.output_schema or {})),
        ]
    )


def _hints(binding: ToolBinding[Any]) -> str:
    given = binding.tool.annotations
    assert given is not None
    hints = {
        "only reads": given.read_only_hint,
        "may destroy": given.destructive_hint,
        "may be repeated without harm": given.idempotent_hint,
        "reaches beyond this machine": given.open_world_hint,
    }
    return "Hints to clients: " + ", ".join(
        f"{words}: {'yes' if hint else 'no'}" for words, hint in hints.items()
    )


def _answer(schema: Schema) -> str:
    return table(("field", "type", "meaning"), _fields(schema))


def _fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield a row for each field, those of inner objects below it; one that may be absent says so."""
    for name, inner in schema.get("properties", {}).items():
        absent = "" if name in schema.get("required", ()) else "*Not always there.* "
        place = f"{prefix}{name}"
        yield f"`{place}`", _type(inner), f"{absent}{_meaning(inner)}"
        items = inner.get("items", inner)
        if _shared(items) is None:
            yield from _fields(items, f"{place}[]." if items is not inner else f"{place}.")


def _shared(schema: Schema) -> str | None:
    """Return a link to the section of an object that has one."""
    for title, known in SHARED:
        if schema.get("properties") == known["properties"]:
            return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    return None


def _type(schema: Schema) -> str:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(_kind(kind, schema) for kind in kinds)


def _kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"array of {_type(schema['items'])}"
    return (_shared(schema) or kind) if kind == "object" else kind


def _meaning(schema: Schema) -> str:
    words = [schema.get("description", "")]
    if "enum" in schema:
        values = ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
        words.append(f"One of {values}.")
    bounds = [text.format(schema[key]) for key, text in BOUNDS.items() if key in schema]
    if bounds:
        words.append(f"({', '.join(bounds)})")
    return " ".join(filter(None, words))


def _default(schema: Schema) -> str:
    default = schema.get("default")
    shown = str(default).lower() if isinstance(default, bool) else default
    return "optional" if default is None else f"default `{shown}`"
