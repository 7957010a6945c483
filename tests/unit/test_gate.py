"""A program is executed only when its gate is released, as it was asked for, and a failed exec is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import gate, procfs
from hive_subagent_daemon.gate import NOT_RELEASED, SpawnError, gate_complaint, spawn_gated
from hive_subagent_daemon.values import Exited, Signalled
from tests.support.processes import eventually
from tests.unit.support_gate import PATH, at_gate, shell, spec_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hive_subagent_daemon.gate import ChildSpec

LIMIT_SECONDS = 30.0


async def released(spec: ChildSpec) -> tuple[object, bytes]:
    """Release a child, wait for its end, and return how it ended and what it wrote to stdout."""
    with at_gate(spec) as child:
        with anyio.fail_after(LIMIT_SECONDS):
            await child.gated.release()
        return child.end(), spec.stdout.read_bytes()


async def refusal(spec: ChildSpec) -> str:
    """Release a child that cannot be executed and return why."""
    with at_gate(spec) as child:
        with anyio.fail_after(LIMIT_SECONDS), pytest.raises(SpawnError) as error:
            await child.gated.release()
        child.end()
        return str(error.value)


# Waiting, releasing, closing


async def test_nothing_is_executed_before_the_release_and_the_pid_stays(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, *shell("echo $$; exec sleep 60"))) as child:
        eventually(lambda: b"hive-subagent-gate" in procfs.command_line(child.pid))
        assert (tmp_path / "stdout").read_bytes() == b""
        with anyio.fail_after(LIMIT_SECONDS):
            await child.gated.release()
        assert eventually((tmp_path / "stdout").read_bytes) == f"{child.pid}\n".encode()


async def test_a_release_returns_when_the_program_is_executing(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, "sleep", "60")) as child, anyio.fail_after(LIMIT_SECONDS):
        await child.gated.release()
        assert procfs.command_line(child.pid) == b"sleep\x0060\0"


async def test_a_program_that_ends_at_once_was_executed(tmp_path: Path) -> None:
    """Gone with any code but the gate's own words: a short turn (decision 7)."""
    for code in (0, 1, 97, 126, 127):
        assert await released(spec_in(tmp_path, *shell(f"exit {code}"))) == (Exited(code), b"")
    assert await released(spec_in(tmp_path, *shell("kill -9 $$"))) == (Signalled(9), b"")


def test_a_gate_that_is_closed_never_executes(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, *shell("echo executed"))) as child:
        child.close()
        assert child.end() == Exited(97)
    assert (tmp_path / "stdout").read_bytes() == b""
    assert (tmp_path / "stderr").read_text().strip() == NOT_RELEASED
    assert gate_complaint(tmp_path / "stderr") == "closed before the release"


def test_a_gate_whose_daemon_died_never_executes(tmp_path: Path) -> None:
    """Half a line is no release either."""
    with at_gate(spec_in(tmp_path, *shell("echo executed"))) as child:
        os.write(child.gated.release_fd, b"go")
        child.close()
        assert child.end() == Exited(97)
    assert (tmp_path / "stdout").read_bytes() == b""


def test_a_gate_is_not_kept_open_by_another_child(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    with at_gate(spec_in(folders[0], "true")) as first, at_gate(spec_in(folders[1], "true")):
        first.close()
        assert first.end() == Exited(97)


async def test_a_child_that_was_killed_at_the_gate_was_not_refused_by_it(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, "true")) as child, anyio.fail_after(LIMIT_SECONDS):
        os.kill(child.pid, signal.SIGKILL)
        assert child.end() == Signalled(9)
        await child.gated.release()
        assert (tmp_path / "stdout").read_bytes() == b""


async def test_a_program_that_is_never_executed_is_given_up_after_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "EXEC_TIMEOUT_SECONDS", 0.3)
    with at_gate(spec_in(tmp_path, "true")) as child:
        os.kill(child.pid, signal.SIGSTOP)
        with anyio.fail_after(LIMIT_SECONDS), pytest.raises(SpawnError, match="not executed within"):
            await child.gated.release()


async def test_a_program_that_hides_its_command_line_counts_as_executed_after_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "NAMELESS_SECONDS", 0.1)
    monkeypatch.setattr(procfs, "command_line", lambda _: b"")
    with at_gate(spec_in(tmp_path, "sleep", "60")) as child, anyio.fail_after(LIMIT_SECONDS):
        await child.gated.release()


