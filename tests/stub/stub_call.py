"""How the stub calls a port on loopback, as a tool of a subagent might; standard library only."""

from __future__ import annotations

import _socket

TIMEOUT_SECONDS = 10.0
# A subagent can read its agent's files, so it may come with the token.
TOKEN = "a-token-of-20-letters"


def answer_of(port: int, path: str) -> str:
    """Send a tool call to a path of the daemon at this port and return the first line of its answer."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Authorization: Bearer {TOKEN}",
        "Connection: close",
        f"Content-Length: {len(body)}",
    ]
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        connection.connect(("127.0.0.1", port))
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        answer = connection.recv(65536).decode(errors="replace")
    except OSError as error:
        return f"no answer: {error}"
    finally:
        connection.close()
    return answer.partition("\r\n")[0]
