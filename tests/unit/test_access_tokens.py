"""The guard with a token or other uids configured: who is let in then, and what the others are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from hive_subagent_daemon.access import CONNECTION_KEY, AccessRule, AllowedUids, Connection
from hive_subagent_daemon.guard import AccessGuard
from hive_subagent_daemon.peer import AnyPeer, Peer, RemotePeer, TcpPeer, UnixPeer, UnknownPeer
from hive_subagent_daemon.tokens import BearerToken

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send

SECRET = b"a-token-of-20-letters"
RIGHT = (b"authorization", b"Bearer " + SECRET)
WRONG = (b"authorization", b"Bearer another-token-of-it")
OWN, ROOT, ALLOWED = TcpPeer(1000, 7, None), TcpPeer(0, 7, None), TcpPeer(1002, 7, None)
STRANGERS: list[AnyPeer] = [TcpPeer(1001, 7, None), UnixPeer(1001, 1, 1), RemotePeer("192.0.2.7")]
IDS = ["tcp", "unix", "remote"]
Headers = list[tuple[bytes, bytes]]


class Heard(Connection):
    """A connection that remembers what the guard has told it."""

    heard = ""

    @override
    def admitted(self) -> None:
        """Remember it."""
        self.heard += "admitted"

    @override
    def refused(self) -> None:
        """Remember it."""
        self.heard += "refused"


class Judged:
    """The answer of a guard to one request, or that it has let it through."""

    def __init__(self, connection: Heard) -> None:
        """Nothing has been sent yet."""
        self.connection = connection
        self.reached: Scope | None = None
        self.sent: list[Message] = []

    @property
    def status(self) -> int:
        """The status of the answer, 200 for a request that was let through."""
        return 200 if self.reached is not None else int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of a refusal."""
        return dict(self.sent[0]["headers"])

    @property
    def text(self) -> str:
        """The sentence of a refusal."""
        return b"".join(message["body"] for message in self.sent[1:]).decode()


@pytest.fixture
def token(tmp_path: Path) -> BearerToken:
    """Return a token that has been read."""
    file = tmp_path / "token"
    file.write_bytes(SECRET)
    file.chmod(0o600)
    token = BearerToken(file)
    token.read()
    return token


async def judged(
    peer: AnyPeer,
    *headers: tuple[bytes, bytes],
    token: BearerToken | None = None,
    path: str = "/mcp",
    host: bytes = b"localhost",
    turn: str | None = None,
) -> Judged:
    """Send a request through a guard that allows uid 1002 beside its own 1000."""
    answer = Judged(Heard(peer, "192.0.2.1"))

    async def application(scope: Scope, _receive: Receive, _send: Send) -> None:
        answer.reached = scope

    async def turn_of_peer(_peer: Peer) -> str | None:
        return turn

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        answer.sent.append(message)

    rule = AccessRule(1000, turn_of_peer, frozenset({"box"}), AllowedUids([1002]), token or BearerToken(None))
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"host", host), *headers],
        "state": {CONNECTION_KEY: answer.connection},
    }
    await AccessGuard(application, rule)(scope, receive, send)
    return answer


@pytest.mark.parametrize("peer", [OWN, ROOT, ALLOWED, UnixPeer(1002, 1, 1)])
@pytest.mark.parametrize("header", [None, RIGHT, WRONG])
async def test_own_user_root_and_allowed_users_need_no_token(
    token: BearerToken, peer: AnyPeer, header: tuple[bytes, bytes] | None
) -> None:
    headers = [] if header is None else [header]
    assert (await judged(peer, *headers, token=token)).status == 200
    assert (await judged(peer, *headers)).status == 200


@pytest.mark.parametrize("peer", STRANGERS, ids=IDS)
async def test_the_right_token_lets_any_other_known_peer_in(token: BearerToken, peer: AnyPeer) -> None:
    answer = await judged(peer, RIGHT, token=token)
    assert (answer.status, answer.connection.heard) == (200, "admitted")


