"""The MCP server `subagent`: the tools over one service, in both eras of the protocol.

Each call is checked before the service sees it, and each refusal is a tool result that a model can read;
only an unknown tool is an error of the protocol, as its specification says.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from starlette.requests import HTTPConnection

from hive_subagent_daemon.access import TURN_KEY
from hive_subagent_daemon.argument_rules import quoted
from hive_subagent_daemon.arguments import checked_arguments
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.tool_texts import INSTRUCTIONS
from hive_subagent_daemon.tools import TOOLS, Answer, Subagents, ToolBinding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext

SERVER_NAME = "subagent"
LIST_IS_FRESH_MS = 300_000
"""How long a client may keep the list of tools, which changes only with the daemon's version."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")

logger = logging.getLogger(__name__)


def build_server(
    subagents: Subagents,
    *,
    version: str,
    max_prompt_bytes: int,
    nested: Callable[[str], Subagents] | None = None,
) -> Server[Any]:
    """Return the MCP server, ready for the SDK's session manager.

    A caller inside a turn is served by what `nested` returns for that turn; it may raise RefusedError.

    A prompt or trigger above `max_prompt_bytes` of UTF-8 is refused.
    """
    bindings = {binding.tool.name: binding for binding in TOOLS}
    schemas = {name: binding.tool.input_schema for name, binding in bindings.items()}

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[binding.tool for binding in TOOLS])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if (binding := bindings.get(params.name)) is None:
            message = f"Unknown tool {quoted(params.name)}: this server has {', '.join(bindings)}."
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        turn = _turn_of_caller(context)

        def service() -> Subagents:
            return subagents if turn is None or nested is None else nested(turn)

        return await _answer(
            binding, service, arguments=params.arguments or {}, max_prompt_bytes=max_prompt_bytes
        )

    hint = CacheHint(ttl_ms=LIST_IS_FRESH_MS, scope="private")
    return Server(
        SERVER_NAME,
        version=version,
        title="Subagents",
        description="Hands bounded work to headless claude processes and tells how each ended.",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": hint, "server/discover": hint},
        # Without it, each call of the 2026 era would run list_tools first.
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _turn_of_caller(context: ServerRequestContext[Any]) -> str | None:
    """Return the turn that the guard has found the caller to be inside of."""
    request = context.request
    return request.scope["state"].get(TURN_KEY) if isinstance(request, HTTPConnection) else None


async def _answer(
    binding: ToolBinding[Any],
    service: Callable[[], Subagents],
    *,
    arguments: Mapping[str, Any],
    max_prompt_bytes: int,
) -> types.CallToolResult:
    """Check the arguments, call the service, and turn whatever comes of it into a tool result."""
    tool = binding.tool.name
    try:
        given = checked_arguments(binding.arguments, arguments, tool=tool, max_prompt_bytes=max_prompt_bytes)
        answer = _well_formed(await binding.call(service(), given))
        text = binding.text(answer)
    except RefusedError as refusal:
        return types.CallToolResult(content=[_text(str(refusal))], is_error=True)
    except Exception:
        # A catch-all on purpose: this is the outermost loop of a call. The parent must get an answer, and
        # nothing of the daemon's inner state; the journal has the rest.
        logger.exception("tool %s failed", tool)
        return types.CallToolResult(content=[_text(_internal_error(tool))], is_error=True)
    return types.CallToolResult(content=[_text(text)], structured_content=answer)


def _internal_error(tool: str) -> str:
    advice = "call status to see what was done, and see the daemon's journal for the cause"
    return f"Internal error in {tool}, which may or may not have taken effect: {advice}."


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=_SURROGATE.sub("\ufffd", text))


def _well_formed(answer: Mapping[str, object]) -> Answer:
    """Return the answer in valid Unicode, so that it is not lost on its way."""
    try:
        json.dumps(
            answer, ensure_ascii=False
        ).encode()  # nearly always: then there is nothing to walk through
    except UnicodeEncodeError:
        return _without_surrogates(answer)
    return dict(answer)


def _without_surrogates(answer: Mapping[str, object]) -> Answer:
    return {key: _well_formed_value(value) for key, value in answer.items()}


def _well_formed_value(value: object) -> object:
    if isinstance(value, str):
        # Half of a surrogate pair stands for a byte of a path that is not UTF-8.
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return _without_surrogates(value)
    if isinstance(value, list | tuple):
        return [_well_formed_value(item) for item in value]
    return value
