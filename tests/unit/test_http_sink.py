"""One attempt to post a loose end, against real servers: what arrives, and what is made of each answer."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hive_subagent_daemon import __version__, http_sink
from hive_subagent_daemon.deliveries import TAKEN, Answer, Reply, failed
from hive_subagent_daemon.http_sink import HeaderFileError, HttpCarrier, headers_in
from hive_subagent_daemon.sink_values import HttpAddress, HttpSink, SocketAddress
from tests.support.receivers import HANGS, OK, answer, drip, receiving, receiving_unix, serving
from tests.unit.support_turns import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = "20260131_120000_000_abcd"
BODY = b'{"id": "x"}'
NO_ANSWER = "it closed the connection without an answer, or answered something else than HTTP"
BROKEN_OFF = "it broke the connection off without an answer"


def sink(
    port: int, target: str = "/in", *, host: str = "127.0.0.1", header_file: Path | None = None
) -> HttpSink:
    """Return a sink on a TCP port."""
    return HttpSink("http://x", HttpAddress(host, port, tls=False), target, header_file)


async def carried(to: HttpSink, body: bytes = BODY) -> Answer:
    """Try once, in bounded time."""
    with anyio.fail_after(15):
        return await HttpCarrier(to).carry(KEY, body)


async def test_a_loose_end_is_posted_as_json_under_its_key() -> None:
    with receiving() as (receiver, port):
        assert await carried(sink(port, "/in?a=b")) == TAKEN
    [request] = receiver.requests
    assert (request.line, request.body) == ("POST /in?a=b HTTP/1.1", BODY)
    assert request.headers == {
        "content-type": "application/json",
        "user-agent": f"hive-subagent-daemon/{__version__}",
        "host": f"127.0.0.1:{port}",
        "idempotency-key": KEY,
        "content-length": str(len(BODY)),
        "connection": "close",
    }


async def test_a_unix_socket_is_posted_to(tmp_path: Path) -> None:
    with receiving_unix(tmp_path / "s") as receiver:
        assert await carried(HttpSink("unix:x", SocketAddress(tmp_path / "s"), "/in")) == TAKEN
    [request] = receiver.requests
    assert (request.line, request.headers["host"]) == ("POST /in HTTP/1.1", "localhost")


async def test_a_host_with_an_ipv6_address_alone_is_reached() -> None:
    with receiving(host="::1") as (receiver, port):
        assert await carried(sink(port, host="::1")) == TAKEN
    assert receiver.requests[0].headers["host"] == f"[::1]:{port}"


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
async def test_every_address_of_a_name_is_tried(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of them listens."""

    async def addresses_of(name: str) -> tuple[str, ...]:
        assert name == "hooks.example"
        return ("::1", "127.0.0.1")

    monkeypatch.setattr(http_sink, "addresses_of", addresses_of)
    with receiving(host=host) as (receiver, port):
        assert await carried(sink(port, host="hooks.example")) == TAKEN
    assert receiver.requests[0].headers["host"] == f"hooks.example:{port}"


async def test_further_headers_come_from_a_file_that_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    with receiving() as (receiver, port):
        for token in ("one", "two"):
            file.write_text(
                f"# a token\n\nAuthorization:  Bearer {token} \ncontent-type: application/x+json\nX:\n"
            )
            assert await carried(sink(port, header_file=file)) == TAKEN
    found = [
        (r.headers["authorization"], r.headers["content-type"], r.headers["x"]) for r in receiver.requests
    ]
    assert found == [(f"Bearer {token}", "application/x+json", "") for token in ("one", "two")]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            b"Authorization Bearer s3cret",
            "line 1 of the header_file FILE is not `Name: value` in visible ASCII",
        ),
        (b"# x\nA: b\nB: s3cret\0", "line 3 of the header_file FILE is not `Name: value` in visible ASCII"),
        (b"A: s3cret\xff", "line 1 of the header_file FILE is not `Name: value` in visible ASCII"),
        (b"A b: s3cret", "line 1 of the header_file FILE is not `Name: value` in visible ASCII"),
        (b"host: s3cret", "line 1 of the header_file FILE sets host, which the daemon sets itself"),
        (
            b"Idempotency-Key: 1",
            "line 1 of the header_file FILE sets Idempotency-Key, which the daemon sets itself",
        ),
        (b"x" * 70_000, "the header_file FILE has more than 65536 bytes"),
    ],
)
async def test_a_bad_header_file_is_a_failure_that_shows_no_value(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    file = tmp_path / "headers"
    file.write_bytes(content)
    assert await carried(sink(1, header_file=file)) == failed(fault.replace("FILE", str(file)))


async def test_a_header_file_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    answered = await carried(sink(1, header_file=file))
    assert answered == failed(f"the header_file {file} cannot be read: No such file or directory")


def test_a_header_that_comes_twice_counts_as_it_came_last(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("A: 1\na: 2")
    assert headers_in(file) == {"a": "2"}
    with pytest.raises(HeaderFileError, match="cannot be read"):
        headers_in(tmp_path)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (answer(200), TAKEN),
        (answer(299, body=b"x" * 5_000_000), TAKEN),
        (b"HTTP/1.1 200 x\r\n\r\n", TAKEN),
        (b"HTTP/1.0 200 x\r\nContent-Length: 999\r\n\r\ncut off", TAKEN),
        (b"HTTP/1.1 100 x\r\n\r\nHTTP/1.1 103 x\r\nA: b\r\n\r\n" + answer(201), TAKEN),
        (answer(404), Answer(Reply.REFUSED, "it answered with status 404")),
        (answer(503), failed("it answered with status 503")),
        (
            answer(302, "Location: http://127.0.0.1:1/"),
            failed("it answered with status 302, and redirects are not followed: use the final URL"),
        ),
        (None, failed(NO_ANSWER)),
        (b"hello\r\n\r\n", failed(NO_ANSWER)),
        (b"HTTP/1.1 200", failed(NO_ANSWER)),
        (b"HTTP/1.1 200 x\r\nA: " + b"x" * 1_000_000, failed(NO_ANSWER)),
        (b"HTTP/1.1 200 x\r\n" + b"A: b\r\n" * 100_000, failed(NO_ANSWER)),
        (b"HTTP/1.1 101 x\r\n\r\n", failed(NO_ANSWER)),
        (b"HTTP/1.1 100 x\r\n\r\n" * 10, failed(NO_ANSWER)),
        (b"HTTP/1.1 99999 x\r\n\r\n", failed(NO_ANSWER)),
        (b"\0" * 100_000, failed(NO_ANSWER)),
    ],
)
async def test_the_head_of_an_answer_decides(reply: bytes | None, expected: Answer) -> None:
    with receiving(lambda _request: reply) as (receiver, port):
        assert await carried(sink(port)) == expected
    assert receiver.keys == [KEY]


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    """The answer counts; the rest is looked at for a second at most."""
    head = b"HTTP/1.1 200 x\r\n\r\n"
    with serving(lambda connection: drip(connection, head, b"x" * 1000)) as port, anyio.fail_after(5):
        assert await carried(sink(port)) == TAKEN


