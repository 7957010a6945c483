"""A client on stdio, the bridge as a process, and a real daemon that comes and goes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from hive_subagent_daemon.bridge import MOST_AT_ONCE, Bridge
from hive_subagent_daemon.client import TcpEndpoint
from tests.stub.steps import endless, held
from tests.support.bridge_process import BridgeProcess, bridge_environment, bridge_to, bridge_words
from tests.support.daemon_harness import Setting
from tests.support.daemon_stand_in import stand_in_for_a_daemon
from tests.support.mcp_call import meta
from tests.support.other_user import as_user, needs_root
from tests.support.processes import eventually
from tests.support.sockets import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

TOKEN = "a-token-of-20-letters"
ERAS = ["legacy", "2026-07-28", "auto"]


@pytest.fixture
def bridge(daemon: Daemon) -> Iterator[BridgeProcess]:
    """Run a bridge to the module's daemon."""
    with bridge_to(daemon.port) as one:
        yield one


@pytest.fixture
def moving_daemon(make_daemon: MakeDaemon) -> Daemon:
    """Return a daemon that does not run yet and has the same address at each start."""
    daemon = make_daemon(Setting(top={"listen": [f"127.0.0.1:{free_port()}"]}))
    [address] = daemon.setting.top["listen"]
    daemon.port = int(address.rpartition(":")[2])
    return daemon


def sdk_client(port: int, era: str) -> Client:
    """Return the SDK's client on a bridge."""
    [command, *args] = bridge_words(port)
    server = StdioServerParameters(command=command, args=args, env=bridge_environment())
    return Client(server, mode=era)


def text_of(result: dict[str, Any]) -> str:
    """Return the text of a tool's result."""
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("era", ERAS)
async def test_the_client_of_the_sdk_gets_the_same_as_over_http(daemon: Daemon, name: str, era: str) -> None:
    url = f"http://127.0.0.1:{daemon.port}/mcp"
    async with sdk_client(daemon.port, era) as bridged, Client(url, mode=era) as direct:
        assert (await bridged.list_tools()).tools == (await direct.list_tools()).tools
        assert bridged.instructions == direct.instructions
        assert bridged.server_info == direct.server_info
        for arguments in ({}, {"name": "none"}, {"name": "A B"}, {"x": 1}, {"name": 7}):
            ours, theirs = [await one.call_tool("status", arguments) for one in (bridged, direct)]
            assert ours == theirs
        daemon.script(name, held(f"{name}.go"))
        arguments = {"name": name, "prompt_file": "recipe.md"}
        assert not (await bridged.call_tool("start", arguments)).is_error
        assert (await bridged.call_tool("start", arguments)).is_error
        daemon.open_gate(f"{name}.go")


@pytest.mark.parametrize("era", ERAS)
async def test_a_restart_of_the_daemon_between_two_calls_does_not_show(
    moving_daemon: Daemon, era: str
) -> None:
    moving_daemon.boot()
    async with sdk_client(moving_daemon.port, era) as client:
        for _ in range(3):
            assert not (await client.call_tool("status", {})).is_error
            moving_daemon.restart()
        moving_daemon.kill()
        moving_daemon.boot()
        assert not (await client.call_tool("status", {})).is_error


def test_a_call_during_a_restart_waits_for_the_daemon(moving_daemon: Daemon) -> None:
    moving_daemon.boot()
    with bridge_to(moving_daemon.port) as bridge:
        moving_daemon.stop()
        request_id = bridge.call("close_loose_ends", ids=["none"])
        moving_daemon.boot()
        message = bridge.heard()
        assert message["id"] == request_id
        assert message["result"]["structuredContent"]["unknown"] == ["none"]


def test_without_a_daemon_there_are_tools_and_a_call_says_why_it_fails(moving_daemon: Daemon) -> None:
    with bridge_to(moving_daemon.port) as bridge:
        bridge.request("initialize", protocolVersion="2025-11-25")
        assert bridge.heard()["result"]["serverInfo"]["name"] == "subagent"
        bridge.request("tools/list")
        assert len(bridge.heard()["result"]["tools"]) == 8
        refused = bridge.result("start", name="a", prompt_file="p")
        assert refused["isError"]
        where = f"http://127.0.0.1:{moving_daemon.port}/mcp"
        assert text_of(refused) == f"No daemon at {where} (Connection refused): is it running?"
        moving_daemon.boot()
        assert not bridge.result("status")["isError"]


