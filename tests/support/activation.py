"""Start programs as a socket unit does: with listening sockets from descriptor 3 on that others hold too."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from typing_extensions import override

from tests.support.daemon_harness import Daemon

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.scripted_daemon import Setting

# The descriptors go above every one in use first, so that none is overwritten before it has been moved.
EXEC = """
import fcntl, json, os, sys
sockets, environment, words = json.loads(sys.argv[1])
high = [fcntl.fcntl(number, fcntl.F_DUPFD, 200) for number in sockets]
os.closerange(3, 200)
for target, number in enumerate(high, 3):
    os.dup2(number, target)
os.closerange(3 + len(high), 400)
own = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(high))}
os.execvpe(words[0], words, {**os.environ, **own, **environment})
"""


def activated_words(
    words: Sequence[str], sockets: Sequence[int], environment: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command that runs `words` with these inherited descriptors passed in, by exec."""
    return [sys.executable, "-ISc", EXEC, json.dumps([list(sockets), dict(environment or {}), list(words)])]


class ActivatedDaemon(Daemon):
    """A daemon that gets its sockets from us; they stay open over all its starts."""

    def __init__(
        self, folder: Path, claude: Path, *, sockets: Sequence[socket.socket], setting: Setting | None = None
    ) -> None:
        """Lay out the folders; nothing runs yet."""
        super().__init__(folder, claude, setting)
        self.sockets = [listening.fileno() for listening in sockets]
        self.port = int(sockets[0].getsockname()[1])

    @override
    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process with the sockets passed in."""
        program = [sys.executable, "-m", "hive_subagent_daemon.daemon_main"]
        words = [*program, "--config", str(self.write_config()), *self.setting.arguments]
        names = {"LISTEN_FDNAMES": ":".join("hive.socket" for _ in self.sockets)}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                activated_words(words, self.sockets, names),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=self.folder,
                pass_fds=self.sockets,
            )
        return self.process