async def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sink, "ANSWER_SECONDS", 0.2)
    with receiving(lambda _request: HANGS) as (receiver, port):
        assert await carried(sink(port)) == failed("it did not answer within 0 s")
    assert receiver.keys == [KEY]


async def test_a_server_that_drips_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sink, "ANSWER_SECONDS", 0.3)
    with serving(lambda connection: drip(connection, b"HTTP/1.1 200 x\r\n", b"A: b\r\n")) as port:
        assert await carried(sink(port)) == failed("it did not answer within 0 s")


async def test_a_server_that_answers_before_it_has_read_is_believed() -> None:
    """Such as a proxy that knows already that it will not take it."""

    def refuse(connection: socket.socket) -> None:
        connection.sendall(answer(413))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    with serving(refuse) as port:
        answered = await carried(sink(port), b"x" * 50_000)
    # Its reset can overtake its answer: then it is tried again.
    assert answered in (Answer(Reply.REFUSED, "it answered with status 413"), failed(BROKEN_OFF))


async def test_nobody_there_is_a_failure(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answered = await carried(sink(unused.getsockname()[1]))
    assert answered == failed("there is no connection: Connection refused")
    nowhere = HttpSink("unix:x", SocketAddress(tmp_path / "s"), "/")
    assert await carried(nowhere) == failed("there is no connection: No such file or directory")


async def test_a_name_that_nobody_knows_is_a_failure() -> None:
    answered = await carried(sink(1, host="nobody.invalid"))
    assert answered.reply is Reply.FAILED
    assert answered.reason.startswith("there is no connection")
    assert (await carried(sink(1, host="x" * 70 + ".invalid"))).reply is Reply.FAILED


async def test_a_port_that_takes_no_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog swallows connections as a host behind a firewall does."""
    monkeypatch.setattr(http_sink, "CONNECT_SECONDS", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        assert await carried(sink(listener.getsockname()[1])) == failed("there was no connection within 0 s")
        for one in waiting:
            one.close()


def certificate(folder: Path) -> Path:
    """Write a key and a certificate that it has signed itself for `localhost`, and return the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    signed = builder.sign(key, hashes.SHA256())
    as_pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "both.pem"
    file.write_bytes(key.private_bytes(*as_pem) + signed.public_bytes(serialization.Encoding.PEM))
    return file


def speaking_tls(file: Path) -> Callable[[socket.socket], None]:
    """Return what answers one request over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65_536)
            wrapped.sendall(OK)

    return serve


@pytest.mark.parametrize(
    ("host", "trusted", "expected"),
    [
        ("localhost", True, TAKEN),
        ("localhost", False, "its certificate is not accepted (self-signed certificate)"),
        ("127.0.0.1", True, "its certificate is not accepted (IP address mismatch, certificate is not valid"),
    ],
)
async def test_a_certificate_must_be_trusted_and_fit_the_host(
    tmp_path: Path, host: str, *, trusted: bool, expected: Answer | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file) if trusted else "/dev/null")
    with serving(speaking_tls(file)) as port:
        answered = await carried(HttpSink("https://x", HttpAddress(host, port, tls=True), "/"))
    if isinstance(expected, str):
        assert answered.reply is Reply.FAILED
        assert answered.reason.startswith(f"there is no connection: {expected}")
    else:
        assert answered == expected


async def test_a_server_that_does_not_speak_tls_is_a_failure() -> None:
    with serving(lambda connection: connection.sendall(answer(400))) as port:
        answered = await carried(HttpSink("https://x", HttpAddress("127.0.0.1", port, tls=True), "/"))
    assert answered == failed("there is no connection: TLS failed (WRONG_VERSION_NUMBER)")


async def test_a_cancelled_attempt_leaves_no_connection() -> None:
    with receiving(lambda _request: HANGS) as (receiver, port), anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(HttpCarrier(sink(port)).carry, KEY, BODY)
            await until(lambda: receiver.requests)
            tasks.cancel_scope.cancel()