async def test_an_empty_command_line_in_the_middle_of_an_exec_is_not_taken_for_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel shows one for a moment, before an exec fails as well."""
    shown = [b""] * 5
    real = procfs.command_line
    monkeypatch.setattr(procfs, "command_line", lambda pid: shown.pop() if shown else real(pid))
    assert "not found" in await refusal(spec_in(tmp_path, "/nowhere/claude"))


# What cannot be executed


async def test_a_missing_program_is_refused_by_its_name(tmp_path: Path) -> None:
    assert await refusal(spec_in(tmp_path, "/nowhere/claude")) == "/nowhere/claude: not found"


async def test_a_program_that_is_not_on_the_path_is_refused(tmp_path: Path) -> None:
    assert "no-such-program: not found" in await refusal(spec_in(tmp_path, "no-such-program"))


async def test_a_program_that_may_not_be_executed_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n")
    assert "Permission denied" in await refusal(spec_in(tmp_path, str(program)))


async def test_a_folder_is_no_program(tmp_path: Path) -> None:
    assert "ermission denied" in await refusal(spec_in(tmp_path, str(tmp_path)))


async def test_a_program_whose_interpreter_is_missing_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/nowhere/interpreter\n")
    program.chmod(0o755)
    assert "not found" in await refusal(spec_in(tmp_path, str(program)))


async def test_a_directory_that_vanished_is_refused(tmp_path: Path) -> None:
    message = await refusal(spec_in(tmp_path, "true", dir=tmp_path / "gone"))
    assert "can't cd to" in message
    assert str(tmp_path / "gone") in message


async def test_a_prompt_that_vanished_is_refused(tmp_path: Path) -> None:
    message = await refusal(spec_in(tmp_path, "true", stdin=tmp_path / "gone"))
    assert str(tmp_path / "gone") in message


@pytest.mark.parametrize("missing", ["stdout", "stderr"])
def test_output_files_that_vanished_are_refused_before_anything_is_created(
    tmp_path: Path, missing: str
) -> None:
    spec = spec_in(tmp_path, "true")
    (tmp_path / missing).unlink()
    with pytest.raises(SpawnError, match="no process could be created: No such file"):
        spawn_gated(spec)


def test_a_spawn_that_fails_leaves_no_descriptor_open(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, "true")
    (tmp_path / "stdout").unlink()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(SpawnError):
            spawn_gated(spec)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_only_words_of_the_gate_at_the_beginning_of_stderr_are_a_complaint(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    for content, told in [
        (b"", None), (b"Error: x", None), (b"x\nhive-subagent-gate: x", None), (b"\xff\xfe", None),
        (b"hive-subagent-gate: 4: exec: claude: not found\n", "claude: not found"),
        (b"hive-subagent-gate: line 4: /x: cannot execute: required file not found\n",
         "/x: cannot execute: required file not found"),
    ]:  # fmt: skip
        path.write_bytes(content)
        assert gate_complaint(path) == told


# What the program finds


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o027])
async def test_the_program_has_the_umask_that_was_asked_for(tmp_path: Path, umask: int) -> None:
    before = os.umask(0o177)
    try:
        assert await released(spec_in(tmp_path, *shell("umask"), umask=umask)) == (
            Exited(0),
            f"{umask:04o}\n".encode(),
        )
    finally:
        os.umask(before)


@pytest.fixture
def ignored_signals() -> Iterator[None]:
    """Ignore and block signals as a daemon does that was started in the background of a script."""
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGRTMIN)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGINT})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, disposition in before.items():
        signal.signal(number, disposition)


@pytest.mark.usefixtures("ignored_signals")
async def test_no_signal_is_ignored_or_blocked_whatever_the_daemon_does(tmp_path: Path) -> None:
    code, written = await released(spec_in(tmp_path, "cat", "/proc/self/status"))
    status = dict(line.split(":\t", 1) for line in written.decode().splitlines() if ":\t" in line)
    assert code == Exited(0)
    # glibc's posix_spawn(3) always ignores the two signals that it keeps for itself (32 and 33).
    assert int(status["SigIgn"], 16) & ~(0b11 << 31) == 0
    assert int(status["SigBlk"], 16) == 0


@pytest.mark.usefixtures("ignored_signals")
async def test_an_interrupt_reaches_a_program_although_the_daemon_ignores_it(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, "sleep", "60")) as child, anyio.fail_after(LIMIT_SECONDS):
        await child.gated.release()
        os.kill(child.pid, signal.SIGINT)
        assert child.end() == Signalled(2)


async def open_descriptors(tmp_path: Path) -> dict[int, str]:
    """Return the descriptors that a program finds and where they lead, but for the one by which it looks."""
    _, written = await released(spec_in(tmp_path, "ls", "-l", "/proc/self/fd"))
    shown = [line.partition(" -> ") for line in written.decode().splitlines() if " -> " in line]
    found = {int(left.split()[-1]): target for left, _, target in shown}
    return {number: target for number, target in found.items() if not target.startswith("/proc/")}


def inheritable() -> set[int]:
    """Return the descriptors that this process inherited itself and would pass on."""
    numbers = (int(path.name) for path in Path("/proc/self/fd").iterdir())
    return {number for number in numbers if number > 2 and is_inheritable(number)}


def is_inheritable(descriptor: int) -> bool:
    """Tell whether a descriptor is passed on; the one by which the folder was listed is closed by now."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


