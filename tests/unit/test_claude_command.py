"""How claude is called: exact arguments, an explicit environment, a prompt that is always text."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon import claude_command
from hive_subagent_daemon.claude_command import Conversation, arguments, child_environment, find_program
from hive_subagent_daemon.config_values import FileValue, McpServer
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.values import Bounds

PROGRAM = Path("/opt/claude")
UUID = "0f0e0d0c-0b0a-4908-8706-050403020100"
ALWAYS = (
    "--print", "--verbose", "--output-format", "stream-json", "--dangerously-skip-permissions",
    "--strict-mcp-config",
)  # fmt: skip
WITHHELD = [
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
    "INVOCATION_ID", "JOURNAL_STREAM", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY",
    "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY", "CREDENTIALS_DIRECTORY", "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_EXECPATH", "CLAUDE_CODE_X",
    "CLAUDE_EFFORT", "CLAUDE_JOB_DIR", "AI_AGENT", "ANTHROPIC_MODEL", "TRACEPARENT",
]  # fmt: skip
PASSED = {
    "PATH": "/bin", "HOME": "/h", "LANG": "C.UTF-8", "TERM": "xterm", "ANTHROPIC_API_KEY": "key",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "CLAUDE_CONFIG_DIR": "/c", "HTTPS_PROXY": "http://p",
    "XDG_RUNTIME_DIR": "/run/user/1", "SSH_AUTH_SOCK": "/a", "MY_DIRECTORY": "/m", "EMPTY": "",
    "claudecode": "1",
}  # fmt: skip

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def fresh(name: str = "reviewer") -> Conversation:
    """Return the conversation of a fresh subagent."""
    return Conversation(name, UUID, resumes=False)


def command(conversation: Conversation, **given_values: object) -> tuple[str, ...]:
    """Return claude's command line with nothing but what is given."""
    values: dict[str, Any] = {"model": None, "prompt_file": None, "mcp_config": None}
    values.update(given_values)
    return arguments(PROGRAM, conversation, **values)


# Arguments


def test_a_fresh_subagent_gets_a_session_id_and_its_name() -> None:
    assert command(fresh()) == ("/opt/claude", *ALWAYS, f"--session-id={UUID}", "--name=reviewer")


def test_a_known_session_is_resumed_by_its_id_and_an_unknown_one_by_its_title() -> None:
    assert command(Conversation("reviewer", UUID, resumes=True)) == (
        "/opt/claude",
        *ALWAYS,
        f"--resume={UUID}",
    )
    assert command(Conversation("reviewer", None, resumes=True))[-1] == "--resume=reviewer"


def test_everything_that_is_given_is_passed() -> None:
    given_values = {"model": "opus[1m]", "prompt_file": "/s/prompts/r", "mcp_config": Path("/s/mcp.json")}
    assert command(fresh(), **given_values)[-3:] == (
        "--append-system-prompt-file=/s/prompts/r",
        "--model=opus[1m]",
        "--mcp-config=/s/mcp.json",
    )


def test_bounds_are_passed_in_a_form_that_claude_reads() -> None:
    """A tiny amount as decimals: an exponent is not taken for granted."""
    given = command(fresh(), bounds=Bounds(60.0, 0.000001, 7))
    assert given[-2:] == ("--max-budget-usd=0.000001", "--max-turns=7")
    assert not [word for word in command(fresh()) if word.startswith("--max")]


def test_an_empty_model_is_claudes_default() -> None:
    """An empty value would reach the API as an empty model (facts, section 10)."""
    assert command(fresh(), model="") == command(fresh(), model=None)


@pytest.mark.parametrize("name", ["-p", "--help", "--model=x", "-"])
def test_a_name_that_begins_with_a_dash_is_never_a_flag(name: str) -> None:
    """Decision 2, and cases F11."""
    assert command(fresh(name))[-1] == f"--name={name}"
    assert command(Conversation(name, None, resumes=True))[-1] == f"--resume={name}"


