"""The daemon with the real claude: scrubbed of everything that is the user's, and patient enough."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from typing_extensions import Unpack, override

from hive_subagent_daemon import procfs
from tests.support.daemon_harness import REPOSITORY, Daemon, Setting
from tests.support.processes import environment_of, eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.offline_model import OfflineModel

TURN_SECONDS = 60.0
PATH = "/usr/local/bin:/usr/bin:/bin"
# No request leaves this machine, whatever a version of claude may want to report.
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}


class Differences(TypedDict, total=False):
    """How a daemon differs from the usual one; a variable that is None is taken out of `[environment]`."""

    top: Mapping[str, Any]
    limits: Mapping[str, Any]
    environment: Mapping[str, str | None]
    servers: Mapping[str, Mapping[str, Any]]
    outer: Mapping[str, str]


class MakeDaemon(Protocol):
    """Makes a daemon that does not run yet."""

    def __call__(self, **differences: Unpack[Differences]) -> RealDaemon:
        """Return it, in a folder of its own."""
        ...


def version_of(program: Path) -> tuple[int, ...]:
    """Ask a claude for its version."""
    environment = {"PATH": PATH, "HOME": os.devnull}
    told = subprocess.run(
        [program, "--version"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", told.stdout)
    assert found is not None, told.stdout
    return tuple(int(part) for part in found.groups())


def claude_environment(home: Path, model: OfflineModel) -> dict[str, str]:
    """Return what a claude needs to be at home in a folder and to talk to the offline model."""
    return {"HOME": str(home), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "offline", **QUIET}


def tool_call(tool: str, arguments: Mapping[str, object]) -> str:
    """Return the directive for a call whose arguments may hold directives: their brackets are escaped."""
    escaped = json.dumps(arguments).replace("[", "\\u005b").replace("]", "\\u005d")
    return f"[[tool: {tool} {escaped}]]"


def helper(prompt: str, **arguments: object) -> str:
    """Return the directive for a call of a helper of claude's own, which gets this prompt."""
    usual = {"description": "a helper", "subagent_type": "general-purpose", "prompt": prompt}
    return tool_call("Agent", usual | arguments)


def setting_for(folder: Path, model: OfflineModel, **differences: Unpack[Differences]) -> Setting:
    """Return the setting of a daemon in a folder."""
    child = claude_environment(folder / "home", model) | dict(differences.get("environment", {}))
    # The daemon itself knows no HOME: what claude needs comes through [environment] alone.
    own = {"PATH": PATH, "LANG": "C.UTF-8", "PYTHONPATH": str(REPOSITORY), **differences.get("outer", {})}
    servers = differences.get("servers")
    return Setting(
        top={"agent": "real", **differences.get("top", {})},
        limits={"exit_grace_seconds": 30, **differences.get("limits", {})},
        environment={name: value for name, value in child.items() if value is not None},
        tables={"mcp_servers": servers} if servers else {},
        prefix=("env", "-i", *(f"{name}={value}" for name, value in own.items())),
    )


class RealDaemon(Daemon):
    """A daemon that runs the real claude in a HOME of its own."""

    @override
    def boot(self) -> RealDaemon:
        super().boot()
        return self

    @override
    def loose_end(
        self, name: str, *, turn: str | None = None, within: float = TURN_SECONDS
    ) -> dict[str, Any]:
        return super().loose_end(name, turn=turn, within=within)

    def completed(self, name: str, prompt: str, **arguments: object) -> dict[str, Any]:
        """Start a subagent with a prompt that must complete, and return the loose end."""
        return _completed(self.play(name, trigger=prompt, **arguments))

    def continued(self, name: str, prompt: str, **arguments: object) -> dict[str, Any]:
        """Continue a subagent with a prompt that must complete, and return the loose end."""
        return _completed(self.resume(name, prompt, **arguments))

    def begin(self, name: str, prompt: str, **arguments: object) -> dict[str, Any]:
        """Start a subagent with a prompt and return the answer of `start` at once."""
        return self.start(name, trigger=prompt, **arguments).content

    def does(self, name: str, kind: str, *, tool: str | None = None) -> None:
        """Wait until `status` says that a subagent is at this kind of activity."""

        def at_it() -> bool:
            activity = self.status_of(name).get("activity") or {"kind": "none"}
            return activity["kind"] == kind and tool in (None, activity.get("tool"))

        eventually(at_it, within=TURN_SECONDS, what=f"{name} being at {kind} {tool or ''}")

    def transcript(self, session_id: str, folder: Path | None = None) -> Path:
        """Return where claude keeps a session that was run in a folder; it must be there."""
        [found] = [path for path in self.transcripts(folder) if path.name == f"{session_id}.jsonl"]
        return found

    def wrote_down(self, word: str) -> None:
        """Wait until claude has a word on disk: it writes its sessions a tenth of a second late."""

        def is_there() -> bool:
            return any(word.encode() in path.read_bytes() for path in self.transcripts())

        eventually(is_there, within=TURN_SECONDS, what=f"{word!r} being in a transcript")

    @property
    def config_file(self) -> Path:
        """claude's own global file."""
        return self.home / ".claude.json"

    def at_home(self) -> list[int]:
        """Return every living process with this HOME, but for a claude that is asked for its version."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        home = str(self.home)
        found = [pid for pid in pids if environment_of(pid).get("HOME") == home and is_alive(pid)]
        return [pid for pid in found if b"--version" not in procfs.command_line(pid).split(b"\0")]

    @override
    def shut(self) -> None:
        """Stop the daemon if it runs; fail when anything with this HOME is left."""
        died = self.process.poll() if self.process is not None else None
        super().shut()
        left = self.at_home()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert died is None, f"the daemon ended by itself with {died}:\n{self.log[-5000:]}"
        assert not left, f"processes left in {self.home}: {left}"


def _completed(end: dict[str, Any]) -> dict[str, Any]:
    told = {key: end[key] for key in ("outcome", "cause", "error_class", "error", "text", "warnings")}
    assert end["outcome"] == "completed", told
    return end
