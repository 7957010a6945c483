"""One story of a subagent, and what must hold after the daemon was killed at some instant of it."""

from __future__ import annotations

import http.client
import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.stub.conftest import write_claude
from tests.stub.kill_notices import check_notices, shown
from tests.stub.steps import forever, init, reach, spawn, success, take
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.support.daemon_harness import Daemon

NAME = "alpha"
EARLIER_SESSION = "11111111-1111-4111-8111-111111111111"
GONE = (ConnectionError, http.client.HTTPException)
AT_ONCE = 10  # so many fit into one answer
COULD_NOT_START = "could not start"
Json = dict[str, Any]


def write_recording_claude(path: Path) -> Path:
    """Write a scripted claude that first notes, once per turn, that it runs and with which arguments."""
    stub = write_claude(path.with_name("claude.stub"))
    lines = [
        "#!/bin/sh",
        "set -eC  # a second process of the same turn does not come to run",
        'if [ "$HIVE_SUBAGENT_TURN" ]; then printf "%s\\n" "$@" >"$STUB_SCRIPTS/$HIVE_SUBAGENT_TURN.ran"; fi',
        f'exec {stub} "$@"',
    ]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


@dataclass(frozen=True)
class Confirmed:
    """What the daemon had confirmed to its parent before it was killed, and what it had told it, by turn.

    `shown` are the notices that a hook of the parent was answered with.
    """

    turns: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    told: dict[str, Json] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    def was_told(self, loose_end: Json) -> None:
        """Take note of a loose end as it was delivered."""
        self.told[loose_end["turn"]] = loose_end

    def check_told(self, daemon: Daemon) -> None:
        """What was delivered once stays so for good: the same words under the same key."""
        for end in readable(daemon, sorted(self.told)):
            same = end | {"closed_at": None}
            told = self.told[end["turn"]]
            assert same == told, f"told again in other words: {told}, then {end}"


@dataclass(frozen=True)
class Ran:
    """A turn whose program was executed, as the program itself noted it."""

    turn: str
    argv: tuple[str, ...]

    def value(self, flag: str) -> str | None:
        """Return the value of a flag in either spelling."""
        for word, following in zip(self.argv, (*self.argv[1:], ""), strict=True):
            if word == flag or word.startswith(f"{flag}="):
                return following if word == flag else word.partition("=")[2]
        return None


def lay_out(daemon: Daemon) -> None:
    """Prepare the recipes and an earlier session of the same name that this daemon does not know."""
    for number in (1, 2, 3):
        (daemon.work / f"recipe-{number}.md").write_text(f"recipe {number}\n")
    folder = project_folder(daemon)
    folder.mkdir(parents=True)
    title = {"type": "custom-title", "customTitle": NAME, "sessionId": EARLIER_SESSION}
    (folder / f"{EARLIER_SESSION}.jsonl").write_text(json.dumps(title) + "\n")
    steered = [init(), take(), *success("two")[1:]]
    with_child = [init(), spawn("child", own_session=True), reach("up"), forever()]
    daemon.script(NAME, success("one"), steered, with_child)


def project_folder(daemon: Daemon) -> Path:
    """Return claude's folder for the sessions of the working directory."""
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(daemon.work))
    return daemon.home / ".claude" / "projects" / slug


def tell(daemon: Daemon) -> Confirmed:
    """Play the story as far as the daemon lives; return what it has confirmed."""
    confirmed = Confirmed()
    with suppress(*GONE):
        refused_start(daemon)
        one = start(daemon, 1, confirmed)
        told_everywhere(daemon, one, confirmed)
        two = resume(daemon, confirmed)
        daemon.ok("steer", name=NAME, text="one more thing")
        told_everywhere(daemon, two, confirmed)
        confirmed.shown.extend(shown(daemon))
        three = start(daemon, 2, confirmed)
        daemon.reached("up")
        daemon.ok("interrupt", name=NAME)
        told_everywhere(daemon, three, confirmed)
        confirmed.closed.extend(daemon.ok("close_loose_ends", ids=[one]).content["closed"])
    return confirmed


def told_everywhere(daemon: Daemon, turn: str, confirmed: Confirmed) -> None:
    """Wait for the end of a turn, and until the sinks have it: a later crash leaves always the same."""
    confirmed.was_told(daemon.loose_end(NAME, turn=turn))
    all_delivered(daemon)


def refused_start(daemon: Daemon) -> None:
    """Start while claude cannot be executed: everything that was prepared is undone."""
    kept, broken = (daemon.claude.with_name(f"claude.{what}") for what in ("kept", "broken"))
    broken.write_text("#!/nonexistent/interpreter\n")
    broken.chmod(0o755)
    daemon.claude.rename(kept)
    broken.rename(daemon.claude)
    try:
        assert "executed" in daemon.refused("start", name=NAME, prompt_file="recipe-1.md")
    finally:
        kept.rename(daemon.claude)


def start(daemon: Daemon, recipe: int, confirmed: Confirmed) -> str:
    """Start the subagent with one of the recipes and return the turn."""
    turn: str = daemon.start(NAME, prompt_file=f"recipe-{recipe}.md").content["turn"]
    confirmed.turns.append(turn)
    return turn


def resume(daemon: Daemon, confirmed: Confirmed) -> str:
    """Continue the subagent and return the turn."""
    turn: str = daemon.ok("continue", name=NAME, prompt="go on", steerable=True).content["turn"]
    confirmed.turns.append(turn)
    return turn


def quiet(daemon: Daemon) -> None:
    """Wait until what the killed daemon left has come as far as it comes by itself."""
    arrived = daemon.scripts / "up"
    eventually(lambda: arrived.exists() or not daemon.processes(), within=20, what="the turn at its end")


