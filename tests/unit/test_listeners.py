"""Where the daemon listens by itself: TCP sockets on loopback only."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hive_subagent_daemon.config_values import TcpAddress, UnixAddress
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.listeners import bind_all, is_reachable, names_in


def test_a_tcp_address_is_listened_on_and_named_with_its_actual_port() -> None:
    with bind_all([TcpAddress("127.0.0.1", 0)]) as listeners:
        host, port = listeners.sockets[0].getsockname()
        assert (host, listeners.urls) == ("127.0.0.1", [f"http://127.0.0.1:{port}/mcp"])
        socket.create_connection((host, port), timeout=5).close()


def test_the_protocol_of_a_socket_is_set_so_that_answers_are_not_delayed() -> None:
    with bind_all([TcpAddress("localhost", 0)]) as listeners:
        assert {listening.proto for listening in listeners.sockets} == {socket.IPPROTO_TCP}


def test_localhost_is_both_addresses_with_one_port() -> None:
    with bind_all([TcpAddress("localhost", 0)]) as listeners:
        names = [listening.getsockname()[:2] for listening in listeners.sockets]
        assert names == [("127.0.0.1", names[0][1]), ("::1", names[0][1])]
        assert listeners.urls[1] == f"http://[::1]:{names[0][1]}/mcp"


def test_localhost_without_ipv6_is_ipv4_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = socket.socket.bind

    def refuse_ipv6(sock: socket.socket, address: tuple[str, int]) -> None:
        if sock.family == socket.AF_INET6:
            raise OSError(99, "Cannot assign requested address")
        bind(sock, address)

    monkeypatch.setattr(socket.socket, "bind", refuse_ipv6)
    with bind_all([TcpAddress("localhost", 0)]) as listeners:
        assert [listening.family for listening in listeners.sockets] == [socket.AF_INET]
    with pytest.raises(StartUpError, match=r"cannot listen on \[::1\]:0: Cannot assign"):
        bind_all([TcpAddress("::1", 0)])


def test_a_free_port_whose_ipv6_twin_is_taken_is_given_up_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bind = socket.socket.bind
    refused: list[int] = []

    def refuse_first_ipv6(sock: socket.socket, address: tuple[str, int]) -> None:
        if sock.family == socket.AF_INET6 and not refused:
            refused.append(address[1])
            raise OSError(98, "Address already in use")
        bind(sock, address)

    monkeypatch.setattr(socket.socket, "bind", refuse_first_ipv6)
    with bind_all([TcpAddress("localhost", 0)]) as listeners:
        ports = {listening.getsockname()[1] for listening in listeners.sockets}
        assert (len(listeners.sockets), len(ports), len(refused)) == (2, 1, 1)


def test_an_ipv6_listener_takes_no_ipv4_clients() -> None:
    with bind_all([TcpAddress("::1", 0)]) as listeners:
        assert listeners.sockets[0].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1


def test_several_addresses_are_all_listened_on(tmp_path: Path) -> None:
    with bind_all(
        [TcpAddress("127.0.0.1", 0), TcpAddress("127.0.0.2", 0), UnixAddress(tmp_path / "s")]
    ) as all_of:
        assert len(all_of.urls) == 3
        assert all_of.names == {"127.0.0.1", "127.0.0.2"}
        assert all_of.urls[2] == f"unix:{tmp_path / 's'}"
    assert all(listening.fileno() == -1 for listening in all_of.sockets)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"])
def test_an_address_beyond_this_machine_is_refused(host: str) -> None:
    with pytest.raises(StartUpError, match="is not a loopback address: whoever reaches this daemon"):
        bind_all([TcpAddress(host, 0)])


def test_a_name_that_means_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    with pytest.raises(StartUpError, match=r"192\.0\.2\.1 is not a loopback"):
        bind_all([TcpAddress("box", 0)])


@pytest.mark.parametrize("host", ["", "*", "no such host", "127.0.0.1.", "a" * 64])
def test_a_host_that_means_nothing_is_refused_with_its_name(host: str) -> None:
    with pytest.raises(StartUpError, match=r"listen address .* use 127"):
        bind_all([TcpAddress(host, 0)])


def test_a_port_in_use_is_told_with_its_holder_and_what_to_do() -> None:
    with bind_all([TcpAddress("127.0.0.1", 0)]) as holder:
        port = holder.sockets[0].getsockname()[1]
        with pytest.raises(StartUpError) as caught:
            bind_all([TcpAddress("127.0.0.1", port)])
    text = str(caught.value)
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use, held by process {os.getpid()} (" in text
    assert text.endswith("stop that, or set another `listen`.")


def test_a_localhost_whose_ipv6_half_is_taken_is_refused() -> None:
    with bind_all([TcpAddress("::1", 0)]) as holder:
        port = holder.sockets[0].getsockname()[1]
        with pytest.raises(StartUpError, match=f"localhost:{port}: the port is in use"):
            bind_all([TcpAddress("localhost", port)])


def test_nothing_stays_open_when_one_of_several_addresses_fails(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with bind_all([TcpAddress("127.0.0.1", 0)]) as holder:
        taken = holder.sockets[0].getsockname()[1]
        with pytest.raises(StartUpError):
            bind_all([UnixAddress(path), TcpAddress("127.0.0.1", taken)])
    assert not path.exists()


def test_a_port_can_be_used_again_at_once_after_a_restart() -> None:
    with bind_all([TcpAddress("127.0.0.1", 0)]) as listeners:
        name = listeners.sockets[0].getsockname()
        client = socket.create_connection(name, timeout=5)
        accepted, _ = listeners.sockets[0].accept()
        accepted.close()  # the side that closes first keeps the port in TIME_WAIT
        client.close()
    with bind_all([TcpAddress(*name)]) as again:
        assert again.sockets[0].getsockname() == name


@pytest.mark.parametrize(("host", "names"), [("0.0.0.0", set()), ("::", set()), ("127.0.0.3", {"127.0.0.3"})])
def test_with_a_token_any_address_may_be_listened_on(host: str, names: set[str]) -> None:
    with bind_all([TcpAddress(host, 0)], reachable=True) as listeners:
        assert listeners.names == names
        assert is_reachable(listeners.sockets[0]) == (not names)


def test_with_a_token_a_name_may_mean_any_address_and_is_a_right_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    with bind_all([TcpAddress("Box.example", 0)], reachable=True) as listeners:
        assert listeners.names == {"box.example"}


def test_the_hosts_in_listen_are_right_ones_however_the_sockets_came() -> None:
    hosts = [TcpAddress(host, 1) for host in ("box", "2001:db8::1", "::")]
    assert names_in([*hosts, UnixAddress(Path("/s"))]) == {"box", "[2001:db8::1]"}
