"""Boot the real daemon in a folder of its own, talk to it, and make sure that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.processes import eventually
from tests.support.scripted_daemon import REPOSITORY, ScriptedDaemon, Setting, toml

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LISTENING", "REPOSITORY", "WITHOUT_OVERRIDE", "Daemon", "Setting", "toml"]

LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)/mcp")
START_LIMIT_SECONDS = 60.0
STOP_LIMIT_SECONDS = 30.0
# Root reads and writes everything; without these two rights it is like any other user.
WITHOUT_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


class Daemon(ScriptedDaemon):
    """One daemon process, its folders, and what a test does with it."""

    def __init__(self, folder: Path, claude: Path, setting: Setting | None = None) -> None:
        """Lay out the folders; nothing runs yet."""
        super().__init__(folder, claude, setting)
        self.log_file = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it to serve."""
        program = [sys.executable, "-m", "hive_subagent_daemon.daemon_main"]
        words = [
            *self.setting.prefix,
            *program,
            "--config",
            str(self.write_config()),
            *self.setting.arguments,
        ]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=self.folder,
            )
        return self.process

    def boot(self) -> Daemon:
        """Start the process and wait until it serves."""
        offset = len(self.log)
        process = self.spawn()

        def serves() -> bool:
            found = LISTENING.search(self.log[offset:])
            self.port = int(found[1]) if found else 0
            assert process.poll() is None, f"the daemon ended with {process.returncode}:\n{self.log[offset:]}"
            return found is not None

        eventually(serves, within=START_LIMIT_SECONDS, what="the daemon serving")
        return self

    def ends(self, *, within: float = STOP_LIMIT_SECONDS) -> int:
        """Wait for the process to end by itself and return its code."""
        assert self.process is not None
        code = self.process.wait(within)
        self.process = None
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask the daemon to stop and wait until it has."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.ends()

    def kill(self) -> None:
        """Kill the daemon, and nothing else, without warning."""
        assert self.process is not None
        self.process.kill()
        self.ends()

    def restart(self) -> None:
        """Stop the daemon and boot it again on the same state."""
        self.stop()
        self.boot()

    @property
    def log(self) -> str:
        """Return what the daemon has logged so far, over all its starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def shut(self) -> None:
        """Stop the daemon if it runs; fail when it does not stop or leaves a process."""
        if self.process is not None:
            try:
                self.stop(signal.SIGINT)  # for good: no turn is left for a later daemon
            finally:
                if self.process is not None:
                    self.process.kill()
                    self.ends()
        left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"processes left after the daemon: {left}\n{self.log[-3000:]}"