def parsed(argv: tuple[str, ...]) -> dict[str, str | None]:
    """Read a command line the way programs do, by flags that take one value each."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for flag in ("session-id", "name", "resume", "append-system-prompt-file", "model", "mcp-config"):
        parser.add_argument(f"--{flag}")
    for flag in ("--print", "--verbose", "--dangerously-skip-permissions", "--strict-mcp-config"):
        parser.add_argument(flag, action="store_true", required=True)
    parser.add_argument("--output-format", choices=["stream-json"], required=True)
    return vars(parser.parse_args(argv[1:]))


@given(texts, texts.filter(bool), texts, st.booleans())
def test_every_value_arrives_as_it_is_and_the_fixed_flags_are_always_there(
    name: str, model: str, prompt_file: str, resumes: object
) -> None:
    conversation = Conversation(name, None if resumes else UUID, resumes=bool(resumes))
    values = parsed(command(conversation, model=model, prompt_file=prompt_file, mcp_config=Path("/m")))
    assert (values["model"], values["append_system_prompt_file"], values["mcp_config"]) == (
        model,
        prompt_file,
        "/m",
    )
    assert values["resume" if resumes else "name"] == name
    assert values["session_id"] == (None if resumes else UUID)
    assert values["name" if resumes else "resume"] is None


# Environment


def environment(
    daemon: dict[str, str],
    configured: dict[str, str | FileValue] | None = None,
    *,
    sandbox_mark: bool = False,
) -> dict[str, str]:
    """Return the environment of a turn."""
    return child_environment(daemon, configured or {}, turn="t1", sandbox_mark=sandbox_mark)


@pytest.mark.parametrize("key", WITHHELD)
def test_what_speaks_of_the_daemon_or_an_outer_claude_is_withheld(key: str) -> None:
    """Spec section 4; facts, section 11; cases D6 and F9."""
    assert key not in environment({key: "x"})
    assert key not in claude_command.inherited_environment({key: "x"})


def test_everything_else_of_the_daemons_environment_is_passed_as_it_is() -> None:
    assert environment(PASSED) == PASSED | {
        "CLAUDE_CODE_FORCE_SESSION_PERSISTENCE": "1",
        "DISABLE_AUTOUPDATER": "1",
        "HIVE_SUBAGENT_TURN": "t1",
    }


@given(st.dictionaries(st.one_of(st.sampled_from([*WITHHELD, *PASSED]), texts), texts, max_size=12))
def test_a_variable_is_passed_unchanged_or_not_at_all(daemon: dict[str, str]) -> None:
    child = environment(daemon)
    for key, value in daemon.items():
        if key in PASSED:
            assert child[key] == value
    for key in WITHHELD:
        assert key not in child
    own = {"CLAUDE_CODE_FORCE_SESSION_PERSISTENCE", "DISABLE_AUTOUPDATER", "HIVE_SUBAGENT_TURN"}
    assert all(daemon[key] == value for key, value in child.items() if key not in own)


def test_the_persistence_of_sessions_and_a_quiet_updater_are_forced() -> None:
    child = environment({"CLAUDE_CODE_FORCE_SESSION_PERSISTENCE": "0", "DISABLE_AUTOUPDATER": "0"})
    assert (child["CLAUDE_CODE_FORCE_SESSION_PERSISTENCE"], child["DISABLE_AUTOUPDATER"]) == ("1", "1")


def test_the_mark_of_an_outer_turn_is_replaced_by_that_of_this_one() -> None:
    assert environment({"HIVE_SUBAGENT_TURN": "outer"})["HIVE_SUBAGENT_TURN"] == "t1"


def test_what_is_configured_comes_last_and_may_set_what_is_withheld() -> None:
    configured: dict[str, str | FileValue] = {
        "CLAUDE_CODE_MAX_RETRIES": "1", "ANTHROPIC_MODEL": "m", "PATH": "/own", "DISABLE_AUTOUPDATER": "0",
    }  # fmt: skip
    child = environment({"PATH": "/bin", "ANTHROPIC_MODEL": "x"}, configured)
    assert {key: child[key] for key in configured} == configured


def test_the_mark_of_the_turn_cannot_be_configured_away() -> None:
    """By it the processes of a turn are found."""
    assert environment({}, {"HIVE_SUBAGENT_TURN": "other"})["HIVE_SUBAGENT_TURN"] == "t1"


@pytest.mark.parametrize("marked", [True, False])
def test_claude_is_told_that_it_may_run_as_root_only_where_that_is_allowed(*, marked: bool) -> None:
    assert ("IS_SANDBOX" in environment({}, sandbox_mark=marked)) is marked


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("secret", "secret"),
        ("secret\n", "secret"),
        ("secret\r\n", "secret"),
        (" a b \n\n", " a b "),
        ("", ""),
        ("ü\n", "ü"),
    ],
)
def test_a_value_from_a_file_is_its_content_without_the_end_of_the_line(
    tmp_path: Path, content: str, value: str
) -> None:
    (tmp_path / "token").write_bytes(content.encode())
    assert environment({}, {"TOKEN": FileValue(tmp_path / "token")})["TOKEN"] == value


def test_a_value_from_a_file_is_read_for_every_turn_again(tmp_path: Path) -> None:
    found = []
    for content in ("one", "two"):
        (tmp_path / "token").write_text(content)
        found.append(environment({}, {"TOKEN": FileValue(tmp_path / "token")})["TOKEN"])
    assert found == ["one", "two"]


@pytest.mark.parametrize(
    ("kind", "reason"), [("gone", "No such file"), ("folder", "not a regular file"), ("bytes", "UTF-8")]
)
def test_a_value_that_cannot_be_read_is_refused_by_its_name_without_its_content(
    tmp_path: Path, kind: str, reason: str
) -> None:
    path = tmp_path / "token"
    if kind == "folder":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(b"secret\xff")
    with pytest.raises(RefusedError, match=reason) as refusal:
        environment({}, {"TOKEN": FileValue(path)})
    assert "environment.TOKEN" in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "secret" not in str(refusal.value)


# The program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Make an executable named claude."""
    path = tmp_path / "bin" / "claude"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_name_is_looked_up_in_the_childs_own_path(program: Path, tmp_path: Path) -> None:
    found = find_program("claude", {"PATH": f"/nowhere:{program.parent}"}, tmp_path)
    assert found == program