def turns_that_ran(daemon: Daemon) -> list[Ran]:
    """Return the turns whose program was executed, oldest first."""
    notes = sorted(daemon.scripts.glob("*.ran"))
    return [Ran(note.stem, tuple(note.read_text().splitlines())) for note in notes]


def stored_ends(daemon: Daemon) -> dict[str, Json]:
    """Return every loose end on disk by its turn; none may be there twice."""
    ends: dict[str, Json] = {}
    for path in sorted((daemon.state / "loose-ends").glob("*.json")):  # what is half-written goes by itself
        content = json.loads(path.read_text())
        turn = content["outcome"]["turn"]
        assert turn not in ends, f"turn {turn} has two loose ends"
        assert content["id"] == path.stem == turn
        ends[turn] = content
    return ends


def check(daemon: Daemon, confirmed: Confirmed) -> None:
    """Check a daemon that was booted after a crash in the story."""
    ran = turns_that_ran(daemon)
    check_loose_ends(daemon, confirmed, ran)
    confirmed.check_told(daemon)
    opened = [end["id"] for end in daemon.loose_ends(NAME)]
    check_notices(daemon, opened=opened, was_shown=confirmed.shown)
    check_folders(daemon)
    check_archives(daemon, ran)
    assert daemon.processes() == [], "a process outlived the daemon that answers for it"
    status = daemon.status_of(NAME)
    ends = stored_ends(daemon)
    assert status["state"] in {"idle", "killed"} if ends else status["state"] == "unknown", status
    if ends:
        assert status["last_turn"]["turn"] == max(ends), "what is remembered is not the last turn"
    check_use(daemon, ran)


def check_loose_ends(daemon: Daemon, confirmed: Confirmed, ran: list[Ran]) -> None:
    """Every turn that was confirmed or ran has one loose end, which says what is true of it."""
    ends = stored_ends(daemon)
    opened = [end["id"] for end in daemon.loose_ends(NAME)]
    assert sorted(opened) == sorted(turn for turn, end in ends.items() if end["closed_at"] is None)
    assert not set(confirmed.closed) & set(opened), "a closed loose end is open again"
    executed = {one.turn for one in ran}
    missing = ({*confirmed.turns} | executed) - ends.keys()
    assert not missing, f"turns without a loose end: {missing}"
    for end in readable(daemon, sorted(ends)):
        outcome = (end["outcome"], end["cause"])
        if end["turn"] not in executed:
            assert outcome == (COULD_NOT_START, None), f"never ran, but: {outcome} {end['text']}"
        elif end["outcome"] != "completed":
            assert outcome in {("killed", "daemon stopped"), ("killed", "interrupt"), ("lost", "unknown")}
            assert daemon.scripts.joinpath("up").exists(), f"it had ended with a result, but: {outcome}"


def readable(daemon: Daemon, ids: list[str]) -> list[Json]:
    """Return loose ends as a parent reads them by id, open or closed; each can be read."""
    found: list[Json] = []
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        found += daemon.ok("get_loose_ends", ids=some).content["loose_ends"]
    assert [end["id"] for end in found] == ids, "a loose end cannot be read"
    return found


def all_delivered(daemon: Daemon) -> None:
    """Wait until nothing is to be delivered or noted any more."""

    def nothing_owed() -> bool:
        return bool(daemon.ok("status").content["undelivered"] == 0)

    eventually(nothing_owed, within=20, what="everything delivered")


def check_folders(daemon: Daemon) -> None:
    """Once all is delivered, nothing of a turn is left in the state directory, and no half-written file."""
    all_delivered(daemon)
    for kind, left in {
        "turns": daemon.turn_folders(),
        "half-written files": list(daemon.state.rglob(".*")),
        "files taken for damaged": list((daemon.state / "set-aside").iterdir()),
    }.items():
        assert not left, f"{kind} left: {left}"


def check_archives(daemon: Daemon, ran: list[Ran]) -> None:
    """Every session is there once: archived when a later start ran, else under its own name."""
    starts = [one for one in ran if one.value("--session-id")]
    sessions = [(EARLIER_SESSION, "")] + [(str(one.value("--session-id")), one.turn) for one in starts]
    expected = {
        f"{session}.jsonl" + (".archived" if any(one.turn > turn for one in starts) else "")
        for session, turn in sessions
    }
    assert {path.name for path in project_folder(daemon).iterdir()} == expected


def check_use(daemon: Daemon, ran: list[Ran]) -> None:
    """The name is free: it continues its newest session with its own instructions, and starts afresh."""
    starts = [one for one in ran if one.value("--session-id")]
    daemon.script(NAME, success("again"), success("afresh"))
    end = daemon.resume(NAME)
    assert (end["outcome"], end["text"]) == ("completed", "again"), end["error"]
    resumed = turns_that_ran(daemon)[-1]
    session = starts[-1].value("--session-id") if starts else EARLIER_SESSION
    assert end["session_id"] == session
    assert resumed.value("--resume") in {session, NAME}
    wanted = starts[-1].value("--append-system-prompt-file") if starts else None
    assert resumed.value("--append-system-prompt-file") == wanted
    copies = [str(path) for path in (daemon.state / "prompts").iterdir()]
    assert copies == ([wanted] if wanted else [])
    number = len(starts)
    assert all(Path(copy).read_text() == f"recipe {number}\n" for copy in copies)
    fresh = daemon.play(NAME, prompt_file="recipe-3.md")
    assert (fresh["outcome"], fresh["text"]) == ("completed", "afresh"), fresh["error"]
    check_archives(daemon, turns_that_ran(daemon))
    check_folders(daemon)
