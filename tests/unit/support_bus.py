"""A message bus on a socket of the test: one that speaks as much as the daemon needs, or does not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from jeepney import DBusAddress, HeaderFields, MessageType, Parser, new_error, new_method_return, new_signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from jeepney import Message

NAME: Final = "org.freedesktop.systemd1"
MANAGER: Final = DBusAddress("/org/freedesktop/systemd1", bus_name=NAME, interface=f"{NAME}.Manager")
OOMD: Final = DBusAddress("/org/freedesktop/oom1", interface="org.freedesktop.oom1.Manager")
OWN_NAME: Final = ":1.7"
JOB: Final = "/org/freedesktop/systemd1/job/7"


class Manner(Enum):
    """How a bus receives whoever connects."""

    SILENT = auto()
    CLOSES = auto()
    GARBAGE = auto()
    REJECTS = auto()
    AUTHENTICATES = auto()
    GREETS = auto()
    SPEAKS = auto()


FAULTY: Final = tuple(manner for manner in Manner if manner is not Manner.SPEAKS)


class FakeBus:
    """A bus that answers each call by `answers[member]`: messages made from the call, none for silence."""

    def __init__(self, socket: Path, *, manner: Manner = Manner.SPEAKS) -> None:
        """Nobody has connected yet."""
        self.socket = socket
        self.manner = manner
        self.calls: list[Message] = []
        self.connected = 0
        self.answers: dict[str, Callable[[Message], list[Message]]] = {
            "Hello": lambda call: [returned(call, "s", OWN_NAME)],
            "AddMatch": lambda call: [returned(call)],
            "Subscribe": lambda call: [returned(call)],
        }
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def members(self) -> list[str]:
        """The names of the methods that were called, in order."""
        return [str(call.header.fields[HeaderFields.member]) for call in self.calls]

    def send(self, *messages: Message) -> None:
        """Send messages to everybody who is connected."""
        for writer in self._writers:
            for number, message in enumerate(messages):
                writer.write(message.serialise(serial=1_000 + number))

    def hang_up(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one who has connected."""
        self.connected += 1
        self._writers.add(writer)
        with suppress(ConnectionError):
            match self.manner:
                case Manner.CLOSES:
                    writer.close()
                case Manner.GARBAGE:
                    writer.write(b"\x00\xff" * 600 + b"\r\n")
                case Manner.REJECTS:
                    writer.write(b"REJECTED EXTERNAL\r\n")
                case Manner.AUTHENTICATES | Manner.GREETS | Manner.SPEAKS:
                    await self._speak(reader, writer)
            while await reader.read(4096):
                continue
        self._writers.discard(writer)
        writer.close()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()) and not line.startswith(b"BEGIN"):
            writer.write(b"OK 0123456789abcdef0123456789abcdef\r\n")
        if self.manner is Manner.AUTHENTICATES:
            return
        parser = Parser()
        while content := await reader.read(4096):
            parser.add_data(content)
            while (message := parser.get_next_message()) is not None:
                self._answer(message, writer)

    def _answer(self, call: Message, writer: asyncio.StreamWriter) -> None:
        assert call.header.message_type is MessageType.method_call
        self.calls.append(call)
        if self.manner is Manner.GREETS and len(self.calls) > 1:
            return
        for number, message in enumerate(self.answers[self.members[-1]](call)):
            writer.write(message.serialise(serial=1 + number))


def returned(call: Message, signature: str | None = None, *body: object) -> Message:
    """Return the answer to a call."""
    answer: Message = new_method_return(call, signature, body)
    return answer


def refused(call: Message, name: str, text: str = "no") -> Message:
    """Return the error that answers a call."""
    answer: Message = new_error(call, name, "s", (text,))
    return answer


def removed(job: str = JOB, *, result: str = "done", unit: str = "x.scope") -> Message:
    """Return the signal that a job of systemd's is done."""
    signal: Message = new_signal(MANAGER, "JobRemoved", "uoss", (7, job, unit, result))
    return signal


def killed(cgroup: str) -> Message:
    """Return the signal that systemd-oomd has killed in a cgroup."""
    signal: Message = new_signal(OOMD, "Killed", "ss", (cgroup, "memory-used"))
    return signal


def queued(call: Message) -> Message:
    """Return the answer to a call that queues a job."""
    return returned(call, "o", JOB)


def done(call: Message) -> list[Message]:
    """Return the answer to a call that queues a job, and the signal that it is done."""
    return [queued(call), removed()]


def body(call: Message) -> tuple[Any, ...]:
    """Return the arguments of a call."""
    arguments: tuple[Any, ...] = call.body
    return arguments


@asynccontextmanager
async def serving(bus: FakeBus) -> AsyncIterator[FakeBus]:
    """Let the bus listen while the block lasts."""
    bus.socket.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(bus.receive, bus.socket)
    try:
        yield bus
    finally:
        server.close()
        bus.hang_up()
        await server.wait_closed()
        bus.socket.unlink(missing_ok=True)
