"""Sinks with the whole daemon: at least once, in order, over restarts, nothing hidden (D8, E3, E6, E7)."""

from __future__ import annotations

import json
import shlex
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.steps import endless, held, init, success
from tests.support.daemon_harness import Setting
from tests.support.processes import eventually, is_alive
from tests.support.receivers import HANGS, OK, Request, answer, receiving, receiving_unix

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub.conftest import MakeDaemon
    from tests.support.daemon_harness import Daemon

TOKEN = "s3cret-token"
Json = dict[str, Any]


def sinks(*tables: Json) -> Setting:
    """Return a setting with these sinks, and a log that tells everything."""
    return Setting(top={"log_level": "debug"}, tables={"loose_ends": {"sinks": list(tables)}})


def http(port: int, path: str = "/in", **more: object) -> Json:
    """Return the table of a sink on a port."""
    return {"type": "http", "url": f"http://127.0.0.1:{port}{path}", **more}


def command(script: str, **more: object) -> Json:
    """Return the table of a sink that is a shell script."""
    return {"type": "command", "argv": ["sh", "-c", script], **more}


def status(daemon: Daemon) -> Json:
    """Return all of `status`."""
    found: Json = daemon.ok("status").content
    return found


def warnings(daemon: Daemon) -> list[str]:
    """Return what `status` warns of concerning sinks."""
    return [one for one in status(daemon)["warnings"] if one.startswith("sink ")]


def all_delivered(daemon: Daemon, *, within: float = 10.0) -> None:
    """Wait until nothing is undelivered."""
    eventually(lambda: status(daemon)["undelivered"] == 0, within=within, what="everything delivered")


