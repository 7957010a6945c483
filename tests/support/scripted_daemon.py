"""A daemon with scripted turns, whatever runs it: its folders, its configuration, and calls to it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.mcp_call import Answer, call_tool
from tests.support.processes import eventually, turn_processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPOSITORY = Path(__file__).resolve().parents[2]
Step = dict[str, Any]


def toml(settings: Mapping[str, Any]) -> str:
    """Render settings as TOML: plain values first, then one table for each mapping."""
    plain = [f"{key} = {toml_value(value)}" for key, value in settings.items() if not isinstance(value, dict)]
    tables = [
        "\n".join([f"[{key}]", *(f'"{inner}" = {toml_value(value)}' for inner, value in table.items())])
        for key, table in settings.items()
        if isinstance(table, dict)
    ]
    return "\n".join([*plain, *tables, ""])


def toml_value(value: object) -> str:
    """Render one value; a mapping becomes an inline table."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {toml_value(inner)}' for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(inner) for inner in value) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)


@dataclass(frozen=True)
class Setting:
    """How a daemon under test differs from the usual one; each mapping is laid over the usual values."""

    top: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outer_environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    arguments: Sequence[str] = ()


class ScriptedDaemon:
    """The folders of one daemon and the calls to it; what starts and stops it comes with a subclass."""

    def __init__(self, folder: Path, claude: Path, setting: Setting | None = None) -> None:
        """Lay out the folders; nothing runs yet."""
        self.folder = folder
        self.setting = setting or Setting()
        self.claude = claude
        self.scripts = folder / "scripts"
        self.work = folder / "work"
        self.home = folder / "home"
        for made in (self.scripts, self.work, self.home):
            made.mkdir(parents=True, exist_ok=True)
        self.state = Path(self.setting.top.get("state_dir", folder / "state"))
        self.port = 0
        (self.work / "recipe.md").write_text("Be brief.\n")

    def write_config(self) -> Path:
        """Write the configuration file of this daemon and return its path."""
        usual: dict[str, Any] = {
            "agent": "stub",
            "claude": self.claude,
            "work_dir": self.work,
            "state_dir": self.state,
            "listen": ["127.0.0.1:0"],
            "allow_root": True,
        }
        settings = usual | dict(self.setting.top)
        settings["limits"] = {"max_running": 64, "exit_grace_seconds": 0.5} | dict(self.setting.limits)
        settings["environment"] = {"STUB_SCRIPTS": self.scripts} | dict(self.setting.environment)
        settings |= {f"{table}": dict(values) for table, values in self.setting.tables.items()}
        path = self.folder / "config.toml"
        path.write_text(toml(settings))
        return path

    def environment(self) -> dict[str, str]:
        """Return the environment that the daemon itself runs in."""
        usual = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return usual | {"PYTHONPATH": str(REPOSITORY)} | dict(self.setting.outer_environment)

    def call(self, tool: str, **arguments: object) -> Answer:
        """Call a tool and return its answer, refusals included."""
        return call_tool(self.port, tool, arguments)

    def ok(self, tool: str, **arguments: object) -> Answer:
        """Call a tool that must not refuse."""
        answer = self.call(tool, **arguments)
        assert not answer.is_error, f"{tool} refused: {answer.text}"
        return answer

    def refused(self, tool: str, **arguments: object) -> str:
        """Call a tool that must refuse, and return its reason."""
        answer = self.call(tool, **arguments)
        assert answer.is_error, f"{tool} did not refuse: {answer.text}"
        assert answer.text.strip(), "a refusal without a reason"
        return answer.text

    def script(self, name: str, *turns: Sequence[Step]) -> None:
        """Lay down what claude does in each turn of this subagent, from now on."""
        for old in self.scripts.glob(f"{name}.taken.*"):
            old.unlink()
        partial = self.scripts / f"{name}.json.partial"
        partial.write_text(json.dumps([list(turn) for turn in turns]))
        partial.rename(self.scripts / f"{name}.json")

    def start(self, name: str, *turns: Sequence[Step], **arguments: object) -> Answer:
        """Script a subagent and start it."""
        if turns:
            self.script(name, *turns)
        filled: dict[str, object] = {"name": name, "prompt_file": str(self.work / "recipe.md")}
        return self.ok("start", **(filled | arguments))

    def play(self, name: str, *turns: Sequence[Step], **arguments: object) -> dict[str, Any]:
        """Start a subagent, wait for its end and return the loose end."""
        turn: str = self.start(name, *turns, **arguments).content["turn"]
        return self.loose_end(name, turn=turn)

    def resume(self, name: str, prompt: str = "go on", **arguments: object) -> dict[str, Any]:
        """Continue a subagent, wait for its end and return the loose end."""
        turn: str = self.ok("continue", name=name, prompt=prompt, **arguments).content["turn"]
        return self.loose_end(name, turn=turn)

    def loose_ends(self, name: str) -> list[dict[str, Any]]:
        """Return the open loose ends of one subagent, oldest first."""
        found: list[dict[str, Any]] = self.ok("get_loose_ends", name=name, limit=100).content["loose_ends"]
        return found

    def loose_end(self, name: str, *, turn: str | None = None, within: float = 10.0) -> dict[str, Any]:
        """Wait for the loose end of a turn (none named: the newest) and return it."""

        def arrived() -> list[dict[str, Any]]:
            return [end for end in self.loose_ends(name) if turn in (None, end["turn"])]

        return eventually(arrived, within=within, what=f"a loose end of {name}")[-1]

    def status_of(self, name: str) -> dict[str, Any]:
        """Return what `status` says of one subagent."""
        subagents = self.ok("status", name=name).content["subagents"]
        assert [one["name"] for one in subagents] == [name]
        found: dict[str, Any] = subagents[0]
        return found

    def open_gate(self, gate: str) -> None:
        """Let the turns that wait for this gate go on."""
        (self.scripts / gate).touch()

    def reached(self, mark: str, *, within: float = 10.0) -> None:
        """Wait until a turn has come to this mark."""
        eventually((self.scripts / mark).exists, within=within, what=f"mark {mark}")

    def seen(self, dump: str, *, within: float = 10.0) -> dict[str, Any]:
        """Wait for what a turn wrote down about its own start, and return it."""
        self.reached(dump, within=within)
        content: dict[str, Any] = json.loads((self.scripts / dump).read_text())
        return content

    def recorded_pid(self, record: str) -> int:
        """Wait for the pid that a child wrote down."""
        self.reached(record)
        return int((self.scripts / record).read_text())

    def processes(self) -> list[int]:
        """Return the living processes of this daemon's turns, by the marks in their environment."""
        return turn_processes(self.scripts)

    def transcripts(self, folder: Path | None = None) -> list[Path]:
        """Return every file in claude's project folder of a working directory, sorted."""
        slug = re.sub(r"[^A-Za-z0-9]", "-", str(folder or self.work))
        return sorted((self.home / ".claude" / "projects" / slug).glob("*.jsonl*"))

    def turn_folders(self) -> list[Path]:
        """Return the folders of turns in the state directory, oldest first."""
        turns = self.state / "turns"
        return sorted(turns.iterdir()) if turns.is_dir() else []

    def turn_folder(self, turn: str) -> Path:
        """Return the folder of one turn, whose name begins with the turn's id."""
        [folder] = [path for path in self.turn_folders() if path.name.startswith(turn)]
        return folder

    def finished(self, name: str, *, within: float = 10.0) -> dict[str, Any]:
        """Wait until this subagent runs no more, and return how its last turn ended."""
        eventually(lambda: self.status_of(name)["state"] != "running", within=within, what=f"{name} ending")
        ended: dict[str, Any] = self.status_of(name)["last_turn"]
        return ended

    def end_all_turns(self) -> None:
        """Kill whatever still runs, and see to it that no process is left."""
        for subagent in self.ok("status").content["subagents"]:
            if subagent["state"] == "running":
                self.call("interrupt", name=subagent["name"], force=True)
        eventually(lambda: not self.processes(), what=f"no process left of {self.folder}")
