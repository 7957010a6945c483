"""Memory that ran out: who was killed, by whom, and what is said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.cgroups import OomCounters
from hive_subagent_daemon.evidence import with_counters
from hive_subagent_daemon.judge import judge
from hive_subagent_daemon.turn_warnings import memory_shown, of_ended
from hive_subagent_daemon.turns import OomHistory
from hive_subagent_daemon.values import Exited, ExitUnknown, Oom, OutcomeKind, Signalled
from tests.unit.support_evidence import error, evidence, interrupted, result
from tests.unit.support_oom_verdicts import OOM_VERDICTS, TWICE
from tests.unit.support_verdicts import brief

if TYPE_CHECKING:
    from hive_subagent_daemon.evidence import Evidence

FIGURES = "peak 60 MiB, limit 60 MiB"
ONCE = Oom(1, 62_922_752, 62_914_560)


@pytest.mark.parametrize(("found", "expected"), OOM_VERDICTS)
def test_the_verdict_tells_whether_claude_itself_was_ended_for_lack_of_memory(
    found: Evidence, expected: tuple[object, ...]
) -> None:
    verdict = judge(found)
    assert brief(verdict) == expected
    assert verdict.oom == (found.oom if verdict.kind.ran else None)


# What the words say


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            evidence(Signalled(9), oom=ONCE),
            f"Killed mid-turn by SIGKILL, because memory ran out (the kernel; {FIGURES}): ",
        ),
        (
            evidence(Signalled(9), oom=ONCE, by_oomd=True),
            f"Killed mid-turn by SIGKILL, because memory ran out (systemd-oomd; {FIGURES}): ",
        ),
        (
            evidence(Exited(143), oom=Oom(1), oom_stops=True),
            "Killed mid-turn by SIGTERM, because memory ran out (the kernel; peak unknown, limit unknown): ",
        ),
        (
            evidence(Signalled(9), oom=ONCE, oom_before=1),
            "Killed mid-turn by SIGKILL by somebody outside this daemon: ",
        ),
        (evidence(Signalled(2), oom=ONCE, sent=interrupted()), "Killed mid-turn by SIGINT (interrupt): "),
    ],
)
def test_a_killed_turn_says_who_killed_it_and_for_what(found: Evidence, words: str) -> None:
    error_text = judge(found).error
    assert error_text == f"{words}its work may be incomplete."


@pytest.mark.parametrize(
    ("oom", "words"),
    [
        (ONCE, f"killed a process of this turn for lack of memory ({FIGURES})"),
        (TWICE, f"killed 2 processes of this turn for lack of memory ({FIGURES})"),
    ],
)
@pytest.mark.parametrize(
    "found", [evidence(Exited(0), result()), evidence(Exited(1), error("x")), evidence(Exited(0))]
)
def test_a_process_that_was_killed_while_claude_went_on_is_a_warning(
    found: Evidence, oom: Oom, words: str
) -> None:
    counters = OomCounters(oom.kills, oom.peak_bytes)
    verdict = judge(with_counters(found, counters, limit_bytes=oom.limit_bytes))
    assert verdict.oom == oom
    assert verdict.kind in (OutcomeKind.COMPLETED, OutcomeKind.FAILED)
    [warning] = verdict.warnings
    assert words in warning


def test_what_the_kernel_had_killed_long_before_an_outside_kill_is_shown_with_it() -> None:
    verdict = judge(evidence(Signalled(9), oom=ONCE, oom_before=1))
    assert verdict.oom == ONCE
    assert any("killed a process of this turn" in warning for warning in verdict.warnings)


def test_the_kernel_is_not_said_to_have_done_what_systemd_oomd_did() -> None:
    assert not any(
        "kernel" in warning for warning in of_ended(evidence(Signalled(9), oom=ONCE, by_oomd=True))
    )


def test_a_claude_that_left_its_scope_is_a_warning() -> None:
    [warning] = of_ended(evidence(Exited(0), result(), strayed=True))
    assert "had left its scope" in warning


@pytest.mark.parametrize(
    ("oom", "words"),
    [
        (Oom(1), "peak unknown, limit unknown"),
        (Oom(1, 0, 0), "peak 0 MiB, limit 0 MiB"),
        (Oom(1, 60 * 1024**2, None), "peak 60 MiB, limit unknown"),
        (Oom(1, 1024**4, 2 * 1024**4), "peak 1048576 MiB, limit 2097152 MiB"),
        (Oom(1, int(1.5 * 1024**2), int(2.6 * 1024**2)), "peak 2 MiB, limit 3 MiB"),
    ],
)
def test_memory_is_shown_in_mebibytes(oom: Oom, words: str) -> None:
    assert memory_shown(oom) == words


# From counters to evidence


def test_counters_that_saw_no_kill_are_no_evidence() -> None:
    found = evidence(Signalled(9))
    assert with_counters(found, None, limit_bytes=9) == found
    assert with_counters(found, OomCounters(0, 7, by_oomd=False, stops=True), limit_bytes=9) == found


@pytest.mark.parametrize("by_oomd", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_counters_that_saw_a_kill_are_evidence_with_the_limit_that_held(
    *, by_oomd: bool, stops: bool
) -> None:
    found = with_counters(
        evidence(ExitUnknown()), OomCounters(2, 7, by_oomd=by_oomd, stops=stops), limit_bytes=9
    )
    assert found == evidence(ExitUnknown(), oom=Oom(2, 7, 9), oom_stops=stops, by_oomd=by_oomd)


# Looks at a living claude


@pytest.mark.parametrize(
    ("looks", "outlived"),
    [
        ([], 0),
        ([0], 0),
        ([0, 0, 0], 0),
        ([1], 0),  # this kill may be that of claude itself, which is not gone yet
        ([0, 0, 1], 0),
        ([1, 1], 1),
        ([0, 1, 1], 1),
        ([1, 2], 1),
        ([1, 1, 2], 1),
        ([1, 2, 2], 2),
        ([3, 3, 3, 3], 3),
    ],
)
def test_a_kill_is_outlived_once_a_later_look_finds_claude_alive(looks: list[int], outlived: int) -> None:
    history = OomHistory()
    for kills in looks:
        history.see(kills)
    assert history.outlived == outlived
