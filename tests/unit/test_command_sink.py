"""One attempt to hand a loose end to a program: what it gets, what its end means, that nothing is left."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import command_sink
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.command_sink import CommandCarrier
from hive_subagent_daemon.deliveries import TAKEN, Answer, Reply, failed
from hive_subagent_daemon.sink_values import CommandSink
from tests.support.processes import is_alive
from tests.unit.support_gate import shell, subreaper
from tests.unit.support_process_group import Turns, pids_in
from tests.unit.support_started import LIMIT_SECONDS, PATH, soon
from tests.unit.support_turns import open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "20260131_120000_000_abcd"
SLEEPER = 'sh -c \'echo $$ >> "$0/pids"; exec sleep 600\' "$0"'


@pytest.fixture
def children() -> Iterator[Children]:
    """Be the subreaper that the daemon is."""
    with subreaper():
        yield Children()


class Delivery:
    """Runs one program as a sink, in a folder of its own."""

    def __init__(self, folder: Path, children: Children) -> None:
        """Write what it finds out there."""
        self.folder = folder
        self.children = children
        self.name = "sink"

    async def __call__(self, *argv: str, body: bytes = b"{}") -> Answer:
        """Run a program to its end."""
        environ = {"PATH": PATH, "NOTIFY_SOCKET": "/x", "CLAUDECODE": "1", "CLAUDE_CODE_X": "1", "OWN": "yes"}
        carrier = CommandCarrier(
            CommandSink(argv, self.name), self.children, environ=environ, state_dir=self.folder
        )
        with anyio.fail_after(LIMIT_SECONDS):
            return await carrier.carry(KEY, body)

    async def script(self, text: str, body: bytes = b"{}") -> Answer:
        """Run a shell script; its `$0` is the folder."""
        return await self("sh", "-c", text, str(self.folder), body=body)


@pytest.fixture
def delivery(tmp_path: Path, children: Children) -> Delivery:
    """Run programs in the test's folder."""
    return Delivery(tmp_path, children)


async def test_the_loose_end_is_on_standard_input_up_to_its_end(delivery: Delivery) -> None:
    body = json.dumps({"text": "é" * 100_000}, ensure_ascii=False).encode()
    assert await delivery.script('cat >"$0/got"', body) == TAKEN
    assert (delivery.folder / "got").read_bytes() == body


async def test_a_program_that_reads_nothing_can_take_it_too(delivery: Delivery) -> None:
    assert await delivery("true", body=b"x" * 1_000_000) == TAKEN


async def test_the_environment_has_the_key_and_nothing_of_systemds_or_claudes(delivery: Delivery) -> None:
    assert await delivery.script('env >"$0/env"') == TAKEN
    lines = (delivery.folder / "env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    found = {name: value for name, value in found.items() if name not in {"PWD", "SHLVL", "_", "OLDPWD"}}
    mark = found.pop("HIVE_SUBAGENT_DELIVERY")
    assert re.fullmatch("[0-9a-f]{16}-[0-9a-f]{16}", mark)
    assert found == {"PATH": PATH, "OWN": "yes", "HIVE_SUBAGENT_LOOSE_END": KEY}


async def test_it_has_a_session_of_its_own_and_no_descriptors_of_ours(delivery: Delivery) -> None:
    passed = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(passed, True)
    try:
        text = 'ls /proc/$$/fd >"$0/fds"; cut -d" " -f1,6 /proc/$$/stat >"$0/ids"'
        assert await delivery.script(text) == TAKEN
    finally:
        os.close(passed)
    assert set((delivery.folder / "fds").read_text().split()) <= {"0", "1", "2", "10", "255"}
    pid, session = (delivery.folder / "ids").read_text().split()
    assert pid == session


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("exit 0", TAKEN),
        ("exit 1", failed("its exit code was 1")),
        ("exit 65", Answer(Reply.REFUSED, "its exit code was 65")),
        ("kill -TERM $$", failed("it was killed by SIGTERM")),
    ],
)
async def test_the_exit_decides(delivery: Delivery, script: str, answer: Answer) -> None:
    assert await delivery.script(script) == answer


