"""One story of a subagent whose parent insists, while the system calls of the daemon fail now and then."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.stub.kill_notices import shown
from tests.stub.kill_story import NAME, Confirmed
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.stub.fault_layer import Fault
    from tests.support.daemon_harness import Daemon
    from tests.support.mcp_call import Answer

MOST_TRIES = 4
ANSWER_SECONDS = 8.0


@dataclass(frozen=True)
class Failing:
    """The files by which a test and the fault layer of its daemon talk, and what may still fail."""

    daemon: Daemon
    fault: Fault | None

    @property
    def lasts(self) -> Path:
        """The file while which everything fails."""
        return self.daemon.folder / "failing"

    @property
    def clock(self) -> Path:
        """The file that holds by how much the wall clock is off."""
        return self.daemon.folder / "clock"

    def order(self) -> dict[str, object]:
        """Return what a fork is told."""
        return {"fault": asdict(self.fault) if self.fault else None, "clock": str(self.clock)}

    def heal(self) -> None:
        """Let everything work from now on."""
        self.lasts.unlink(missing_ok=True)


def insist(failing: Failing, tool: str, **arguments: object) -> Answer:
    """Call until it is not refused; each refusal is a sentence, and not that something inside went wrong."""
    for _ in range(MOST_TRIES):
        answer = failing.daemon.call(tool, **arguments)
        assert answer.seconds < ANSWER_SECONDS, f"{tool} took {answer.seconds:.1f} s"
        if not answer.is_error:
            return answer
        assert "Internal error" not in answer.text, answer.text
        assert answer.text.strip().endswith("."), f"no sentence: {answer.text}"
        failing.heal()
    message = f"{tool} was refused although nothing fails any more: {answer.text}"
    raise AssertionError(message)


def tell(failing: Failing) -> Confirmed:
    """Play the story to its end, whatever fails in between."""
    confirmed = Confirmed()
    one = spawn(failing, confirmed, "start", prompt_file="recipe-1.md")
    arrival(failing, one)
    two = spawn(failing, confirmed, "continue", prompt="go on")
    arrival(failing, two)
    confirmed.shown.extend(shown(failing.daemon))
    three = spawn(failing, confirmed, "start", prompt_file="recipe-2.md")
    failing.daemon.reached("up")
    patiently(lambda: interrupted(failing, three))
    arrival(failing, three)
    insist(failing, "status")
    confirmed.closed.extend(insist(failing, "close_loose_ends", ids=[one]).content["closed"])
    return confirmed


def spawn(failing: Failing, confirmed: Confirmed, tool: str, **arguments: object) -> str:
    """Start or continue the subagent and return the turn."""
    turn: str = insist(failing, tool, name=NAME, **arguments).content["turn"]
    confirmed.turns.append(turn)
    return turn


def interrupted(failing: Failing, turn: str) -> bool:
    """Interrupt the running turn; tell whether it is at its end."""
    answer = failing.daemon.call("interrupt", name=NAME)
    assert "Internal error" not in answer.text, answer.text
    return answer.is_error or answer.content["ended"] or turn in opened(failing)


def arrival(failing: Failing, turn: str) -> None:
    """Wait for the loose end of a turn, and for the name to be free."""
    patiently(lambda: turn in opened(failing))


def opened(failing: Failing) -> list[str]:
    """Return the ids of the open loose ends; none while they cannot be read."""
    answer = failing.daemon.call("get_loose_ends", name=NAME, limit=100)
    assert "Internal error" not in answer.text, answer.text
    found = [] if answer.is_error else [end["id"] for end in answer.content["loose_ends"]]
    assert len(found) == len(set(found)), f"delivered twice: {found}"
    return found


def patiently(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; what fails for a while is mended meanwhile."""
    eventually(condition, within=20, what="the end of a turn in spite of the fault")
