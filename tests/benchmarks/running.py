"""What running turns cost the daemon: processor time while they write, memory, and the answer of `status`."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure, cpu_seconds, median_ms, private_kib
from tests.benchmarks.setting import WRITING_STUB, bare_server, daemon, kept_alive, pid_of
from tests.support.mcp_call import call_tool

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

CHATTY = 50
CHATTY_SECONDS = 20
QUIET = 50
FAT = 100
CALLS = 300


def measure_chatty() -> list[Figure]:
    """Let 50 subagents write 1,000 lines a second each."""
    with daemon(stub=WRITING_STUB, environment={"BENCH_WRITES": "rate 1000"}, max_running=CHATTY) as running:
        _start_many(running, CHATTY)
        time.sleep(2)  # the load itself: starting is not part of it
        pid = pid_of(running)
        before, began = cpu_seconds(pid), time.monotonic()
        written = _output_bytes(running)
        time.sleep(CHATTY_SECONDS)
        share = 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)
        rate = (_output_bytes(running) - written) / CHATTY_SECONDS / 1e6
    return [
        Figure(
            "processor time of the daemon under 50 subagents of 1,000 lines/s",
            share,
            5,
            "% of a core",
            f"over {CHATTY_SECONDS} s, {rate:.1f} MB/s of output in all",
        )
    ]


def measure_memory() -> list[Figure]:
    """Compare the idle daemon with the bare server, and 50 running turns with none."""
    with (
        bare_server() as (bare_pid, bare_port),
        daemon(environment={"STUB_SH_MODE": "stay"}, max_running=QUIET) as running,
    ):
        for _ in range(5):
            call_tool(bare_port, "status", {})
            call_tool(running.port, "status", {})
        pid = pid_of(running)
        idle, bare = private_kib(pid), private_kib(bare_pid)
        _start_many(running, QUIET)
        time.sleep(3)  # several looks at the output
        each = (private_kib(pid) - idle) / QUIET
    return [
        Figure(
            "private memory of the idle daemon, against a bare SDK server",
            idle / bare,
            1.25,
            "times",
            f"{idle} KiB against {bare} KiB",
        ),
        Figure("private memory for each running turn", each, 200, "KiB", f"with {QUIET} of them"),
    ]


def measure_status() -> list[Figure]:
    """Compare a constant tool with `status` of one among 100 subagents, each with 50 MB in lines of 1 MB."""
    with (
        bare_server() as (_, bare_port),
        daemon(stub=WRITING_STUB, environment={"BENCH_WRITES": "fat 50"}, max_running=FAT) as running,
    ):
        _start_many(running, FAT)
        time.sleep(20)  # all has been written and looked at
        ours: list[float] = []
        constant: list[float] = []
        with kept_alive(running.port) as daemon_call, kept_alive(bare_port) as bare_call:
            for _ in range(CALLS):
                ours.append(daemon_call("status", {"name": "s-7"}))
                constant.append(bare_call("status", {}))
    ratio = statistics.median(ours) / statistics.median(constant)
    how = f"p50 of {CALLS} calls: {median_ms(ours):.2f} ms against {median_ms(constant):.2f} ms"
    return [
        Figure("status of one among 100, against a tool that returns a constant", ratio, 1.3, "times", how)
    ]


def _start_many(running: Daemon, count: int) -> None:
    for number in range(count):
        running.ok("start", name=f"s-{number}", prompt_file=str(running.work / "recipe.md"))


def _output_bytes(running: Daemon) -> int:
    return sum((folder / "stdout").stat().st_size for folder in running.turn_folders())
