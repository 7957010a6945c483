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
    from pathlib import Path

    from tests.support.daemon_harness import Daemon

STARTS = 40
WARM_UP = 5
TRANSCRIPTS = 500
TRANSCRIPT_BYTES = 5_000_000


def measure() -> list[Figure]:
    """Compare in turn: `start`, a bare spawn, and `start` in a folder with 500 transcripts of 5 MB."""
    with daemon(environment={}) as running:
        full_folder = running.folder / "full"
        full_folder.mkdir()
        _write_transcripts(running, full_folder)
        first = _start(running, "first", full_folder)
        few: list[float] = []
        many: list[float] = []
        bare: list[float] = []
        for number in range(WARM_UP + STARTS):
            few.append(_start(running, f"few-{number}", running.work))
            many.append(_start(running, f"many-{number}", full_folder))
            bare.append(_bare_spawn())
    few, many, bare = few[WARM_UP:], many[WARM_UP:], bare[WARM_UP:]
    return [
        Figure(
            "start answered, beyond a bare spawn of the same stub",
            median_ms(few) - median_ms(bare),
            15,
            "ms",
            f"median of {STARTS}: start {median_ms(few):.1f} ms, bare {median_ms(bare):.1f} ms, tmpfs",
        ),
        Figure(
            "start with 500 transcripts of 5 MB, against few",
            median_ms(many) / median_ms(few),
            1.2,
            "times",
            f"{median_ms(many):.1f} ms, {median_ms(few):.1f} ms; the very first {first * 1000:.0f} ms",
        ),
    ]


def _start(running: Daemon, name: str, folder: Path) -> float:
    """Start a subagent in a folder and wait for its end; return the seconds of the call."""
    arguments = {"name": name, "prompt_file": str(running.work / "recipe.md"), "dir": str(folder)}
    answer = call_tool(running.port, "start", arguments)
    assert not answer.is_error, answer.text
    running.finished(name)
    return answer.seconds


def _bare_spawn() -> float:
    """Return how long fork and exec of the stub take for a plain parent."""
    began = time.monotonic()
    process = subprocess.Popen([STUB], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    process.wait()
    return seconds


def _write_transcripts(running: Daemon, folder_of_work: Path) -> None:
    """Fill claude's project folder of a working directory with titled sessions."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(folder_of_work))
    folder = running.home / ".claude" / "projects" / slug
    folder.mkdir(parents=True, exist_ok=True)
    line = '{"type":"user","message":{"role":"user","content":"' + "word " * 400 + '"}}\n'
    body = (line * (TRANSCRIPT_BYTES // len(line))).encode()
    for number in range(TRANSCRIPTS):
        session = f"{number:08x}-0000-4000-8000-000000000000"
        title = f'{{"type":"custom-title","customTitle":"old-{number}","sessionId":"{session}"}}\n'
        (folder / f"{session}.jsonl").write_bytes(title.encode() + body + title.encode())
    os.sync()
