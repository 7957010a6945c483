"""An idle claude leaves an idle daemon alone, and finds it again at its next call."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.claude.outside_claude import OutsideClaude, text_of
from tests.claude.real_daemon import setting_for, tool_call
from tests.support.activation import ActivatedDaemon
from tests.support.socket_unit import SocketUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.offline_model import OfflineModel

IDLE_SECONDS = 1.0
# claude 2.1.197 connects again 1 and 2.5 seconds after its stream has ended, 2.1.332 after 6, and for ever.
ALONE_SECONDS = 9.0
STATUS = "[[tool: mcp__subagent__status {}]]"
LOOSE_ENDS = "[[tool: mcp__subagent__get_loose_ends {}]]"


@pytest.fixture
def on_call(
    tmp_path: Path, claude_program: Path, model: OfflineModel
) -> Iterator[tuple[ActivatedDaemon, SocketUnit]]:
    """Return a daemon that is started by whoever calls and soon leaves, and what starts it."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening, ExitStack() as ending:
        folder = tmp_path / "d"
        setting = setting_for(folder, model, top={"idle_exit_seconds": IDLE_SECONDS})
        daemon = ActivatedDaemon(folder, claude_program, sockets=[listening], setting=setting)
        ending.callback(daemon.shut)
        yield daemon, ending.enter_context(SocketUnit(daemon, listening))


def errors_shown(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of tools that the model was shown as errors."""
    contents = [event["message"]["content"] for event in events if event["type"] == "user"]
    return [part for content in contents for part in content if part.get("is_error")]


def test_an_idle_parent_wakes_nobody_and_its_next_call_is_answered(
    on_call: tuple[ActivatedDaemon, SocketUnit], model: OfflineModel
) -> None:
    """No stream, session or connection of it keeps or wakes the daemon; the model sees no error."""
    daemon, unit = on_call
    server = {"type": "http", "url": f"http://127.0.0.1:{daemon.port}/mcp"}
    config = json.dumps({"mcpServers": {"subagent": server}})
    with OutsideClaude(daemon, model, f"--mcp-config={config}") as parent:
        worker = {"name": "worker", "prompt_file": "recipe.md", "trigger": "[[say: written by the subagent]]"}
        rounds = [parent.ask(tool_call("mcp__subagent__start", worker))]
        unit.is_gone(1)
        assert unit.is_left_alone(ALONE_SECONDS)
        for exits, prompt in enumerate((LOOSE_ENDS, STATUS, STATUS), 2):
            rounds.append(parent.ask(prompt))
            unit.is_gone(exits)
        assert unit.is_left_alone(ALONE_SECONDS)
        parent.end()
    assert "written by the subagent" in text_of(rounds[1])
    assert [errors_shown(events) for events in rounds] == [[], [], [], []]
    assert unit.codes == [0, 0, 0, 0]
