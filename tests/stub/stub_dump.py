"""What the stub can tell about how it was started; standard library only."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any


def what_a_child_sees(flags: dict[str, str], stdin: bytes) -> dict[str, Any]:
    """Return arguments, environment, stdin, open files and the rest that a process inherits."""
    old_umask = os.umask(0)
    os.umask(old_umask)
    return {
        "argv": sys.argv[1:],
        "environment": dict(os.environ),
        "cwd": str(Path.cwd()),
        "umask": f"{old_umask:04o}",
        "process_group": os.getpgid(0),
        "session": os.getsid(0),
        "stdin_bytes": len(stdin),
        "stdin_sha256": hashlib.sha256(stdin).hexdigest(),
        "stdin": stdin[:10_000].decode(errors="replace"),
        "files": {str(number): described(number) for number in open_descriptors()},
        "address_space": resource.getrlimit(resource.RLIMIT_AS),
        "prompt_file": prompt_file(flags),
        "mcp_config": mcp_config(flags),
    }


def open_descriptors() -> list[int]:
    """Return the file descriptors that this process has open now."""
    candidates = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [number for number in candidates if Path(f"/proc/self/fd/{number}").is_symlink()]


def described(number: int) -> dict[str, Any]:
    """Return what a descriptor points to, its mode bits and its size."""
    state = os.fstat(number)
    return {
        "target": str(Path(f"/proc/self/fd/{number}").readlink()),
        "mode": state.st_mode,
        "size": state.st_size,
    }


def prompt_file(flags: dict[str, str]) -> dict[str, Any] | None:
    """Return the appended system prompt as claude can read it, with its size and the mode of its file."""
    if "--append-system-prompt-file" not in flags:
        return None
    path = Path(flags["--append-system-prompt-file"])
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    mode = f"{path.stat().st_mode & 0o7777:04o}"
    return {
        "mode": mode,
        "bytes": len(content),
        "text": content[:1000].decode(errors="replace"),
        "sha256": digest,
    }


def mcp_config(flags: dict[str, str]) -> dict[str, Any] | None:
    """Return the rendered MCP configuration and the mode of its file."""
    if "--mcp-config" not in flags:
        return None
    path = Path(flags["--mcp-config"])
    return {"mode": f"{path.stat().st_mode & 0o7777:04o}", "content": json.loads(path.read_text())}