@pytest.mark.parametrize("tool", ["start", "continue", "interrupt", "close_loose_ends"])
def test_a_daemon_that_dies_during_a_call_is_told_at_once_and_the_call_not_repeated(tool: str) -> None:
    with stand_in_for_a_daemon(b"") as dying, bridge_to(dying.port) as bridge:
        told = bridge.result(tool)
        assert told["isError"]
        assert f"{tool} may or may not have taken effect. Call status to see" in text_of(told)
    assert len(dying.requests) == 1


def test_a_slow_call_holds_up_nothing_and_can_be_cancelled() -> None:
    with stand_in_for_a_daemon(None) as silent, bridge_to(silent.port) as bridge:
        slow = bridge.call("start")
        eventually(lambda: silent.requests, what="the slow call")
        for _ in range(3):
            ping = bridge.request("ping")
            assert bridge.heard() == {"jsonrpc": "2.0", "id": ping, "result": {}}
        bridge.notify("notifications/cancelled", requestId=slow)
        assert silent.gone.wait(10)
        bridge.request("ping")
        assert bridge.heard()["id"] == slow + 4


def test_many_calls_at_once_are_all_answered(bridge: BridgeProcess) -> None:
    asked = {bridge.call("status") for _ in range(MOST_AT_ONCE - 2)}
    answered = [bridge.heard() for _ in asked]
    assert {message["id"] for message in answered} == asked
    assert not any(message["result"]["isError"] for message in answered)


def test_more_calls_than_it_can_carry_are_refused_one_by_one() -> None:
    replies = [None] * MOST_AT_ONCE
    with stand_in_for_a_daemon(*replies) as silent, bridge_to(silent.port) as bridge:
        for _ in range(MOST_AT_ONCE):
            bridge.call("start")
        told = bridge.result("start")
        assert told["isError"]
        assert text_of(told).startswith(f"Refused: {MOST_AT_ONCE} calls are waiting")
        bridge.stdin.close()
        assert bridge.process.wait(10) == 0


def test_an_id_that_is_used_again_is_answered_each_time(bridge: BridgeProcess) -> None:
    line = b'{"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "status"}}'
    for _ in range(3):
        bridge.say(line)
    assert [bridge.heard()["id"] for _ in range(3)] == ["same"] * 3


def test_the_end_of_stdin_ends_it_at_once_also_during_a_call() -> None:
    with stand_in_for_a_daemon(None) as silent, bridge_to(silent.port) as bridge:
        bridge.call("start")
        eventually(lambda: silent.requests, what="the call")
        bridge.stdin.close()
        assert bridge.process.wait(2) == 0
        assert bridge.nothing_more()
        assert silent.gone.wait(10)


def test_what_is_answered_already_is_written_before_it_ends(daemon: Daemon) -> None:
    for _ in range(5):
        with bridge_to(daemon.port) as bridge:
            asked = bridge.request("tools/list")
            bridge.stdin.close()
            assert bridge.heard()["id"] == asked
            assert bridge.process.wait(5) == 0


def test_a_client_that_does_not_read_does_not_keep_it_from_ending() -> None:
    """Its answers fill the pipe, and nobody waits for that."""
    ping = b'{"jsonrpc": "2.0", "id": "%b", "method": "ping"}\n' % (b"x" * 60_000)
    with subprocess.Popen(
        bridge_words(1), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=bridge_environment()
    ) as process:
        assert process.stdin is not None
        process.stdin.write(ping * 20)
        process.stdin.close()
        assert process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_it_at_once(number: signal.Signals) -> None:
    with stand_in_for_a_daemon(None) as silent, bridge_to(silent.port) as bridge:
        bridge.call("start")
        eventually(lambda: silent.requests, what="the call")
        bridge.process.send_signal(number)
        assert bridge.process.wait(2) == -number