def test_a_path_is_taken_from_the_work_dir_or_as_it_is(program: Path, tmp_path: Path) -> None:
    assert find_program("bin/claude", {}, tmp_path) == program
    assert find_program(str(program), {}, Path("/")) == program


def test_the_program_is_always_an_absolute_path(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child changes its directory before it executes it."""
    monkeypatch.chdir(tmp_path)
    assert find_program("claude", {"PATH": "bin"}, tmp_path) == program


@pytest.mark.parametrize(
    ("claude", "words"),
    [
        ("nosuch", "no program 'nosuch' on the daemon's PATH"),
        ("bin/nosuch", "does not exist"),
        ("bin", "no program"),
        ("./bin", "does not exist"),
    ],
)
def test_a_missing_program_is_refused_by_name_with_what_to_do(
    program: Path, tmp_path: Path, claude: str, words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as refusal:
        find_program(claude, {"PATH": str(program.parent)}, tmp_path)
    assert "configure" in str(refusal.value)


@pytest.mark.parametrize("path", [{}, {"PATH": ""}])
def test_without_a_path_only_the_systems_own_places_are_searched(
    path: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match="no program"):
        find_program("a-program-that-does-not-exist", path, tmp_path)


def test_a_program_that_is_not_executable_is_refused_as_such(program: Path, tmp_path: Path) -> None:
    program.chmod(0o644)
    assert not os.access(program, os.X_OK)
    with pytest.raises(RefusedError, match="is not executable"):
        find_program("bin/claude", {}, tmp_path)
    with pytest.raises(RefusedError, match="no program"):
        find_program("claude", {"PATH": str(program.parent)}, tmp_path)


# The prompt


@given(texts)
def test_a_prompt_never_begins_with_a_slash_and_is_otherwise_unchanged(prompt: str) -> None:
    """claude would run it as a local command (facts, section 5)."""
    sent = claude_command.prompt_bytes(prompt).decode()
    assert not sent.startswith("/")
    assert sent == (f" {prompt}" if prompt.startswith("/") else prompt)


@pytest.mark.parametrize("prompt", ["/clear", "/", "//", "/tmp/foo is a path", "/nosuch x"])
def test_a_prompt_that_looks_like_a_command_is_text(prompt: str) -> None:
    assert claude_command.prompt_bytes(prompt) == f" {prompt}".encode()


# MCP servers


def server(name: str, *, available: bool) -> McpServer:
    """Return a configured server."""
    return McpServer(name, {"type": "http", "url": "http://127.0.0.1:1/ü"}, available)


def test_only_servers_that_were_opted_in_are_rendered() -> None:
    """Cases H7: none means none."""
    rendered = claude_command.mcp_config([server("a", available=False), server("b", available=True)])
    assert rendered is not None
    assert json.loads(rendered) == {"mcpServers": {"b": {"type": "http", "url": "http://127.0.0.1:1/ü"}}}


@pytest.mark.parametrize("servers", [[], [server("a", available=False), server("subagent", available=False)]])
def test_without_an_opted_in_server_there_is_no_configuration_at_all(servers: list[McpServer]) -> None:
    assert claude_command.mcp_config(servers) is None
