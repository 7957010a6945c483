"""Sinks that are URLs: one POST on a connection of its own for each attempt, over TCP, TLS or a Unix socket.

Bounded in every way: the time to connect and to answer, the size of the answer's head; its body decides
nothing and is read only a little, so that the sink is not cut off in mid-sentence. Redirects are not
followed, and no proxy is asked.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import h11

from hive_subagent_daemon import __version__
from hive_subagent_daemon.deliveries import Answer, failed, of_status
from hive_subagent_daemon.errors import SubagentError
from hive_subagent_daemon.regular_files import read_regular
from hive_subagent_daemon.resolver import addresses_of
from hive_subagent_daemon.sink_values import HttpAddress, HttpSink, SocketAddress
from hive_subagent_daemon.threads import in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from anyio.abc import ByteStream

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
REST_SECONDS: Final = 1.0
REST_BYTES: Final = 65_536
HEADER_FILE_BYTES: Final = 65_536
_MOST_ADDRESSES: Final = 4
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|")
# Ours: they say where the request ends and which notice it is.
_OURS: Final = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "idempotency-key",
        "expect",
        "upgrade",
        "te",
    }
)

Headers = dict[str, str]


class HeaderFileError(SubagentError):
    """A header file that cannot be used; the message names the line, never a value."""


class HttpCarrier:
    """Posts loose ends to one URL."""

    def __init__(self, sink: HttpSink) -> None:
        """Use what is configured; nothing is tried yet."""
        self._sink = sink
        self._tls: ssl.SSLContext | None = None

    async def carry(self, loose_end_id: str, body: bytes) -> Answer:
        """Try once, and return what the sink answered; within CONNECT_SECONDS and ANSWER_SECONDS."""
        try:
            more = await in_thread(headers_in, self._sink.header_file)
        except HeaderFileError as error:
            return failed(str(error))
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await self._connect()
        except TimeoutError:
            return failed(f"there was no connection within {CONNECT_SECONDS:.0f} s")
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            return failed(f"there is no connection: {_reason(error)}")
        async with stream:
            return await self._post(stream, self._head(loose_end_id, body, more), body)

    def _head(self, loose_end_id: str, body: bytes, more: Headers) -> h11.Request:
        usual = {"Content-Type": "application/json", "User-Agent": f"hive-subagent-daemon/{__version__}"}
        given = {name.lower() for name in more}
        headers = {
            **{name: value for name, value in usual.items() if name.lower() not in given},
            **more,
            "Host": self._sink.address.authority,
            "Idempotency-Key": loose_end_id,
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        return h11.Request(method="POST", target=self._sink.target, headers=list(headers.items()))

    async def _connect(self) -> ByteStream:
        address = self._sink.address
        if isinstance(address, SocketAddress):
            return await anyio.connect_unix(address.socket)
        if address.tls and self._tls is None:
            self._tls = await in_thread(ssl.create_default_context)
        return await _connect_tcp(address, self._tls)

    async def _post(self, stream: ByteStream, head: h11.Request, body: bytes) -> Answer:
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                return of_status(await exchange(stream, head, body))
        except TimeoutError:
            return failed(f"it did not answer within {ANSWER_SECONDS:.0f} s")
        except h11.ProtocolError:
            return failed("it closed the connection without an answer, or answered something else than HTTP")
        except (OSError, anyio.BrokenResourceError):
            return failed("it broke the connection off without an answer")


async def _connect_tcp(address: HttpAddress, tls: ssl.SSLContext | None) -> ByteStream:
    """Connect to the first address of a host that takes the connection, each with its share of the time."""
    addresses = (await addresses_of(address.host))[:_MOST_ADDRESSES]
    error: OSError | None = None
    for each in addresses:
        try:
            with anyio.fail_after(CONNECT_SECONDS / len(addresses)):
                if tls is None:
                    return await anyio.connect_tcp(each, address.port)
                return await anyio.connect_tcp(
                    each,
                    address.port,
                    ssl_context=tls,
                    tls_hostname=address.host,
                    tls_standard_compatible=False,
                )
        except OSError as failure:  # TimeoutError is one
            error = failure
    raise error or OSError(0, "the host has no address")


async def exchange(stream: ByteStream, head: h11.Request, body: bytes) -> int:
    """Send a request and return the status of its answer; raises h11.RemoteProtocolError if there is none.

    An answer may come before the request was sent as a whole, and then counts.
    """
    connection = h11.Connection(h11.CLIENT)
    parts = (head, h11.Data(body), h11.EndOfMessage())
    with suppress(anyio.BrokenResourceError):
        await stream.send(b"".join(connection.send(part) or b"" for part in parts))
    status = 0
    while status < 200:
        event = await _next_event(connection, stream)
        if not isinstance(event, h11.InformationalResponse | h11.Response):
            message = "the connection ended before the answer"
            raise h11.RemoteProtocolError(message)
        status = event.status_code
    await _read_rest(connection, stream)
    return status


async def _next_event(connection: h11.Connection, stream: ByteStream) -> h11.Event | None:
    """Return the next event, None when no more can come."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        try:
            connection.receive_data(await stream.receive())
        except anyio.EndOfStream:
            connection.receive_data(b"")
    return event if isinstance(event, h11.Event) else None


async def _read_rest(connection: h11.Connection, stream: ByteStream) -> None:
    """Read the body of an answer as far as it is short and comes soon; whatever happens, it has answered."""
    size = 0
    with anyio.move_on_after(REST_SECONDS):
        try:
            while size < REST_BYTES and isinstance(event := await _next_event(connection, stream), h11.Data):
                size += len(event.data)
        except (OSError, anyio.BrokenResourceError, h11.ProtocolError):
            return


def headers_in(path: Path | None) -> Headers:
    """Return the headers of a header file: lines of `Name: value`, empty ones and `# …` left out. Blocks.

    Raises HeaderFileError.
    """
    if path is None:
        return {}
    try:
        content = read_regular(path, HEADER_FILE_BYTES + 1)
    except OSError as error:
        message = f"the header_file {path} cannot be read: {error.strerror or error}"
        raise HeaderFileError(message) from error
    if len(content) > HEADER_FILE_BYTES:
        message = f"the header_file {path} has more than {HEADER_FILE_BYTES} bytes"
        raise HeaderFileError(message)
    headers: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(content.decode("latin-1").splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            name, value = _header(line, f"line {number} of the header_file {path}")
            headers[name.lower()] = (name, value)
    return dict(headers.values())


def _header(line: str, place: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value.strip()):
        message = f"{place} is not `Name: value` in visible ASCII"
        raise HeaderFileError(message)
    if name.lower() in _OURS:
        message = f"{place} sets {name}, which the daemon sets itself"
        raise HeaderFileError(message)
    return name, value.strip()


def _reason(error: Exception) -> str:
    """Return in words why a connection failed, from the innermost error that says it."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted ({error.verify_message})"
        case ssl.SSLError():
            return f"TLS failed ({error.reason})"
        case anyio.BrokenResourceError() | anyio.EndOfStream():
            return "it was broken off"
    if isinstance(error, OSError) and error.errno is None and isinstance(error.__cause__, OSError):
        error = error.__cause__
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return str(error) or type(error).__name__