async def test_the_program_has_its_three_files_and_none_that_the_daemon_opened(tmp_path: Path) -> None:
    descriptors = [os.open("/dev/null", os.O_RDONLY), *os.pipe()]
    found = await open_descriptors(tmp_path)
    for descriptor in descriptors:
        os.close(descriptor)
    own = {number: target for number, target in found.items() if number not in inheritable()}
    assert own == {n: str(tmp_path / name) for n, name in enumerate(("stdin", "stdout", "stderr"))}


async def test_what_the_daemon_itself_inherited_is_not_passed_on(tmp_path: Path) -> None:
    """A lock or a pipe of whoever started the daemon must not be held by every turn."""
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    found = await open_descriptors(tmp_path)
    os.close(descriptor)
    assert sorted(found) == [0, 1, 2]


async def test_the_prompt_is_read_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "stdin").write_bytes(b"line one\nline two" * 50_000)
    _, written = await released(spec_in(tmp_path, "cat"))
    assert written == b"line one\nline two" * 50_000


async def test_output_is_appended_so_that_a_truncated_file_has_no_hole(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, *shell("echo one; : > stdout; echo two; echo three >&2"))
    assert await released(spec) == (Exited(0), b"two\n")
    assert (tmp_path / "stderr").read_bytes() == b"three\n"


async def test_the_program_leads_a_session_of_its_own(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, "sleep", "60")) as child, anyio.fail_after(LIMIT_SECONDS):
        await child.gated.release()
        found = procfs.process(child.pid)
        assert found is not None
        assert (found.session, found.parent) == (child.pid, os.getpid())
        assert os.getpgid(child.pid) == child.pid
        assert child.gated.start == found.start


def oom_score(pid: int) -> int:
    """Return how much the OOM killer is told to prefer a process."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_the_program_is_preferred_by_the_oom_killer(tmp_path: Path) -> None:
    with at_gate(spec_in(tmp_path, "sleep", "60")) as child, anyio.fail_after(LIMIT_SECONDS):
        await child.gated.release()
        assert oom_score(child.pid) >= 500


@pytest.mark.parametrize(
    "folder", ["plain", "-dash", "with blank", "quo'te\"", "new\nline", "ü", "$HOME", "a;b"]
)
async def test_the_program_runs_in_its_directory_whatever_that_is_called(tmp_path: Path, folder: str) -> None:
    directory = tmp_path / folder
    directory.mkdir()
    assert await released(spec_in(tmp_path, "/bin/pwd", dir=directory)) == (
        Exited(0),
        f"{directory}\n".encode(),
    )


@pytest.mark.parametrize(
    "argument",
    ["", "-n", "--", "a b", "$HOME", "`id`", "'", '"', "\\", "\n", "*", "ü", "x" * 100_000, "\udcff"],
)
async def test_arguments_arrive_as_they_are(tmp_path: Path, argument: str) -> None:
    code, written = await released(spec_in(tmp_path, "printf", "%s|", argument, "end"))
    assert (code, written) == (Exited(0), os.fsencode(f"{argument}|end|"))


ENVIRONMENT = {
    "PATH": PATH, "HOME": "/nowhere", "EMPTY": "", "LINES_": "a\nb\n", "EQUALS": "a=b=c", "UTF8": "ü漢",
    "QUOTES": "'\"`$x`\\", "BYTES": "\udcff\udcfe", "LONG": "x" * 100_000, "lower": "1", "_UNDER": "1",
    "CDPATH": "/tmp:/", "ENV": "/nowhere/rc", "BASH_ENV": "/nowhere/rc", "PS1": "p", "OLDPWD": "/elsewhere",
}  # fmt: skip


async def test_the_environment_arrives_unchanged(tmp_path: Path) -> None:
    """Only the two variables that tell of the directory follow the change to it."""
    wanted = ENVIRONMENT | {"PWD": str(tmp_path)}
    _, written = await released(spec_in(tmp_path, "cat", "/proc/self/environ", environment=wanted))
    entries = [entry.partition(b"=") for entry in written.split(b"\0") if entry]
    found = {os.fsdecode(key): os.fsdecode(value) for key, _, value in entries}
    assert {key for key in found if found[key] != wanted.get(key)} <= {"OLDPWD", "_", "SHLVL"}
    assert wanted.keys() <= found.keys()


def test_the_environment_of_a_child_stays_out_of_its_representation(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, "claude", "--name=x", environment={"TOKEN": "secret"})
    assert "secret" not in repr(spec)
    assert "claude" in repr(spec)
