"""What a parent should know beside the outcome: servers missing, work left, processes killed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.skim import Seen
from hive_subagent_daemon.turn_warnings import mcp_problems, of_ended, signal_name
from hive_subagent_daemon.values import Exited, ExitUnknown, Oom, Signalled
from tests.unit.support_evidence import INIT, error, evidence, forced, interrupted, result, seen

if TYPE_CHECKING:
    from hive_subagent_daemon.evidence import Evidence

PENDING = {"b": "sleep 99", "a": "build"}


def began_with(**servers: str) -> Seen:
    """Return what was seen of a turn whose first event told these servers and their states."""
    return Seen(init=replace(INIT, mcp_servers=servers))


@pytest.mark.parametrize(
    ("servers", "expected", "words"),
    [
        ({}, (), []),
        ({"docs": "connected"}, ("docs",), []),
        ({}, ("docs",), ["'docs' was given but claude does not list it"]),
        ({"docs": "failed"}, ("docs",), ["'docs' was not connected when the turn began: failed"]),
        ({"docs": "pending"}, ("docs",), ["'docs' was not connected when the turn began: pending"]),
        ({"docs": "connected"}, (), ["'docs' is there although it was not given"]),
        (
            {"docs": "failed", "x": "connected"},
            ("docs", "st"),
            ["'st' was given", "'docs' was not", "'x' is there"],
        ),
    ],
)
def test_given_and_reported_servers_are_compared_both_ways(
    servers: dict[str, str], expected: tuple[str, ...], words: list[str]
) -> None:
    """As cases H3 and H8 ask for."""
    problems = mcp_problems(began_with(**servers), expected)
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True))


def test_before_the_first_event_no_server_is_missing() -> None:
    assert mcp_problems(Seen(), ("docs",)) == []


def test_an_ordinary_turn_has_no_warnings() -> None:
    assert of_ended(evidence(Exited(0), result())) == ()
    assert of_ended(evidence(Exited(1), error())) == ()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (evidence(Exited(0), of=seen(result(), pending=PENDING)), "unfinished: build, sleep 99"),
        (evidence(Exited(0), of=seen(result(), cut_off={"a": "x"}, pending={"b": "y"})), "unfinished: x, y"),
        (evidence(Exited(0), of=seen(result(), round_open=True)), "further round had begun"),
        (evidence(Signalled(9), result()), "ended by SIGKILL"),
        (evidence(Signalled(40), result()), "ended by SIG40"),
        (evidence(Exited(3), result()), "exited with code 3"),
        (evidence(Exited(143), result()), "exited with code 143"),
        (evidence(Exited(0), of=seen(result(), broken_lines=2)), "2 lines of claude's output"),
        (evidence(Exited(0), result(), oom=Oom(2)), "killed 2 processes"),
        (evidence(Exited(0), result(), stopped_after_result=True), "did not exit after its result"),
        (evidence(Exited(0), result(), killed_leftovers=("sleep (7)",)), "were killed: sleep (7)"),
        (evidence(Exited(0), result(), still_alive=("dd (8)",)), "may still run: dd (8)"),
        (evidence(Exited(0), result(), expected_servers=("docs",)), "'docs' was given"),
    ],
)
def test_what_is_odd_about_an_end_is_told(found: Evidence, words: str) -> None:
    warnings = of_ended(found)
    assert len(warnings) == 1
    assert words in warnings[0]


@pytest.mark.parametrize(
    "found",
    [
        evidence(Exited(1), error()),
        evidence(ExitUnknown(), result()),
        evidence(Signalled(9), result(), stopped_after_result=True, killed_leftovers=("claude (7)",)),
        evidence(Exited(0), result(), oom=Oom(0)),
    ],
)
def test_an_end_that_has_its_reason_is_not_called_odd(found: Evidence) -> None:
    assert not any("After its result" in warning or "memory" in warning for warning in of_ended(found))
    assert len(of_ended(found)) <= 1


@pytest.mark.parametrize("sent", [interrupted(), forced()])
def test_what_our_own_signal_left_undone_is_not_told_again(sent: tuple[object, ...]) -> None:
    undone = seen(result(), pending={"a": "build"}, round_open=True)
    found = evidence(Signalled(9), of=undone, sent=sent, killed_leftovers=("sleep (7)",))
    assert of_ended(found) == ()


def test_what_could_not_be_killed_is_told_whoever_asked() -> None:
    found = evidence(Signalled(9), sent=forced(), still_alive=("dd (8)",))
    assert len(of_ended(found)) == 1


def test_output_that_could_not_be_read_is_told() -> None:
    warnings = of_ended(evidence(Exited(0), result(), unreadable="/t/1: Input/output error"))
    assert len(warnings) == 1
    assert "/t/1: Input/output error" in warnings[0]


def test_a_long_list_is_cut_and_the_rest_counted() -> None:
    many = tuple(f"p ({n})" for n in range(9))
    (warning,) = of_ended(evidence(Exited(0), result(), killed_leftovers=many))
    assert "p (4) and 4 more" in warning
    assert "p (5)" not in warning


@pytest.mark.parametrize(
    ("number", "name"), [(2, "SIGINT"), (9, "SIGKILL"), (15, "SIGTERM"), (34, "SIGRTMIN"), (99, "SIG99")]
)
def test_every_signal_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name