@pytest.mark.parametrize("peer", STRANGERS, ids=IDS)
@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "and it sent no token; "),
        ([WRONG], "and what it sent in Authorization is not the token; "),
        ([RIGHT, RIGHT], "and what it sent in Authorization is not the token; "),
    ],
    ids=["none", "wrong", "two"],
)
async def test_without_the_right_token_others_are_asked_for_it(
    token: BearerToken, peer: AnyPeer, headers: Headers, said: str
) -> None:
    answer = await judged(peer, *headers, token=token)
    assert (answer.status, answer.headers[b"www-authenticate"]) == (401, b"Bearer")
    assert said in answer.text
    assert (
        "send the header `Authorization: Bearer TOKEN` with the content of this daemon's token" in answer.text
    )
    assert "(only uid 1000, which runs this daemon, root and uid 1002 may call without)" in answer.text
    assert SECRET.decode() not in answer.text
    assert answer.connection.heard == "refused"


@pytest.mark.parametrize("peer", STRANGERS, ids=IDS)
async def test_without_a_token_configured_none_helps(peer: AnyPeer) -> None:
    answer = await judged(peer, RIGHT)
    assert answer.status == 403
    assert b"www-authenticate" not in answer.headers


async def test_a_peer_that_has_gone_is_refused_with_the_right_token_too(token: BearerToken) -> None:
    """It may be a subagent's, and nobody reads the answer anyway."""
    answer = await judged(UnknownPeer("no process holds the other end any more"), RIGHT, token=token)
    assert answer.status == 403
    assert "keep the connection open" in answer.text


@pytest.mark.parametrize("peer", [OWN, ALLOWED, STRANGERS[0]], ids=["own", "allowed", "token"])
async def test_a_caller_inside_a_turn_is_refused_whatever_it_brings(
    token: BearerToken, peer: AnyPeer
) -> None:
    answer = await judged(peer, RIGHT, token=token, turn="t-1")
    assert answer.status == 403
    assert "a subagent may not use its agent's `subagent` tools" in answer.text


@pytest.mark.parametrize("peer", [OWN, *STRANGERS[:2]], ids=["own", *IDS[:2]])
async def test_there_is_no_oauth_metadata_for_anybody(token: BearerToken, peer: AnyPeer) -> None:
    for name in ("oauth-protected-resource", "oauth-authorization-server", "openid-configuration", "x"):
        answer = await judged(peer, token=token, path=f"/.well-known/{name}")
        assert (answer.status, answer.text) == (404, "Not found.\n")
        assert b"www-authenticate" not in answer.headers


@pytest.mark.parametrize("peer", STRANGERS, ids=IDS)
async def test_healthz_asks_for_no_token(token: BearerToken, peer: AnyPeer) -> None:
    assert (await judged(peer, token=token, path="/healthz")).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:1", 200), (b"box", 200), (b"192.0.2.1:7310", 200), (b"192.0.2.2", 421),
        (b"0.0.0.0:1", 421), (b"evil.example", 421), (b"box.evil.example", 421),
    ],
)  # fmt: skip
async def test_with_a_token_too_the_host_is_a_name_in_listen_or_the_address_it_came_to(
    token: BearerToken, host: bytes, status: int
) -> None:
    for peer in (OWN, STRANGERS[2]):
        assert (await judged(peer, RIGHT, token=token, host=host)).status == status


async def test_the_layer_behind_sees_a_host_that_it_knows(token: BearerToken) -> None:
    for host, seen in [(b"192.0.2.1:7310", b"localhost"), (b"Box:1", b"box:1")]:
        answer = await judged(STRANGERS[2], RIGHT, token=token, host=host)
        assert answer.reached is not None
        assert dict(answer.reached["headers"])[b"host"] == seen


@pytest.mark.parametrize(
    "headers",
    [[(b"x", b"")] * 100, [(b"x", b"y" * 65536)], [(b"y" * 65536, b"")]],
    ids=["many", "long-value", "long-name"],
)
async def test_too_many_or_too_long_headers_are_refused(headers: Headers) -> None:
    answer = await judged(OWN, *headers)
    assert answer.status == 431
    assert answer.text.startswith("Refused: a request may have at most 100 headers of 65536 bytes in all")
