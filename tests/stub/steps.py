"""What a scripted claude can do in a turn, as a test reads it; the events are those of claude 2.1.197."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Step = dict[str, Any]
STDOUT = 1
STDERR = 2
FOREVER_SECONDS = 600.0


def init(**fields: object) -> Step:
    """Print the first event and enter the session into claude's store."""
    return {"do": "init", "with": fields}


def event(**fields: object) -> Step:
    """Print any event."""
    return {"do": "event", "event": fields}


def system(subtype: str, **fields: object) -> Step:
    """Print an event of type `system`."""
    return event(type="system", subtype=subtype, **fields)


def assistant(text: str, *, stop_reason: str | None = "end_turn", **fields: object) -> Step:
    """Print a piece of the model's answer."""
    content = [{"type": "text", "text": text}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    usage = {"input_tokens": 3, "output_tokens": 5}
    message_fields = {"content": content, "stop_reason": stop_reason, "usage": usage}
    return event(type="assistant", message=message | message_fields, parent_tool_use_id=None, **fields)


def tool_use(name: str, use_id: str = "toolu_01", **arguments: object) -> Step:
    """Print that the model calls a tool."""
    content = [{"type": "tool_use", "id": use_id, "name": name, "input": arguments}]
    message = {"id": "msg_2", "role": "assistant", "content": content, "stop_reason": "tool_use"}
    return event(type="assistant", message=message, parent_tool_use_id=None)


def tool_result(text: str = "done", use_id: str = "toolu_01", *, is_error: bool = False) -> Step:
    """Print what the tool answered."""
    content = [{"type": "tool_result", "tool_use_id": use_id, "content": text, "is_error": is_error}]
    return event(type="user", message={"role": "user", "content": content}, parent_tool_use_id=None)


def api_retry(attempt: int, *, error: str = "overloaded", status: int | None = 529) -> Step:
    """Print that claude waits before it asks the API again."""
    delay = 600.0 * 2**attempt
    fields = {"attempt": attempt, "max_retries": 10, "retry_delay_ms": delay}
    return system("api_retry", error_status=status, error=error, **fields)


def result(text: str = "all done", **fields: object) -> Step:
    """Print the final result, a success unless the fields say otherwise."""
    usual = {
        "subtype": "success",
        "is_error": False,
        "api_error_status": None,
        "duration_ms": 1234,
        "duration_api_ms": 1000,
        "num_turns": 2,
        "result": text,
        "stop_reason": "end_turn",
        "total_cost_usd": 0.0123,
        "usage": {"input_tokens": 10, "output_tokens": 20},
        "permission_denials": [],
        "terminal_reason": "completed",
    }
    return event(type="result", **(usual | fields))


def result_without(*absent: str, **fields: object) -> Step:
    """Print a result that lacks some of its usual fields."""
    step = result("", **fields)
    step["event"] = {key: value for key, value in step["event"].items() if key not in absent}
    return step


def api_error(status: int | None, text: str, *, error: str = "unknown", **fields: object) -> list[Step]:
    """Print how an API error ends a turn: a synthetic answer, then a result with subtype `success`."""
    content = [{"type": "text", "text": text}]
    message = {"id": "msg_e", "model": "<synthetic>", "role": "assistant", "content": content}
    synthetic = event(type="assistant", message=message, error=error, isApiErrorMessage=True)
    final = {"is_error": True, "api_error_status": status, "num_turns": 1, "total_cost_usd": 0} | fields
    return [synthetic, result(text, **final), exit_with(1)]


def interrupted_result(reason: str = "aborted_streaming") -> Step:
    """Print the result of a turn that was interrupted."""
    errors = ["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"]
    fields = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": reason}
    return result_without("result", errors=errors, **fields)


def background_started(work_id: str = "bg1", *, kind: str = "local_bash") -> Step:
    """Print that work goes on in the background."""
    return system("task_started", task_id=work_id, tool_use_id="toolu_01", description="x", task_type=kind)


def background_ended(work_id: str = "bg1", *, status: str = "completed") -> Step:
    """Print that background work has ended."""
    fields = {"status": status, "output_file": "", "summary": "x"}
    return system("task_notification", task_id=work_id, tool_use_id="toolu_01", **fields)


def raw(content: bytes | str, *, to: int = STDOUT) -> Step:
    """Print bytes as they are."""
    as_bytes = content.encode() if isinstance(content, str) else content
    return {"do": "raw", "to": to, "bytes": base64.b64encode(as_bytes).decode()}


def stderr(text: str) -> Step:
    """Print one line on stderr."""
    return raw(f"{text}\n", to=STDERR)


def flood(total_bytes: int, *, line_bytes: int = 100_000) -> Step:
    """Print this many bytes of events as fast as possible."""
    return {"do": "flood", "bytes": total_bytes, "line_bytes": line_bytes}


def sleep(seconds: float) -> Step:
    """Do nothing for a while."""
    return {"do": "sleep", "seconds": seconds}


def wait_for(gate: str) -> Step:
    """Wait until the test opens this gate."""
    return {"do": "wait_for", "gate": gate}


def reach(mark: str) -> Step:
    """Tell the test that the turn has come this far."""
    return {"do": "touch", "mark": mark}


def take() -> Step:
    """Wait for a message to a steerable turn, and take it into the round that goes on."""
    return {"do": "take"}


def listen() -> Step:
    """Answer messages and requests until the end of stdin, and exit."""
    return {"do": "listen"}


def forever() -> Step:
    """Stay until a signal ends it."""
    return {"do": "forever"}


def on_signal(name: str, steps: Sequence[Step] = ()) -> Step:
    """Answer a signal with these steps; none: ignore it."""
    return {"do": "on_signal", "signal": name, "steps": list(steps)}


def exit_with(code: int) -> Step:
    """Exit with this code."""
    return {"do": "exit", "code": code}


def die_by(name: str) -> Step:
    """Die by this signal."""
    return {"do": "die", "signal": name}


def dump(into: str) -> Step:
    """Write down how the process was started."""
    return {"do": "dump", "into": into}


def call(port: int, into: str, path: str = "/mcp") -> Step:
    """Call the daemon from inside the turn, and write down the first line of its answer."""
    return {"do": "call", "port": port, "into": into, "path": path, "tool": ""}


def ask(port: int, into: str, tool: str, **arguments: object) -> Step:
    """Call a tool of the daemon from inside the turn, and write down its result."""
    return {"do": "call", "port": port, "into": into, "tool": tool, "arguments": arguments}


def spawn(
    record: str,
    *,
    own_session: bool = False,
    double_fork: bool = False,
    holds_output: bool = False,
    scrubbed: bool = False,
    ignores: Sequence[str] = (),
    calls: int = 0,
) -> Step:
    """Start a child as a tool call would; its pid lands in `record`, its heartbeat in `record.beat`.

    With a port it first calls the daemon there; what that answered lands in `record.answer`.
    """
    kind = {"own_session": own_session, "double_fork": double_fork, "holds_output": holds_output}
    more = {"scrubbed": scrubbed, "ignores": list(ignores), "seconds": FOREVER_SECONDS, "calls": calls}
    return {"do": "spawn", "record": record} | kind | more


def success(text: str = "all done", **fields: object) -> list[Step]:
    """Play a plain successful turn."""
    return [init(), assistant(text), result(text, **fields)]


def held(gate: str, text: str = "all done") -> list[Step]:
    """Play a turn that runs until the test opens the gate, then succeeds."""
    return [init(), assistant("working", stop_reason=None), wait_for(gate), assistant(text), result(text)]


def endless() -> list[Step]:
    """Play a turn that runs until a signal ends it."""
    return [init(), assistant("working", stop_reason=None), forever()]