def unused_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def test_a_loose_end_goes_to_every_sink_and_stays_in_the_inbox(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    got = tmp_path / "got"
    headers = tmp_path / "headers"
    headers.write_text(f"Authorization: Bearer {TOKEN}\n")
    script = f'cat >{shlex.quote(str(got))}; echo "key $HIVE_SUBAGENT_LOOSE_END, $ANTHROPIC_API_KEY." >&2'
    with receiving() as (tcp, port), receiving_unix(tmp_path / "s") as unix:
        setting = sinks(
            http(port, "/in?a=b", header_file=str(headers)),
            {"type": "http", "url": f"unix:{tmp_path / 's'}:/hook"},
            command(script),
        )
        daemon = make_daemon(replace(setting, environment={"ANTHROPIC_API_KEY": TOKEN})).boot()
        end = daemon.play("a", success("found it"))
        all_delivered(daemon)
    [request], [other] = tcp.requests, unix.requests
    assert (request.line, other.line) == ("POST /in?a=b HTTP/1.1", "POST /hook HTTP/1.1")
    assert request.key == other.key == end["id"]
    assert request.content == other.content == json.loads(got.read_text()) == end
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert "authorization" not in other.headers
    assert f"key {end['id']}, ." in daemon.log, "what is configured for turns is not for sinks"
    assert TOKEN not in daemon.log
    assert daemon.loose_ends("a") == [end]
    assert warnings(daemon) == []


def test_loose_ends_come_in_the_order_in_which_turns_ended(make_daemon: MakeDaemon) -> None:
    """Not in that in which they began; a slow sink does not change it."""
    with receiving() as (receiver, port):
        daemon = make_daemon(sinks(http(port))).boot()
        names = ["c", "a", "b", "d"]
        turns = {name: daemon.start(name, held(f"go-{name}")).content["turn"] for name in sorted(names)}
        for name in names:
            daemon.open_gate(f"go-{name}")
            daemon.loose_end(name)
        all_delivered(daemon)
        assert receiver.keys == [turns[name] for name in names]


def test_a_lost_answer_brings_the_same_loose_end_under_the_same_key(make_daemon: MakeDaemon) -> None:
    """E3: the receiver stored it and then went away."""
    answers = iter([None, answer(503), OK])
    with receiving(lambda _request: next(answers)) as (receiver, port):
        daemon = make_daemon(sinks(http(port))).boot()
        end = daemon.play("a", success())
        requests = receiver.received(3)
        all_delivered(daemon)
    assert {request.key for request in requests} == {end["id"]}
    assert len({request.body for request in requests}) == 1
    assert len(receiver.requests) == 3


def test_a_sink_that_is_down_over_restarts_gets_everything_once_it_is_up(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """D8, E7: meanwhile it shows; another sink has long had it; closed ones come as well."""
    port = unused_port()
    got = tmp_path / "got"
    daemon = make_daemon(
        sinks(http(port, "/s3cret"), command(f"cat >>{got}; echo >>{got}", name="file"))
    ).boot()
    ends = [daemon.play(name, success()) for name in ("b", "a")]
    daemon.ok("close_loose_ends", ids=[ends[0]["id"]])
    for _ in range(2):
        eventually(lambda: len(got.read_text().splitlines()) == 2, what="the other sink served")
        trouble = f"sink http://127.0.0.1:{port} does not take loose ends: there is no connection"
        again = "2 loose ends not delivered, which is tried again by itself."
        assert eventually(lambda: warnings(daemon)) == [f"{trouble}: Connection refused; {again}"]
        assert status(daemon)["undelivered"] == 2
        daemon.restart()
    ends.append(daemon.play("c", success()))
    with receiving(port=port) as (receiver, _):
        all_delivered(daemon, within=20)
        assert receiver.keys == [end["id"] for end in ends]
    assert [request.content["closed_at"] is None for request in receiver.requests] == [False, True, True]
    assert len(got.read_text().splitlines()) == 3
    assert "s3cret" not in daemon.log
    assert "does not take loose ends: there is no connection" in daemon.log


def test_a_refused_notice_steps_aside_and_later_ones_pass(make_daemon: MakeDaemon) -> None:
    """After five tries with growing pauses; it stays visible, also after a restart, until it is taken."""
    mended: list[bool] = []

    def answers(request: Request) -> bytes:
        return answer(422) if request.content["name"] == "poison" and not mended else OK

    with receiving(answers) as (receiver, port):
        daemon = make_daemon(sinks(http(port, name="hook"))).boot()
        poison = daemon.play("poison", success())
        good = daemon.play("good", success())
        receiver.received(6, within=30)
        assert receiver.keys[:6] == [poison["id"]] * 5 + [good["id"]]
        eventually(lambda: status(daemon)["undelivered"] == 1, what="only one undelivered")
        [warning] = warnings(daemon)
        assert warning.startswith(
            "sink hook has refused 1 loose end again and again (it answered with status 422)"
        )
        assert poison["id"] in warning
        daemon.restart()
        receiver.received(7)
        eventually(lambda: warnings(daemon) == [warning], what="the warning again")
        mended.append(True)
        daemon.restart()
        all_delivered(daemon)
        assert warnings(daemon) == []
        assert receiver.keys[6:] == [poison["id"]] * 2


def test_a_sink_that_hangs_holds_up_neither_turns_nor_tools_nor_the_stop(make_daemon: MakeDaemon) -> None:
    with receiving(lambda _request: HANGS) as (hung, port), receiving() as (other, second):
        slow = command("trap '' TERM; sleep 300 & echo $$ $! >pids; wait", name="slow")
        daemon = make_daemon(sinks(http(port), http(second), slow)).boot()
        ends = [daemon.play(name, success()) for name in ("a", "b")]
        other.received(2)
        pids_file = daemon.folder / "pids"
        eventually(lambda: pids_file.exists() and len(pids_file.read_text().split()) == 2)
        pids = [int(word) for word in pids_file.read_text().split()]
        assert status(daemon)["undelivered"] == 2
        assert daemon.stop() == 0
        assert not any(is_alive(pid) for pid in pids)
        assert (hung.keys, other.keys) == ([ends[0]["id"]], [end["id"] for end in ends])


def test_a_program_that_a_crashed_daemon_left_is_killed_before_it_is_run_again(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    daemon = make_daemon(sinks(command(f"[ -e {pids} ] && exit 0; echo $$ >{pids}; exec sleep 300"))).boot()
    daemon.play("a", success())
    eventually(lambda: pids.exists() and pids.read_text().strip(), what="the program")
    pid = int(pids.read_text())
    daemon.kill()
    assert is_alive(pid)
    daemon.boot()
    all_delivered(daemon)
    assert not is_alive(pid)


def test_turns_that_a_stop_ends_are_delivered_before_the_daemon_is_gone(make_daemon: MakeDaemon) -> None:
    with receiving() as (receiver, port):
        daemon = make_daemon(sinks(http(port))).boot()
        turn = daemon.start("a", endless()).content["turn"]
        assert daemon.stop() == 0
        [request] = receiver.requests
    assert (request.key, request.content["cause"]) == (turn, "daemon stopped")


def test_a_new_sink_gets_only_what_ends_from_then_on_and_a_removed_one_is_forgotten(
    make_daemon: MakeDaemon,
) -> None:
    with receiving() as (receiver, port):
        daemon = make_daemon(sinks(http(unused_port()))).boot()
        before = daemon.play("a", success())
        assert status(daemon)["undelivered"] == 1
        daemon.stop()
        daemon.setting = sinks(http(port))
        daemon.boot()
        assert status(daemon)["undelivered"] == 0
        assert "1 not delivered to sinks that are no longer configured" in daemon.log
        after = daemon.play("b", success())
        all_delivered(daemon)
        assert receiver.keys == [after["id"]]
        assert [end["id"] for end in daemon.loose_ends("a")] == [before["id"]]


def test_a_named_sink_may_move_with_what_waits_for_it(make_daemon: MakeDaemon) -> None:
    with receiving() as (receiver, port):
        daemon = make_daemon(sinks(http(unused_port(), name="hook"))).boot()
        end = daemon.play("a", success())
        daemon.stop()
        daemon.setting = sinks(http(port, "/elsewhere", name="hook"))
        daemon.boot()
        all_delivered(daemon)
        assert receiver.keys == [end["id"]]


def test_a_program_that_is_not_there_or_fails_shows_and_is_tried_again(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    program = tmp_path / "late"
    once = tmp_path / "once"
    daemon = make_daemon(
        sinks(
            {"type": "command", "argv": [str(program), "an argument"]},
            command(f"[ -e {once} ] || {{ touch {once}; exit 3; }}", name="fails-once"),
        )
    ).boot()
    daemon.play("a", success())
    late = "sink late does not take loose ends: it cannot be executed: No such file or directory"
    eventually(lambda: any(one.startswith(late) for one in warnings(daemon)), what="the warning")
    eventually(lambda: "sink fails-once takes loose ends again" in daemon.log, within=10)
    assert "sink fails-once does not take loose ends: its exit code was 3" in daemon.log
    program.write_text(f'#!/bin/sh\nexec >{tmp_path}/done; echo "$1"\n')
    program.chmod(0o755)
    all_delivered(daemon, within=15)
    assert (tmp_path / "done").read_text() == "an argument\n"


def test_systemd_is_told_of_a_sink_in_trouble(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "n"))
        notified.settimeout(10)
        setting = sinks(http(unused_port(), name="hook"))
        daemon = make_daemon(
            replace(setting, outer_environment={"NOTIFY_SOCKET": str(tmp_path / "n")})
        ).boot()
        daemon.play("a", success())
        wanted = "STATUS=sink hook does not take loose ends: there is no connection: Connection refused; "
        while not (told := notified.recv(4096).decode()).startswith(wanted):
            pass
        assert told == f"{wanted}0 running, 1 loose end"


@pytest.mark.parametrize("count", [32])
def test_many_sinks_are_served_at_once(make_daemon: MakeDaemon, count: int) -> None:
    with receiving() as (receiver, port):
        daemon = make_daemon(sinks(*(http(port, f"/{number}") for number in range(count)))).boot()
        ends = [daemon.play(name, [init(), *success()]) for name in ("a", "b")]
        all_delivered(daemon, within=20)
    for number in range(count):
        own = [one.key for one in receiver.requests if one.line == f"POST /{number} HTTP/1.1"]
        assert own == [end["id"] for end in ends]