def test_the_largest_prompt_gets_through_and_a_larger_line_is_told(daemon: Daemon) -> None:
    with bridge_to(daemon.port) as bridge:
        told = bridge.result("continue", name="A", prompt="é" * 5_000_000)
        assert text_of(told).startswith("name 'A' is not valid")
        bridge.say(b'{"jsonrpc": "2.0", "id": 1, "method": "%b"}' % (b"x" * 40_000_000))
        assert bridge.heard()["error"]["code"] == -32600
        bridge.say(b'{"jsonrpc": "2.0", "id": "%b", "method": "ping"}' % (b"x" * 20_000_000))
        assert len(bridge.heard()["id"]) == 20_000_000


def test_a_body_that_the_daemon_takes_not_is_refused_in_its_words(bridge: BridgeProcess) -> None:
    told = bridge.result("continue", name="a", prompt="x" * 17_000_000)
    assert told["isError"]
    assert "HTTP 413): Refused: a request body may have at most 16777216 bytes" in text_of(told)


def test_lines_that_are_no_messages_harm_nothing(bridge: BridgeProcess) -> None:
    for line in (b"x", b"\xff\xfe", b"[]", b"[" * 50_000, b"", b"{}", b"\x00"):
        bridge.say(line)
    codes = [bridge.heard()["error"]["code"] for _ in range(6)]
    assert codes == [-32700, -32700, -32600, -32700, -32600, -32700]
    assert not bridge.result("status")["isError"]


def test_a_stream_of_the_later_era_is_not_offered_and_not_waited_for(bridge: BridgeProcess) -> None:
    bridge.request("server/discover", _meta=meta())
    assert bridge.heard()["result"]["capabilities"] == {"tools": {"listChanged": False}}
    bridge.request("subscriptions/listen", _meta=meta(), notifications={})
    assert bridge.heard()["error"]["code"] == -32601


def calling_claude(path: Path, port: int) -> Path:
    """Write a program that plays claude and has one thing to say: a call of a tool through the bridge."""
    call = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "status"}}'
    lines = [
        "#!/bin/sh",
        'case "$*" in *--version*) echo "2.1.197 (Claude Code)"; exit;; esac',
        f"mkfifo {path}.stdin",
        f"exec 3<>{path}.stdin",
        f"echo '{call}' >&3",
        f"{shlex.join(bridge_words(port))} <&3 | head -n 1 >&2",
    ]
    path.write_text("\n".join(lines))
    path.chmod(0o755)
    return path


def test_inside_a_turn_it_is_refused_with_the_sentence_of_the_daemon(
    make_daemon: MakeDaemon, tmp_path: Path, name: str
) -> None:
    port = free_port()
    setting = Setting(top={"listen": [f"127.0.0.1:{port}"]})
    daemon = make_daemon(setting, claude=calling_claude(tmp_path / "claude", port)).boot()
    end = daemon.play(name, endless())
    assert f"(HTTP 403): Refused: this call comes from inside turn {end['turn']}, and a subag" in end["error"]
    assert '"isError": true' in end["error"]


def served_by(words: bytes, endpoint: TcpEndpoint) -> bytes:
    """Serve one client that says these words, in this process, and return what it hears."""
    stdin, saying = os.pipe()
    hearing, stdout = os.pipe()
    bridge = threading.Thread(target=Bridge(endpoint, stdin=stdin, stdout=stdout).run)
    bridge.start()
    os.write(saying, words)
    heard = os.read(hearing, 65536)
    os.close(saying)
    bridge.join(10)
    return heard


@needs_root
def test_another_user_gets_in_with_the_token_and_without_it_is_told_how(make_daemon: MakeDaemon) -> None:
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "status"}}\n'
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the other user has to read it
        file = Path(folder, "token")
        file.write_text(f"{TOKEN}\n")
        daemon = make_daemon(Setting(tables={"auth": {"token_file": str(file)}})).boot()
        for token_file, expected in ((file, b'"isError": false'), (None, b"Name that file by --token-file")):
            endpoint = TcpEndpoint("127.0.0.1", daemon.port, token_file=token_file)
            with as_user(partial(served_by, call, endpoint)) as other:
                assert expected in other.result()
