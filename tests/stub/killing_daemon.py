"""A program that starts daemons quickly, by forking, and lets one kill itself or fail at a chosen instant.

It imports the package once and then takes one order per line of JSON on its standard input: `fork` a daemon,
or `reap` one. A forked daemon is the real one, as `hive-subagent-daemon --config FILE` runs it. With an
`instant` it kills its own process with SIGKILL when that is reached; with a `trace` it writes down all it
reaches; with `faults` it runs on a `fault_layer`. Instants are before and after each durable operation and
each scope that is made or stopped, at each step of a launch, and before each change of a file inside or
outside of the operations (from Python's audit events).
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar
from unittest import mock

from hive_subagent_daemon import daemon_main
from hive_subagent_daemon.inbox import Inbox
from hive_subagent_daemon.process_group import ProcessGroup
from hive_subagent_daemon.scopes import ScopeLauncher
from hive_subagent_daemon.storage import Storage
from hive_subagent_daemon.systemd_bus import SystemdBus
from tests.stub.fault_layer import Fault, FaultLayer, let_the_clock_jump

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from hive_subagent_daemon.gate import ChildSpec
    from hive_subagent_daemon.launcher import Child, Placed
    from hive_subagent_daemon.membership import TurnRoot

T = TypeVar("T")
P = ParamSpec("P")
# What the package imports only once it serves: imported here before the forks.
SERVING = ("anyio._backends._asyncio", "uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.on")
DURABLE = (
    "write",
    "make_folder",
    "rename",
    "remove",
    "remove_folder",
    "set_aside",
    "check_writable",
    "restore_ballast",
)
OF_SYSTEMD = ("start_scope", "stop_unit")
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
RANDOM = re.compile(r"\.[0-9a-f]{8}$")  # what makes the name of a file unique
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Instants:
    """Counts the instants of one daemon by what they are, and kills it at the chosen one."""

    def __init__(self, root: Path, *, trace: Path | None, chosen: str | None) -> None:
        """Watch a daemon with the state directory `root`."""
        self._root = str(root)
        self._chosen = chosen
        self._trace = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if trace else None
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._noting = threading.local()

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Tell what this thread writes from other writes of the same file: what a sink has taken."""
        self._noting.now = ", noting"
        yield
        self._noting.now = ""

    def reach(self, what: str) -> None:
        """Count this instant; be killed if it is the chosen one."""
        with self._lock:
            self._reached[what] += 1
            instant = f"{what} #{self._reached[what]}"
            if self._trace is not None:
                os.write(self._trace, f"{instant}\n".encode())
            if instant == self._chosen:
                os.kill(os.getpid(), signal.SIGKILL)

    def place(self, path: str) -> str:
        """Return what kind of file a path is, the same in every run."""
        if not path.startswith(f"{self._root}/"):
            return "transcript"
        parts = [part for number, part in enumerate(Path(path).relative_to(self._root).parts) if number != 1]
        plain = "/".join("partial" if part.endswith(".partial") else RANDOM.sub("", part) for part in parts)
        return plain + getattr(self._noting, "now", "")

    def on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take a change of a file, or the creation of a gate, for an instant."""
        if event == "os.posix_spawn":
            self.reach("creating the process")
        elif event in CHANGES or (event == "open" and isinstance(arguments[2], int)):
            if event == "open" and not arguments[2] & WRITING:
                return
            path = arguments[1] if event == "os.rename" else arguments[0]
            if isinstance(path, int):
                return
            text = os.fsdecode(path)
            if text.startswith(f"{self._root}/"):
                self.reach(f"inside {event} {self.place(text)}")
            elif "/" not in text:  # within an open folder, as shutil.rmtree does
                self.reach(f"inside {event} in a folder")


def watch(instants: Instants) -> None:
    """Let every durable operation and every launch pass by the instants."""
    for name in DURABLE:
        mock.patch.object(Storage, name, watched(name, getattr(Storage, name), instants)).start()
    mock.patch.object(Inbox, "note", watched_note(Inbox.note, instants)).start()
    for launcher in (ProcessGroup, ScopeLauncher):
        mock.patch.object(launcher, "launch", watched_launch(launcher.launch, instants)).start()
    for name in OF_SYSTEMD:
        mock.patch.object(SystemdBus, name, watched_call(name, getattr(SystemdBus, name), instants)).start()
    sys.addaudithook(instants.on_audit)


def watched(
    name: str, operation: Callable[Concatenate[Storage, P], T], instants: Instants
) -> Callable[Concatenate[Storage, P], T]:
    """Return the operation with an instant before and after it."""

    @functools.wraps(operation)
    def around(storage: Storage, /, *paths: P.args, **named: P.kwargs) -> T:
        """Pass by the instants around the operation."""
        what = " ".join([name, *(instants.place(str(path)) for path in paths[:1])])
        instants.reach(f"before {what}")
        returned = operation(storage, *paths, **named)
        instants.reach(f"after {what}")
        return returned

    return around


def watched_note(
    note: Callable[Concatenate[Inbox, P], T], instants: Instants
) -> Callable[Concatenate[Inbox, P], T]:
    """Return the note of a delivery with an instant before and after it."""

    def around(inbox: Inbox, /, *ids: P.args, **named: P.kwargs) -> T:
        """Pass by the instants around the note."""
        instants.reach("before note")
        with instants.noting():
            returned = note(inbox, *ids, **named)
        instants.reach("after note")
        return returned

    return around


def watched_call(
    name: str, call: Callable[Concatenate[SystemdBus, P], Awaitable[T]], instants: Instants
) -> Callable[Concatenate[SystemdBus, P], Awaitable[T]]:
    """Return a call to systemd with an instant before and after it."""

    async def around(bus: SystemdBus, /, *arguments: P.args, **named: P.kwargs) -> T:
        """Pass by the instants around the call."""
        instants.reach(f"before {name}")
        returned = await call(bus, *arguments, **named)
        instants.reach(f"after {name}")
        return returned

    return around


def watched_launch(
    launch: Callable[..., Awaitable[Child]], instants: Instants
) -> Callable[..., Awaitable[Child]]:
    """Return the launch with an instant before it, at the closed gate, once recorded, and after it."""

    async def around(
        self: ProcessGroup | ScopeLauncher,
        spec: ChildSpec,
        root: TurnRoot,
        *,
        recorded: Callable[[Placed], Awaitable[None]],
    ) -> Child:
        """Pass by the instants around and within the launch."""

        async def at_the_gate(placed: Placed) -> None:
            """Pass by the instants around the recording."""
            instants.reach("at the gate")
            await recorded(placed)
            instants.reach("recorded")

        instants.reach("before launch")
        child = await launch(self, spec, root, recorded=at_the_gate)
        instants.reach("after launch")
        return child

    return around


def prepare(order: dict[str, Any]) -> None:
    """Watch this process as ordered: for a kill at an instant, or for faults."""
    trace = Path(order["trace"]) if order["trace"] else None
    instants = Instants(Path(order["state"]), trace=trace, chosen=order["instant"])
    if order["faults"] is not None:
        fault = Fault(**order["faults"]["fault"]) if order["faults"]["fault"] else None
        let_the_clock_jump(Path(order["faults"]["clock"]))
        FaultLayer(Path(order["state"]), place=instants.place, trace=trace, fault=fault).install()
    elif trace is not None or order["instant"] is not None:
        watch(instants)


def become_daemon(order: dict[str, Any]) -> NoReturn:
    """Turn this forked process into the daemon that was ordered."""
    code = 70
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        prepare(order)
        code = daemon_main.main(["--config", order["config"]])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Carry out orders until the standard input ends."""
    for module in SERVING:
        with suppress(ImportError):  # it only saves time
            importlib.import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "fork":
            pid = os.fork()
            if pid == 0:
                become_daemon(order)
            reply = pid
        else:
            reply = os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])
        print(reply, flush=True)


if __name__ == "__main__":
    main()
