"""The access rule: who is refused, and with which sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.access import (
    MAX_BODY_BYTES,
    AccessRule,
    Refusal,
    refused_caller,
    refused_headers,
    refused_length,
    refused_turn,
)
from hive_subagent_daemon.peer import Peer, TcpPeer, UnixPeer, UnknownPeer

DAEMON_UID = 1000
LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
NO_HOSTS: frozenset[str] = frozenset()


async def of_no_turn(_peer: Peer) -> str | None:
    """Find every peer outside of all turns."""
    return None


RULE = AccessRule(DAEMON_UID, of_no_turn)


def host_refusal(*hosts: str, names: frozenset[str] = NO_HOSTS) -> Refusal | None:
    """Judge a TCP request with these Host headers."""
    return refused_headers([(b"host", host.encode("latin-1")) for host in hosts], unix=False, hosts=names)


def origin_refusal(origin: str, *, unix: bool = False) -> Refusal | None:
    """Judge a request with a right Host and this Origin."""
    headers = [(b"host", b"localhost"), (b"origin", origin.encode("latin-1"))]
    return refused_headers(headers, unix=unix, hosts=NO_HOSTS)


@pytest.mark.parametrize("uid", [DAEMON_UID, 0], ids=["own", "root"])
def test_the_own_user_and_root_may_call(uid: int) -> None:
    assert refused_caller(TcpPeer(uid, 7, None), [], RULE) is None
    assert refused_caller(UnixPeer(uid, 7, 7), [], RULE) is None


@pytest.mark.parametrize("peer", [TcpPeer(1001, 7, None), UnixPeer(1001, DAEMON_UID, 7)], ids=["tcp", "unix"])
def test_another_user_is_refused_with_the_way_in(peer: Peer) -> None:
    refusal = refused_caller(peer, [], RULE)
    assert refusal is not None
    assert refusal.status == 403
    assert "uid 1001" in refusal.sentence
    assert "only uid 1000, which runs this daemon, and root may call it" in refusal.sentence


def test_an_unknown_peer_is_refused_with_the_reason() -> None:
    refusal = refused_caller(UnknownPeer("the connection was closed at once"), [], AccessRule(0, of_no_turn))
    assert refusal is not None
    assert refusal.status == 403
    assert "because the connection was closed at once" in refusal.sentence


def test_a_caller_inside_a_turn_is_told_that_a_subagent_may_not_use_the_tools() -> None:
    assert refused_turn(None) is None
    refusal = refused_turn("20250101-1")
    assert refusal is not None
    assert refusal.status == 403
    assert "turn 20250101-1" in refusal.sentence
    assert "a subagent may not use its agent's `subagent` tools" in refusal.sentence


@pytest.mark.parametrize("port", ["", ":7310", ":1", ":65535"])
@pytest.mark.parametrize("host", [*LOCAL_HOSTS, "LocalHost"])
def test_loopback_names_are_right_hosts_with_any_port(host: str, port: str) -> None:
    assert host_refusal(host + port) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example", "127.0.0.2",
        "[::2]", "::1", "localhost:", "localhost:x", "localhost:7310:1", "localhost@evil.example",
        "evil.example@localhost", "localhost/evil", "localhost evil", "[::1]evil", "localhost.", "0", "\xe4",
    ],
)  # fmt: skip
def test_any_other_host_is_misdirected(host: str) -> None:
    refusal = host_refusal(host)
    assert refusal is not None
    assert refusal.status == 421
    assert "call it as 127.0.0.1, [::1], localhost" in refusal.sentence


@given(st.text(st.characters(max_codepoint=255), max_size=30))
def test_no_text_passes_as_a_host_unless_it_is_a_loopback_name(host: str) -> None:
    name = host.strip().lower()
    allowed = any(name == local or name.startswith(f"{local}:") for local in LOCAL_HOSTS)
    assert allowed or host_refusal(host) is not None


@pytest.mark.parametrize("hosts", [[], [""], ["localhost", "localhost"]], ids=["none", "empty", "two"])
def test_a_request_has_exactly_one_host(hosts: list[str]) -> None:
    refusal = host_refusal(*hosts)
    assert refusal is not None
    assert refusal.status == 400


def test_a_configured_name_is_a_right_host_too() -> None:
    names = frozenset({"127.0.0.5", "box"})
    assert host_refusal("127.0.0.5:7310", names=names) is None
    assert host_refusal("Box", names=names) is None
    assert host_refusal("box2", names=names) is not None


@pytest.mark.parametrize("port", ["", ":3000"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_an_origin_of_this_machine_passes_on_tcp(scheme: str, host: str, port: str) -> None:
    assert origin_refusal(f"{scheme}://{host}{port}") is None


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "http://evil.example", "http://localhost.evil.example", "http://localhost:80@evil.example",
        "ftp://localhost", "localhost", "http://127.0.0.2", "file://", "http://localhost/", "http://[::1",
        "chrome-extension://abc", "http://localhost http://evil.example",
    ],
)  # fmt: skip
def test_any_other_origin_is_forbidden(origin: str) -> None:
    refusal = origin_refusal(origin)
    assert refusal is not None
    assert refusal.status == 403
    assert "Origin" in refusal.sentence


def test_each_of_several_origins_has_to_pass() -> None:
    headers = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://evil.example")]
    assert refused_headers(headers, unix=False, hosts=NO_HOSTS) is not None


def test_on_a_unix_socket_any_host_passes_and_no_origin_does() -> None:
    for host in (b"", b"u.sock", b"evil.example"):
        assert refused_headers([(b"host", host)], unix=True, hosts=NO_HOSTS) is None
    assert refused_headers([], unix=True, hosts=NO_HOSTS) is None
    refusal = origin_refusal("http://localhost", unix=True)
    assert refusal is not None
    assert refusal.status == 403


def test_a_long_or_odd_header_is_shown_short_and_in_one_line() -> None:
    refusal = origin_refusal("http://evil\n" + "x" * 500)
    assert refusal is not None
    assert "\n" not in refusal.sentence
    assert len(refusal.sentence) < 300


def test_a_body_up_to_the_limit_may_be_announced() -> None:
    assert refused_length([]) is None
    assert refused_length([(b"content-length", str(MAX_BODY_BYTES).encode())]) is None
    refusal = refused_length([(b"content-length", str(MAX_BODY_BYTES + 1).encode())])
    assert refusal is not None
    assert refusal.status == 413
    assert str(MAX_BODY_BYTES) in refusal.sentence
