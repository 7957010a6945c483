"""The stub's copy of claude's session store, and how it refuses; standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import NoReturn

VERSION = "2.1.197"


def refuse(message: str) -> NoReturn:
    """End as claude does on a start-up error: one line on stderr, nothing on stdout, exit code 1."""
    write_all(2, f"{message}\n".encode())
    os._exit(1)


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything; a full disk ends the program with claude's exit code for errors."""
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError as error:
            os._exit(1 if descriptor == 1 else error.errno or 1)


def start_time(pid: int) -> str:
    """Return the kernel's start time of a process, as claude records it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def unknown_session(wanted: str) -> NoReturn:
    """End as claude does when it finds no session: by id also with a result, by title on stderr only."""
    if len(wanted) == 36 and wanted.count("-") == 4:
        missing = {"type": "result", "subtype": "error_during_execution", "is_error": True}
        missing |= {"num_turns": 0, "session_id": wanted, "total_cost_usd": 0}
        write_all(1, json.dumps(missing).encode() + b"\n")
        refuse(f"No conversation found with session ID: {wanted}")
    refuse(f'Error: Provided value "{wanted}" is not a UUID and does not match any session title.')


class Sessions:
    """Claude's own store: `projects/<folder>/<id>.jsonl` and `sessions/<pid>.json`."""

    def __init__(self) -> None:
        """Find the store as claude does: by config directory and working directory."""
        home = Path(os.environ.get("HOME", "/nonexistent"))
        self.root = Path(os.environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(Path.cwd()))
        self.folder = self.root / "projects" / slug
        self.live = self.root / "sessions" / f"{os.getpid()}.json"

    def transcript(self, session_id: str) -> Path:
        """Return where the conversation of this session lies."""
        return self.folder / f"{session_id}.jsonl"

    def title(self, transcript: Path) -> str:
        """Return the last title of a conversation, or an empty string."""
        found = content = ""
        with contextlib.suppress(FileNotFoundError):  # archived by another start just now
            content = transcript.read_text(errors="replace")
        for line in content.splitlines():
            with contextlib.suppress(ValueError):
                found = json.loads(line).get("customTitle", found)
        return found

    def named(self, title: str) -> list[str]:
        """Return the ids of all sessions in this folder with that title, upper and lower case alike."""
        files = self.folder.glob("*.jsonl")
        return [path.stem for path in files if self.title(path).strip().lower() == title.strip().lower()]

    def resumed(self, wanted: str) -> tuple[str, str]:
        """Return id and title of the session to resume, or refuse as claude does."""
        if self.transcript(wanted).exists():
            return wanted, self.title(self.transcript(wanted))
        found = self.named(wanted)
        if len(found) > 1:
            refuse(f'Error: --resume "{wanted}" matches {len(found)} sessions')
        if not found:
            unknown_session(wanted)
        return found[0], self.title(self.transcript(found[0]))

    def write(self, session_id: str, name: str, prompt: str) -> None:
        """Append the prompt and the title, and enter this process into the registry of live ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        user = {"type": "user", "message": {"role": "user", "content": prompt}, "sessionId": session_id}
        title = {"type": "custom-title", "customTitle": name, "sessionId": session_id}
        with self.transcript(session_id).open("a") as stream:
            stream.write(json.dumps(user) + "\n" + (json.dumps(title) + "\n" if name else ""))
        self.transcript(session_id).chmod(0o600)
        self.live.parent.mkdir(parents=True, exist_ok=True)
        entry = {"pid": os.getpid(), "sessionId": session_id, "cwd": str(Path.cwd()), "name": name}
        entry |= {
            "procStart": start_time(os.getpid()),
            "version": VERSION,
            "startedAt": int(time.time() * 1000),
        }
        self.live.write_text(json.dumps(entry))
