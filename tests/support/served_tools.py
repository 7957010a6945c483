"""The tools over HTTP on loopback or on a Unix socket, on uvicorn in a thread of its own."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from hive_subagent_daemon.mcp_service import build_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.tools import Subagents

START_LIMIT_SECONDS = 30.0
MAX_PROMPT_BYTES = 1000
SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True, allowed_hosts=["127.0.0.1:*", "localhost"], allowed_origins=[]
)


@contextmanager
def served(subagents: Subagents, listening: socket.socket) -> Iterator[None]:
    """Serve the tools on a bound socket as long as the block lasts."""
    server = build_server(subagents, version="1", max_prompt_bytes=MAX_PROMPT_BYTES)
    app = server.streamable_http_app(json_response=True, transport_security=SECURITY)
    web = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not web.started:
            assert time.monotonic() < deadline, "uvicorn did not start"
            time.sleep(0.01)
        yield
    finally:
        web.should_exit = True
        thread.join(START_LIMIT_SECONDS)
        listening.close()


@contextmanager
def served_on_tcp(subagents: Subagents) -> Iterator[str]:
    """Serve on a free port of loopback and yield the address of the tools."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    with served(subagents, listening):
        yield f"http://127.0.0.1:{port}/mcp"
