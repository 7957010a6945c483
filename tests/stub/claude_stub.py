"""A scripted stand-in for the `claude` program: it says what a test wrote down and keeps claude's manners.

It runs under `python -IS` with the standard library only, so that it starts in about 15 ms (the fixture
`claude_program` writes the little file that a daemon executes). The steps come
from `$STUB_SCRIPTS/<name>.json` (a list of turns, each a list of steps; the last turn repeats), chosen by the
title of the session, or from `default.json`. What is not scripted follows claude 2.1.197: it reads stdin to
its end first, keeps sessions and titles under the config directory, refuses what claude refuses in claude's
own words, and ends by INT with 0, by TERM with 143, by HUP with 129.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.stub.stub_call import answer_of, tool_answer
from tests.stub.stub_dump import what_a_child_sees
from tests.stub.stub_sessions import VERSION, Sessions, refuse, write_all
from tests.stub.stub_stream import Lines, aborted, answer_to, answered, replayed, text_of

VALUE_FLAGS = (
    "--output-format",
    "--input-format",
    "--session-id",
    "--name",
    "--resume",
    "--append-system-prompt-file",
    "--model",
    "--mcp-config",
    "--max-budget-usd",
    "--max-turns",
)
BARE_FLAGS = (
    "--print",
    "--verbose",
    "--dangerously-skip-permissions",
    "--strict-mcp-config",
    "--include-partial-messages",
    "--replay-user-messages",
)
STDIN_LIMIT_BYTES = 10_000_000
GATE_LIMIT_SECONDS = 120.0
Step = dict[str, Any]


def parsed_flags(argv: list[str]) -> dict[str, str]:
    """Read the command line as claude does; an option value that begins with a dash needs `--flag=value`."""
    flags: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in BARE_FLAGS:
            flags[flag] = ""
        elif flag in VALUE_FLAGS:
            flags[flag] = value if equals else next(words, "")
            if not equals and flags[flag].startswith("-"):
                refuse(f"error: unknown option '{flags[flag]}'")
        else:
            refuse(f"error: unknown option '{word}'")
    return flags


class Stub:
    """One scripted turn."""

    def __init__(self, flags: dict[str, str]) -> None:
        """Check what claude checks first, and find out which session this is."""
        self.flags = flags
        self.sessions = Sessions()
        self.check_start_up()
        self.session_id, self.name = self.identity()
        self.stdin = b""
        self.lines = Lines() if flags.get("--input-format") == "stream-json" else None
        self.failed = False
        self.scripts = Path(os.environ["STUB_SCRIPTS"])
        self.sequence = 0

    def check_start_up(self) -> None:
        """Refuse what claude refuses before it looks at the prompt."""
        skips = "--dangerously-skip-permissions"
        if skips in self.flags and os.getuid() == 0 and not os.environ.get("IS_SANDBOX"):
            refuse(f"{skips} cannot be used with root/sudo privileges for security reasons")
        prompt_file = self.flags.get("--append-system-prompt-file")
        if prompt_file is None:
            return
        reading = "Error reading append system prompt file"
        try:
            Path(prompt_file).read_bytes()
        except FileNotFoundError:
            refuse(f"Error: Append system prompt file not found: {prompt_file}")
        except IsADirectoryError:
            refuse(f"{reading}: EISDIR: illegal operation on a directory, read")
        except PermissionError:
            refuse(f"{reading}: EACCES: permission denied, open '{prompt_file}'")

    def identity(self) -> tuple[str, str]:
        """Return session id and title, or refuse as claude does when a session is unknown or taken."""
        wanted = self.flags.get("--resume")
        if wanted is not None:
            return self.sessions.resumed(wanted)
        own = f"{os.urandom(4).hex()}-0000-4000-8000-{os.urandom(6).hex()}"
        session_id = self.flags.get("--session-id", own)
        if self.sessions.transcript(session_id).exists():
            refuse(f"Error: Session ID {session_id} is already in use.")
        return session_id, self.flags.get("--name", "")

    def turn_steps(self) -> list[Step]:
        """Return the steps of this turn and count it, so that the next one gets the next list."""
        script = self.scripts / f"{self.name}.json"
        if not script.exists():
            script = self.scripts / "default.json"
        turns: list[list[Step]] = json.loads(script.read_text())
        number = 0
        while True:
            try:
                os.close(os.open(self.scripts / f"{self.name}.taken.{number}", os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                number += 1
            else:
                return turns[min(number, len(turns) - 1)]

    def read_prompt(self) -> None:
        """Read stdin to its end and do what claude does with an empty, blank, huge or slash prompt.

        Of messages only the first is read.
        """
        if self.lines is not None:
            first = self.lines.next()
            if first is None:
                os._exit(0)
            self.take(first)
            self.stdin = text_of(first).encode()
            return
        while chunk := os.read(0, 1 << 20):
            self.stdin += chunk
        if len(self.stdin) > STDIN_LIMIT_BYTES:
            advice = "Pass large content as a file path in your prompt instead."
            refuse(f"Error: piped stdin input exceeds 10MB. {advice}")
        if not self.stdin:
            where = "either through stdin or as a prompt argument when using --print"
            refuse(f"Error: Input must be provided {where}")
        if not self.stdin.strip():
            os._exit(0)
        if self.stdin.startswith(b"/"):
            word = self.stdin.split()[0].decode(errors="replace")
            result = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 0}
            self.emit(result | {"result": f"Unknown command: {word}", "total_cost_usd": 0})
            self.leave(0)

    def emit(self, event: Step) -> None:
        """Print one event as a line, with the session id and an id of its own."""
        self.sequence += 1
        own = {"session_id": self.session_id, "uuid": f"00000000-0000-4000-8000-{self.sequence:012d}"}
        own |= {"uuid": event["uuid"]} if event.get("isReplay") else {}
        write_all(1, json.dumps(event | own, ensure_ascii=False).encode() + b"\n")

    def leave(self, code: int) -> NoReturn:
        """Exit in the normal way, which takes this process out of the registry of live sessions."""
        self.sessions.live.unlink(missing_ok=True)
        os._exit(code)

    def on_signal(self, number: int, steps: list[Step] | None) -> None:
        """Let a signal run these steps (none: exit as claude does)."""
        codes = {signal.SIGINT: 0, signal.SIGTERM: 143, signal.SIGHUP: 129}

        def arrived(received: int, _frame: object) -> None:
            if steps is None:
                self.leave(codes[signal.Signals(received)])
            self.run(steps)

        signal.signal(number, arrived)

    def run(self, steps: list[Step]) -> None:
        """Carry out the steps in order."""
        for step in steps:
            getattr(self, f"do_{step['do']}")(step)

    def take(self, event: Step) -> None:
        """Take a message, and show it again where that is wanted."""
        if "--replay-user-messages" in self.flags:
            self.emit(replayed(event))

    def do_take(self, _step: Step) -> None:
        """Wait for a message in the middle of a round; the end of stdin ends only the waiting."""
        if self.lines is not None and (event := self.lines.next()) is not None:
            self.obey(event, taken=True)

    def do_listen(self, _step: Step) -> NoReturn:
        """Answer messages and requests until the end of stdin, then exit as claude does."""
        while self.lines is not None and (event := self.lines.next()) is not None:
            self.obey(event)
        self.leave(int(self.failed))

    def obey(self, event: Step, *, taken: bool = False) -> None:
        """Do what one line of stdin says; one that is only `taken` belongs to the round that goes on."""
        events: list[Step] = []
        if event["type"] == "user":
            self.take(event)
            events = [] if taken else answer_to(text_of(event))
        elif event["type"] == "control_request":
            self.emit(answered(event))
            interrupts = event["request"]["subtype"] == "interrupt"
            self.failed = self.failed or interrupts
            events = aborted() if interrupts else []
        for one in events:
            self.emit(one)

    def do_init(self, step: Step) -> None:
        """Register the session and print claude's first event."""
        self.sessions.write(self.session_id, self.name, self.stdin.decode(errors="replace"))
        servers = []
        if "--mcp-config" in self.flags:
            servers = list(json.loads(Path(self.flags["--mcp-config"]).read_text())["mcpServers"])
        event = {
            "type": "system",
            "subtype": "init",
            "cwd": str(Path.cwd()),
            "tools": ["Bash", "Edit", "Read", "Write"],
            "mcp_servers": [{"name": name, "status": "connected"} for name in servers],
            "model": self.flags.get("--model") or "claude-sonnet-4-5",
            "permissionMode": "bypassPermissions",
            "slash_commands": ["clear", "compact"],
            "apiKeySource": "ANTHROPIC_API_KEY",
            "claude_code_version": VERSION,
        }
        self.emit(event | step.get("with", {}))

    def do_event(self, step: Step) -> None:
        """Print any event."""
        self.emit(step["event"])

    def do_raw(self, step: Step) -> None:
        """Print bytes as they are, on stdout or stderr."""
        write_all(step["to"], base64.b64decode(step["bytes"]))

    def do_flood(self, step: Step) -> None:
        """Print this many bytes of events as fast as the disk takes them, in lines of this length."""
        head, tail = b'{"type":"stream_event","event":{"text":"', b'"}}\n'
        line = head + b"x" * (step["line_bytes"] - len(head) - len(tail)) + tail
        for _ in range(step["bytes"] // len(line)):
            write_all(1, line)

    def do_sleep(self, step: Step) -> None:
        """Do nothing for a while; a signal does not shorten it."""
        time.sleep(step["seconds"])

    def do_wait_for(self, step: Step) -> None:
        """Wait until a file appears in the script folder; give up with exit code 99."""
        limit = time.monotonic() + GATE_LIMIT_SECONDS
        while not (self.scripts / step["gate"]).exists():
            if time.monotonic() > limit:
                self.leave(99)
            time.sleep(0.005)

    def do_forever(self, _step: Step) -> None:
        """Stay until a signal ends it."""
        while True:
            signal.pause()

    def do_touch(self, step: Step) -> None:
        """Create a file in the script folder, so that the test knows how far the turn is."""
        (self.scripts / step["mark"]).touch()

    def do_on_signal(self, step: Step) -> None:
        """Answer a signal with steps of its own; no steps: ignore it."""
        self.on_signal(getattr(signal, step["signal"]), step["steps"])

    def do_exit(self, step: Step) -> None:
        """Exit in the normal way with this code."""
        self.leave(step["code"])

    def do_die(self, step: Step) -> None:
        """Die by this signal as if nobody had handled it."""
        number = getattr(signal, step["signal"])
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def do_call(self, step: Step) -> None:
        """Call the daemon from inside the turn and write down what it answered."""
        answer = (
            tool_answer(step["port"], step["tool"], step["arguments"])
            if step["tool"]
            else answer_of(step["port"], step["path"])
        )
        write_whole(self.scripts / step["into"], answer)

    def do_spawn(self, step: Step) -> None:
        """Start a child of its own, as a tool call would; go on when it has written its pid."""
        record = self.scripts / step["record"]
        if os.fork() == 0:
            self.become_child(step)
        while not record.exists():
            time.sleep(0.002)

    def become_child(self, step: Step) -> NoReturn:
        """Turn this forked process into the child that the step describes."""
        if step["own_session"]:
            os.setsid()
        if step["double_fork"] and os.fork():
            os._exit(0)
        if not step["holds_output"]:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
        marks = {
            "CLAUDECODE": "1",
            "CLAUDE_CODE_SESSION_ID": self.session_id,
            "CLAUDE_CODE_CHILD_SESSION": "1",
        }
        environment = {} if step["scrubbed"] else dict(os.environ) | marks
        words = [sys.executable, "-IS", sys.argv[0], "--as-child", json.dumps(step), str(self.scripts)]
        os.execve(sys.executable, words, environment)

    def do_dump(self, step: Step) -> None:
        """Write down how this process was started, for the test to look at."""
        seen = {"pid": os.getpid(), "flags": self.flags} | what_a_child_sees(self.flags, self.stdin)
        write_whole(self.scripts / step["into"], json.dumps(seen))


def write_whole(path: Path, text: str) -> None:
    """Let a file appear with its whole content."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    partial.rename(path)


def live_as_child(step: Step, scripts: Path) -> NoReturn:
    """Be a child of a tool call: say the pid, then touch a file again and again until killed."""
    for name in step["ignores"]:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    if step["calls"]:
        write_whole(scripts / f"{step['record']}.answer", answer_of(step["calls"], "/mcp"))
    write_whole(scripts / step["record"], str(os.getpid()))
    limit = time.monotonic() + step["seconds"]
    while time.monotonic() < limit:
        (scripts / f"{step['record']}.beat").write_text(str(time.monotonic()))
        time.sleep(0.02)
    os._exit(0)


def main() -> NoReturn:
    """Answer `--version`, be a child, or play one turn."""
    if sys.argv[1:] == ["--version"]:
        write_all(1, f"{VERSION} (Claude Code)\n".encode())
        os._exit(0)
    if sys.argv[1:2] == ["--as-child"]:
        live_as_child(json.loads(sys.argv[2]), Path(sys.argv[3]))
    stub = Stub(parsed_flags(sys.argv[1:]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        stub.on_signal(number, None)
    stub.read_prompt()
    stub.run(stub.turn_steps())
    stub.do_listen({})
