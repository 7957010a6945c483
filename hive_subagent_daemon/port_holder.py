"""Name the process that listens on a TCP port already: the part of an error message that saves a search."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from hive_subagent_daemon.sock_diag import LISTEN, SocketFacts, sockets_on_port

PROC: Final = Path("/proc")


def port_holder(port: int) -> str | None:
    """Return who listens on the port in words, as far as we may know; None when nobody is found."""
    listening = [
        facts for facts in sockets_on_port(port, proc_net=PROC / "self/net") if facts.state == LISTEN
    ]
    if not listening:
        return None
    return _process_of(listening[0]) or f"a process of uid {listening[0].uid}"


def _process_of(facts: SocketFacts) -> str | None:
    """Find the process among those whose descriptors we may see: our own ones, for root all."""
    wanted = f"socket:[{facts.inode}]"
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if descriptor.is_symlink() and str(descriptor.readlink()) == wanted:
                    name = (process / "comm").read_text(errors="replace").strip()
                    return f"process {process.name} ({name})"
    return None
