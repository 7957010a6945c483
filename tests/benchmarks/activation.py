"""The first answer after socket activation, against the bare server that is activated the same way."""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure, median_ms
from tests.benchmarks.services import benchmark_service
from tests.support.mcp_call import request
from tests.support.scripted_daemon import REPOSITORY
from tests.support.sockets import free_port
from tests.systemd.managers import SYSTEM, USER, Form
from tests.systemd.service_harness import UNIT_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACTIVATIONS = 10
WARM_UP = 2
LIMIT = 1.3
BARE = "bare-server"
PROGRAM = """#!{python}
import sys
sys.path.insert(0, {repository!r})
import anyio
from tests.benchmarks.bare_server import main
anyio.run(main)
"""
SOCKET = """
[Socket]
ListenStream=127.0.0.1:{port}
"""
SERVICE = """
[Unit]
StartLimitIntervalSec=0
[Service]
User={user}
ExecStart={program}
"""


def measure() -> list[Figure]:
    """Activate the one and the other in turn, as one user; ours with the units that the package makes."""
    with benchmark_service(USER) as service, _bare_service(service.folder, USER) as bare_port:
        service.listen()
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(WARM_UP + ACTIVATIONS):
            ours.append(_first_answer(service.unit, service.port))
            bare.append(_first_answer(f"{BARE}.service", bare_port))
    ours, bare = ours[WARM_UP:], bare[WARM_UP:]
    ratio = statistics.median(ours) / statistics.median(bare)
    how = f"medians of {ACTIVATIONS}: {median_ms(ours):.0f} ms against {median_ms(bare):.0f} ms"
    what = "first answer after socket activation, against a bare SDK server"
    return [Figure(what, ratio, LIMIT, "times", how)]


def _first_answer(unit: str, port: int) -> float:
    """Return the seconds from the connection to the answer of a service that does not run, and stop it."""
    began = time.monotonic()
    request(port, "tools/list", {})
    seconds = time.monotonic() - began
    SYSTEM.systemctl("stop", "--", unit)
    return seconds


@contextmanager
def _bare_service(folder: Path, form: Form) -> Iterator[int]:
    """Let systemd listen for the bare server; yields the port."""
    port = free_port()
    program = folder / BARE
    program.write_text(PROGRAM.format(python=sys.executable, repository=str(REPOSITORY)))
    program.chmod(0o755)
    units = {UNIT_FOLDER / f"{BARE}.socket": SOCKET.format(port=port)}
    units[UNIT_FOLDER / f"{BARE}.service"] = SERVICE.format(user=form.user, program=program)
    for path, text in units.items():
        path.write_text(text)
    SYSTEM.systemctl("daemon-reload")
    SYSTEM.systemctl("start", "--", f"{BARE}.socket")
    try:
        yield port
    finally:
        SYSTEM.systemctl("stop", "--", *(path.name for path in units))
        for path in units:
            path.unlink()
