"""How long `start` takes beyond fork and exec of the same program, with few and many sessions on disk."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure, median_ms
from tests.benchmarks.setting import STUB, daemon
from tests.support.mcp_call import call_tool

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

STARTS = 40
TRANSCRIPTS = 500
TRANSCRIPT_BYTES = 5_000_000


def measure() -> list[Figure]:
    """Compare: the answer of `start` minus a bare spawn; the same with 500 transcripts of 5 MB."""
    with daemon(environment={}) as running:
        _starts(running, "warm", 5)
        empty = _starts(running, "few", STARTS)
        bare = [_bare_spawn() for _ in range(STARTS)]
        beyond = median_ms(empty) - median_ms(bare)
        _write_transcripts(running)
        first = _starts(running, "first", 1)[0]
        full = _starts(running, "many", STARTS)
        empty_again = median_ms(empty)
        return [
            Figure(
                "start answered, beyond a bare spawn of the same stub",
                beyond,
                15,
                "ms",
                f"median of {STARTS}: start {median_ms(empty):.1f} ms, bare {median_ms(bare):.1f} ms, tmpfs",
            ),
            Figure(
                "start with 500 transcripts of 5 MB, against few",
                median_ms(full) / empty_again,
                1.2,
                "times",
                f"{median_ms(full):.1f} ms, {empty_again:.1f} ms; the very first {first * 1000:.0f} ms",
            ),
        ]


def _starts(running: Daemon, prefix: str, count: int) -> list[float]:
    """Start that many subagents one after the other, each to its end; return the seconds of each call."""
    seconds = []
    for number in range(count):
        name = f"{prefix}-{number}"
        arguments = {"name": name, "prompt_file": str(running.work / "recipe.md")}
        answer = call_tool(running.port, "start", arguments)
        assert not answer.is_error, answer.text
        seconds.append(answer.seconds)
        running.finished(name)
    return seconds


def _bare_spawn() -> float:
    """Return how long fork and exec of the stub take for a plain parent."""
    began = time.monotonic()
    process = subprocess.Popen([STUB], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    process.wait()
    return seconds


def _write_transcripts(running: Daemon) -> None:
    """Fill claude's project folder of the working directory with titled sessions."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(running.work))
    folder = running.home / ".claude" / "projects" / slug
    folder.mkdir(parents=True, exist_ok=True)
    line = '{"type":"user","message":{"role":"user","content":"' + "word " * 400 + '"}}\n'
    body = (line * (TRANSCRIPT_BYTES // len(line))).encode()
    for number in range(TRANSCRIPTS):
        session = f"{number:08x}-0000-4000-8000-000000000000"
        title = f'{{"type":"custom-title","customTitle":"old-{number}","sessionId":"{session}"}}\n'
        (folder / f"{session}.jsonl").write_bytes(title.encode() + body + title.encode())
    os.sync()
