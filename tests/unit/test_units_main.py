"""The command `hive-subagent-daemon units`."""

from __future__ import annotations

import os
import pwd
import sys
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import daemon_main, units_main

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.getuid())
OTHER = "daemon" if ME.pw_name != "daemon" else "bin"
OTHER_UID = pwd.getpwnam(OTHER).pw_uid


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the command be called by the path of a program that is there."""
    made = tmp_path / "bin" / "hive-subagent-daemon"
    made.parent.mkdir()
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(made)])
    return made


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Return the flag for a configuration, so that nobody's own is read."""
    path = tmp_path / "config.toml"
    path.write_text('listen = ["127.0.0.1:7400"]\nallow_root = true\n')
    return f"--config={path}"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what the command prints when all is well."""
    code = units_main.main(words)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 1) -> str:
    """Return why the command does nothing."""
    assert units_main.main(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_both_files_are_printed_one_after_the_other(
    capsys: pytest.CaptureFixture[str], config: str, program: Path
) -> None:
    lines = printed(capsys, "--user", config).splitlines()
    assert lines[0] == "# hive-subagent.socket"
    assert lines[lines.index("# hive-subagent.service") - 1] == ""
    assert f"ExecStart={program} {config}" in lines


def test_units_is_a_command_of_the_daemons_own_program(
    capsys: pytest.CaptureFixture[str], config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert daemon_main.main(["units", "--user", config]) == 0
    by_words = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [sys.argv[0], "units", "--user", config])
    assert daemon_main.main() == 0
    assert capsys.readouterr().out == by_words


def test_the_flags_of_the_daemon_do_not_take_the_word_units(
    capsys: pytest.CaptureFixture[str], config: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        daemon_main.main([config, "units"])
    assert "units" in capsys.readouterr().err


def test_addresses_come_from_the_configuration(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert "\nListenStream=127.0.0.1:7400\n" in printed(capsys, "--user", config)


def test_flags_go_over_the_configuration(
    capsys: pytest.CaptureFixture[str], config: str, tmp_path: Path
) -> None:
    text = printed(
        capsys, "--user", config, "--listen", "[::1]:7", "--listen=unix:/a/b", "--work-dir", str(tmp_path)
    )
    assert "\nListenStream=[::1]:7\nListenStream=/a/b\n" in text
    assert "7400" not in text
    assert f" --work-dir={tmp_path}\n" in text


def test_relative_paths_become_absolute(
    capsys: pytest.CaptureFixture[str], config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = printed(capsys, "--user", "--config", "config.toml", "--work-dir", "bin")
    assert f" {config} --work-dir={tmp_path}/bin\n" in text


def test_the_uid_of_the_user_is_looked_up(capsys: pytest.CaptureFixture[str], config: str) -> None:
    text = printed(capsys, "--system", "--agent=-p", "--run-as", OTHER, config)
    assert text.startswith("# hive-subagent-\\x2dp.socket\n")
    assert f"\nUser={OTHER}\n" in text
    assert f"\nRequires=user@{OTHER_UID}.service\n" in text
    assert f"\nEnvironment=XDG_RUNTIME_DIR=/run/user/{OTHER_UID}\n" in text
    assert " --agent=-p\n" in text


@pytest.mark.parametrize("flag", ["--agent", "--run-as"])
def test_agent_and_user_have_the_same_name_unless_said_otherwise(
    capsys: pytest.CaptureFixture[str], config: str, flag: str
) -> None:
    text = printed(capsys, "--system", flag, OTHER, config)
    assert f"\nUser={OTHER}\n" in text
    assert f" --agent={OTHER}\n" in text


def test_an_unknown_user_is_refused(capsys: pytest.CaptureFixture[str], config: str) -> None:
    why = refused(capsys, "--system", "--run-as", "no-such-user-7", config)
    assert "there is no user 'no-such-user-7' on this machine" in why


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--user", "--system"),
        ("--system",),
        ("--user", "--run-as", "root"),
        ("--user", "--force"),
        ("--user", "x"),
    ],
)
def test_wrong_usage_ends_with_code_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        units_main.main(words)
    assert "usage: hive-subagent-daemon units" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--listen", "0.0.0.0:80"), "is not a loopback address"),
        (("--agent", "a/b"), "--agent: must be"),
        (("--config", "/nowhere/config.toml"), "/nowhere/config.toml: the configuration cannot be read"),
        (("--work-dir", "/nowhere"), "existing directory"),
    ],
)
def test_a_wrong_value_ends_with_code_2(
    words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reason in refused(capsys, "--user", *words, code=2)


@pytest.mark.parametrize(("allowed", "is_told"), [("true", False), ("false", True)])
def test_root_is_told_that_it_must_be_allowed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, allowed: str, *, is_told: bool
) -> None:
    path = tmp_path / "root.toml"
    path.write_text(f"allow_root = {allowed}\n")
    assert units_main.main(["--system", "--run-as", "root", f"--config={path}"]) == 0
    captured = capsys.readouterr()
    assert ("allow_root = true" in captured.err) == is_told
    assert "\nUser=root\n" in captured.out


def test_the_path_of_the_asking_shell_is_taken_for_its_own_user_only(
    capsys: pytest.CaptureFixture[str], config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/opt/node/bin:relative::/usr/bin:/opt/node/bin")
    assert "\nEnvironment=PATH=/opt/node/bin:/usr/bin\n" in printed(capsys, "--user", config)
    text = printed(capsys, "--system", "--run-as", OTHER, config)
    assert "/opt/node" not in text
    assert f"\nEnvironment=PATH={pwd.getpwnam(OTHER).pw_dir}/.local/bin:/usr/local/sbin:" in text


def test_a_program_that_the_user_cannot_reach_is_warned_of(
    capsys: pytest.CaptureFixture[str], config: str, program: Path
) -> None:
    program.parent.chmod(0o700)
    assert units_main.main(["--system", "--run-as", OTHER, config]) == 0
    assert f"{OTHER} cannot reach /" in capsys.readouterr().err


def test_a_program_in_a_folder_of_path_is_found(
    capsys: pytest.CaptureFixture[str], config: str, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(sys, "argv", ["hive_subagent_daemon/daemon_main.py"])
    assert f"ExecStart={program} " in printed(capsys, "--user", config)


def test_a_program_that_is_nowhere_is_refused(
    capsys: pytest.CaptureFixture[str], config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(sys, "argv", ["daemon_main.py"])
    assert "install it" in refused(capsys, "--user", config)


def test_files_are_written_where_they_are_wanted(
    capsys: pytest.CaptureFixture[str], config: str, tmp_path: Path
) -> None:
    text = printed(capsys, "--user", config)
    folder = tmp_path / "new" / "units"
    told = printed(capsys, "--user", config, "--output", str(folder))
    written = [folder / f"hive-subagent.{kind}" for kind in ("socket", "service")]
    assert "\n".join(path.read_text() for path in written) == text
    assert sorted(folder.iterdir()) == sorted(written)
    assert {path.stat().st_mode & 0o777 for path in written} == {0o644}
    assert "systemctl --user enable --now hive-subagent.socket" in told


def test_files_that_are_there_already_are_left_and_called_unchanged(
    capsys: pytest.CaptureFixture[str], config: str, tmp_path: Path
) -> None:
    words = ("--user", config, "--output", str(tmp_path / "units"))
    printed(capsys, *words)
    service = tmp_path / "units" / "hive-subagent.service"
    before = service.stat()
    (tmp_path / "units" / "hive-subagent.socket").write_text("# mine\n")
    told = printed(capsys, *words, "--force").splitlines()
    assert told[:2] == [f"wrote {tmp_path}/units/hive-subagent.socket", f"unchanged {service}"]
    assert service.stat() == before


def test_a_file_that_differs_is_replaced_only_by_force(
    capsys: pytest.CaptureFixture[str], config: str, tmp_path: Path
) -> None:
    mine = tmp_path / "hive-subagent.service"
    mine.write_text("# mine\n")
    words = ("--user", config, "--output", str(tmp_path))
    assert f"different: {mine}. Compare" in refused(capsys, *words)
    assert mine.read_text() == "# mine\n"
    assert not (tmp_path / "hive-subagent.socket").exists()
    printed(capsys, *words, "--force")
    assert mine.read_text().startswith("# hive-subagent.service\n")


def test_a_masked_unit_is_not_written_through(
    capsys: pytest.CaptureFixture[str], config: str, tmp_path: Path
) -> None:
    masked = tmp_path / "hive-subagent.service"
    masked.symlink_to("/dev/null")
    words = ("--user", config, "--output", str(tmp_path))
    assert str(masked) in refused(capsys, *words)
    printed(capsys, *words, "--force")
    assert masked.is_file()
    assert not masked.is_symlink()


def test_a_folder_that_cannot_be_made_is_named(
    capsys: pytest.CaptureFixture[str], config: str, program: Path
) -> None:
    assert f"cannot write into {program}/x" in refused(
        capsys, "--user", config, "--output", str(program / "x")
    )