async def test_a_program_that_is_not_there_is_a_failure(delivery: Delivery) -> None:
    missing = failed("it cannot be executed: No such file or directory")
    assert await delivery("no-such-program-anywhere") == missing
    assert await delivery(str(delivery.folder / "none")) == missing
    (delivery.folder / "text").write_text("x")
    assert await delivery(str(delivery.folder / "text")) == failed("it cannot be executed: Permission denied")
    assert await delivery("true", "x" * 3_000_000) == failed("it cannot be executed: Argument list too long")


async def test_a_program_that_takes_too_long_is_killed_with_all_that_it_started(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_sink, "RUN_SECONDS", 1.0)
    text = f"trap '' TERM INT; {SLEEPER} & setsid {SLEEPER} & (setsid {SLEEPER} &); {SLEEPER}"
    assert await delivery.script(text) == failed("it was not done within 1 s and was killed")
    pids = await pids_in(delivery.folder, count=4)
    assert not any(is_alive(pid) for pid in pids)


async def test_what_a_program_leaves_running_is_killed_when_it_ends(delivery: Delivery) -> None:
    text = f'(setsid {SLEEPER} &); while [ ! -s "$0/pids" ]; do sleep 0.01; done'
    assert await delivery.script(text) == TAKEN
    (pid,) = await pids_in(delivery.folder, count=1)
    assert not is_alive(pid)


async def test_a_cancelled_attempt_leaves_no_process(delivery: Delivery) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delivery.script, f"setsid {SLEEPER} & {SLEEPER}")
        pids = await pids_in(delivery.folder, count=2)
        tasks.cancel_scope.cancel()
    assert not any(is_alive(pid) for pid in pids)
    assert delivery.children.beside == frozenset()


async def test_what_a_crashed_daemon_left_of_the_same_sink_is_killed_first(delivery: Delivery) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delivery.script, f"setsid {SLEEPER} & {SLEEPER}")
        pids = await pids_in(delivery.folder, count=2)
        delivery.name = "another"
        assert await delivery("true") == TAKEN
        assert all(is_alive(pid) for pid in pids)
        delivery.name = "sink"
        assert await delivery("true") == TAKEN
        assert not any(is_alive(pid) for pid in pids)


async def test_attempts_leave_no_descriptor_and_no_zombie(delivery: Delivery) -> None:
    assert await delivery("true") == TAKEN
    before = open_descriptors()
    for _ in range(5):
        assert await delivery.script("(exec true &); exit 3") == failed("its exit code was 3")
        assert await delivery("no-such-program-anywhere") != TAKEN
    assert open_descriptors() == before
    delivery.children.reap_orphans()
    assert delivery.children.none_but(None)


async def test_a_program_beside_a_turn_is_not_taken_for_what_the_turn_left(tmp_path: Path) -> None:
    """Nor is what the program started and then left to us: each is killed by its own end only."""
    with subreaper():
        turns = Turns(tmp_path)
        sink = tmp_path / "sink"
        sink.mkdir()
        delivery = Delivery(sink, turns.children)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delivery.script, f"(setsid {SLEEPER} &); {SLEEPER}")
            pids = await pids_in(sink, count=2)
            turn = await turns.launch("a", *shell("(env -i PATH=$PATH setsid ../sleeper &); sleep 0.2"))
            (orphan,) = await pids_in(turns.folder("a"), count=1)
            await turns.end_of(turn)
            leftovers = await turns.empty(turn)
            assert [is_alive(pid) for pid in pids] == [True, True]
            assert not is_alive(orphan)
            assert [one for one in leftovers.strays if f"({orphan})" in one] == list(leftovers.strays)
            tasks.cancel_scope.cancel()
        await soon(lambda: not any(is_alive(pid) for pid in pids))
        await turns.kill_all()
