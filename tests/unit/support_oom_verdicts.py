"""What must be found about turns in which memory ran out; see support_verdicts."""

from __future__ import annotations

import signal

from hive_subagent_daemon.values import Cause, Exited, ExitUnknown, Oom, Signalled
from tests.unit.support_evidence import (
    RESULT_END,
    aborted,
    error,
    evidence,
    forced,
    interrupted,
    result,
    seen,
    sent,
    stopped,
)
from tests.unit.support_verdicts import (
    AUTH,
    COMPLETED,
    FORCED,
    INTERRUPTED,
    KILL,
    LOST,
    NEVER_RAN,
    NO_RESULT,
    OOM,
    STOPPED,
    STOPPED_HARD,
    TERM,
    killed,
    row,
)

UNKNOWN = ExitUnknown()
ONCE, TWICE = Oom(1, 62_922_752, 62_914_560), Oom(2, 62_922_752, 62_914_560)
OOM_BY_TERM = killed(Cause.OOM, "SIGTERM")
STOPPED_AND_KILLED = (*stopped(), sent(signal.SIGKILL, Cause.DAEMON_STOPPED))

OOM_VERDICTS = [
    # OOMPolicy=continue
    row("claude-itself", evidence(Signalled(9), oom=ONCE), OOM),
    row("claude-and-another-process", evidence(Signalled(9), oom=TWICE), OOM),
    row("claude-after-one-it-had-outlived", evidence(Signalled(9), oom=TWICE, oom_before=1), OOM),
    row("a-process-of-it-and-claude-completed", evidence(Exited(0), result(), oom=ONCE), COMPLETED),
    row("a-process-of-it-and-claude-failed",
        evidence(Exited(1), error("x", api_status=401), oom=ONCE), AUTH),
    row("a-process-of-it-and-claude-gave-no-result", evidence(Exited(0), oom=ONCE), NO_RESULT),
    row("no-kill-was-counted", evidence(Signalled(9)), KILL),
    row("killed-from-outside-after-a-kill-it-had-outlived",
        evidence(Signalled(9), oom=ONCE, oom_before=1), KILL),
    row("killed-from-outside-after-two-it-had-outlived",
        evidence(Signalled(9), oom=TWICE, oom_before=2), KILL),
    row("a-result-that-stands-wins", evidence(Signalled(9), result(), oom=ONCE), COMPLETED),
    row("an-aborted-result-does-not-win", evidence(Signalled(9), aborted(), oom=ONCE), OOM),
    row("in-a-further-round",
        evidence(Signalled(9), of=seen(result(), round_open=True), oom=ONCE), OOM),
    row("killed-by-us-after-its-result",
        evidence(Signalled(9), result(), stopped_after_result=True, oom=ONCE), COMPLETED),
    # OOMPolicy=stop: systemd ends the rest by SIGTERM, of which claude exits with 143
    row("stopped-by-systemd", evidence(Signalled(15), oom=ONCE, oom_stops=True), OOM_BY_TERM),
    row("stopped-by-systemd-in-claudes-way", evidence(Exited(143), oom=ONCE, oom_stops=True), OOM_BY_TERM),
    row("stopped-by-systemd-which-lost-patience", evidence(Signalled(9), oom=ONCE, oom_stops=True), OOM),
    row("a-sigterm-where-systemd-stops-nothing", evidence(Signalled(15), oom=ONCE), TERM),
    row("143-where-systemd-stops-nothing", evidence(Exited(143), oom=ONCE), TERM),
    row("a-sigterm-and-nothing-was-counted", evidence(Exited(143), oom_stops=True), TERM),
    row("a-sigterm-long-after-the-kill",
        evidence(Exited(143), oom=ONCE, oom_before=1, oom_stops=True), TERM),
    row("a-result-before-systemd-stopped-it",
        evidence(Exited(143), result(), oom=ONCE, oom_stops=True), COMPLETED),
    # by systemd-oomd
    row("by-systemd-oomd", evidence(Signalled(9), oom=Oom(1, 7, 9), by_oomd=True), OOM),
    # after a signal of ours
    row("while-it-was-stopping-after-an-interrupt",
        evidence(Signalled(9), sent=interrupted(), oom=ONCE), OOM),
    row("while-it-was-stopping-with-the-daemon", evidence(Signalled(9), sent=stopped(), oom=ONCE), OOM),
    row("a-process-of-it-and-then-an-interrupt",
        evidence(Exited(0), aborted(), sent=interrupted(), oom=ONCE), INTERRUPTED),
    row("systemd-stops-what-we-had-interrupted",
        evidence(Exited(143), sent=interrupted(), oom=ONCE, oom_stops=True), INTERRUPTED),
    row("our-own-sigkill", evidence(Signalled(9), sent=forced(), oom=ONCE), FORCED),
    row("our-own-sigkill-at-a-stop", evidence(Signalled(9), sent=STOPPED_AND_KILLED, oom=ONCE), STOPPED_HARD),
    row("a-result-before-our-interrupt",
        evidence(Signalled(9), result(), sent=interrupted(at=RESULT_END), oom=ONCE), COMPLETED),
    # an end that nobody saw
    row("nobody-saw-the-end", evidence(UNKNOWN, oom=ONCE), OOM),
    row("nobody-saw-the-end-and-nothing-was-counted", evidence(UNKNOWN), LOST),
    row("nobody-saw-the-end-of-what-we-stopped", evidence(UNKNOWN, sent=stopped(), oom=ONCE), STOPPED),
    row("nobody-saw-the-end-and-there-is-a-result", evidence(UNKNOWN, result(), oom=ONCE), COMPLETED),
    row("nobody-saw-a-beginning", evidence(UNKNOWN, ran=False, oom=ONCE), NEVER_RAN),
]  # fmt: skip
