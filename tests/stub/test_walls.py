"""A parent learns that its turns run into a wall: from the loose ends, from `start`, and from `status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.stub.facts import about
from tests.stub.steps import api_error, init, success

if TYPE_CHECKING:
    from tests.stub.steps import Step
    from tests.support.daemon_harness import Daemon

LIMITED = [init(), *api_error(429, "API Error: Request rejected (429) · rate limited")]
WALLS = [
    pytest.param(LIMITED, "limit", "before the limit has passed", id="limit"),
    pytest.param(
        [init(), *api_error(None, "Claude AI usage limit reached|1893456000")],
        "limit, limited until 2030-01-01T00:00:00.000Z",
        "before the limit has passed",
        id="usage-limit",
    ),
    pytest.param(
        [init(), *api_error(401, "Invalid API key · Please run /login")],
        "auth",
        "before claude's login or key is mended",
        id="auth",
    ),
    pytest.param(
        [init(), *api_error(400, "Credit balance is too low")],
        "budget",
        "before there is credit or budget again",
        id="credit",
    ),
    pytest.param(
        [init(), *api_error(529, "API Error: Overloaded")],
        "api",
        "try one, and others when it gets through",
        id="overloaded",
    ),
]


def warnings_of(end: dict[str, Any]) -> str:
    """Return the warnings of a loose end as one text."""
    return " ".join(end["warnings"])


@about("case-J1")
@pytest.mark.parametrize(("steps", "met", "advice"), WALLS)
def test_the_second_turn_that_meets_a_wall_says_so_in_its_loose_end(
    own_daemon: Daemon, steps: list[Step], met: str, advice: str
) -> None:
    """With what to do, and about whom; also in the words for people, and after a restart."""
    daemon = own_daemon
    assert "alike" not in warnings_of(daemon.play("a", steps))
    second = daemon.play("b", steps)
    assert f"The last 2 turns failed alike ({met}: b, a). " in warnings_of(second)
    assert advice in warnings_of(second)
    daemon.restart()
    answer = daemon.ok("get_loose_ends", name="b")
    assert answer.content["loose_ends"] == [second]
    assert advice in answer.text
    third = daemon.play("c", steps)
    assert f"The last 3 turns failed alike ({met}: c, b, a). " in warnings_of(third)


@about("case-J1")
def test_one_name_that_is_continued_into_a_wall_is_told_too(own_daemon: Daemon) -> None:
    daemon = own_daemon
    daemon.play("a", *[LIMITED] * 3)
    daemon.resume("a")
    assert "The last 3 turns failed alike (limit: a). " in warnings_of(daemon.resume("a"))


def test_a_session_that_is_too_long_is_a_wall_of_its_own(own_daemon: Daemon) -> None:
    """Its own words say what to do, and nobody else is warned."""
    daemon = own_daemon
    long = [init(), *api_error(400, "Prompt is too long", terminal_reason="prompt_too_long")]
    ends = [daemon.play("a", long), daemon.play("b", long)]
    assert [end["error_class"] for end in ends] == ["context"] * 2
    assert all("start a fresh subagent with a smaller batch" in end["error"] for end in ends)
    assert [end["warnings"] for end in ends] == [[], []]
    assert "warnings" not in daemon.start("c", success()).content


def test_turns_that_fail_at_the_same_time_are_each_told_once(own_daemon: Daemon) -> None:
    """Ten that were started at once: nine loose ends say how many there were, and none is lost."""
    daemon = own_daemon
    names = [f"n{number}" for number in range(10)]
    turns = {name: daemon.start(name, LIMITED).content["turn"] for name in names}
    ends = [daemon.loose_end(name, turn=turn) for name, turn in turns.items()]
    counts = sorted(int(warnings_of(end).split()[2]) for end in ends if end["warnings"])
    assert counts == list(range(2, 11))


def test_a_start_into_the_same_wall_is_warned_of_until_one_gets_through(own_daemon: Daemon) -> None:
    """Ten more would fail like the two before (case J1); it is not refused, or nobody could try."""
    daemon = own_daemon
    limited = [init(), *api_error(429, "API Error: Request rejected (429) · rate limited")]
    assert "warnings" not in daemon.start("a", limited).content
    daemon.loose_end("a")
    assert "warnings" not in daemon.start("b", limited).content
    daemon.loose_end("b")
    answer = daemon.start("c", success())
    [warning] = answer.content["warnings"]
    assert "limit" in warning
    assert "a" in warning
    assert warning in answer.text
    daemon.loose_end("c")
    again = daemon.ok("continue", name="c", prompt="go on")
    assert "warnings" not in again.content
    daemon.finished("c")
    assert not [one for one in daemon.ok("status").content["warnings"] if "failed alike" in one]
