"""Unit files: what stands in them, that systemd takes them, and what cannot be in one."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config_values import TcpAddress, UnixAddress
from hive_subagent_daemon.unit_files import (
    Account,
    UnitFiles,
    UnitFilesError,
    Wanted,
    system_units,
    user_units,
)
from tests.unit.support_unit_files import (
    ALICE,
    BASE,
    ODD_AGENTS,
    ROOT,
    TCP,
    UNIX,
    VERIFY_SECONDS,
    complaints,
    needs_analyze,
    program_in,
    settings,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

USER, SYSTEM = user_units(BASE), system_units(BASE)
AS_ROOT = system_units(replace(BASE, account=ROOT))
ON_UNIX = replace(BASE, listen=(UNIX,))
FORMS = pytest.mark.parametrize("made", [USER, SYSTEM, AS_ROOT], ids=["user", "system", "root"])
HARMFUL = re.findall(
    r"\w+",
    """
    NoNewPrivileges CapabilityBoundingSet
    RestrictRealtime ProtectClock ProtectHostname ProtectKernelLogs ProtectKernelModules
    ProtectKernelTunables SystemCallArchitectures RestrictSUIDSGID LockPersonality PrivateTmp
    ProtectHome ProtectSystem PrivateDevices PrivateUsers RestrictNamespaces
    MemoryDenyWriteExecute SystemCallFilter ProtectProc ProcSubset PrivateNetwork
    RestrictAddressFamilies ProtectControlGroups Delegate Slice MemoryMax
    TasksMax CPUWeight
    """,
)


def _odd(program: Path, *, agent: str | None) -> Wanted:
    """Return a daemon nearly all of whose words have to be quoted."""
    work_dir = Path("/srv/a $x%h")
    return replace(BASE, program=program, listen=(TCP, UNIX), agent=agent, work_dir=work_dir)


@needs_analyze
@pytest.mark.parametrize("agent", [None, *ODD_AGENTS])
def test_systemd_has_no_complaint_about_the_units_of_a_user(tmp_path: Path, agent: str | None) -> None:
    made = user_units(_odd(program_in(tmp_path), agent=agent))
    assert complaints([(f.name, f.text) for f in made.files], tmp_path / "units", user=True) == ""


@needs_analyze
@pytest.mark.parametrize("agent", ODD_AGENTS)
@pytest.mark.parametrize("account", [ALICE, ROOT], ids=["alice", "root"])
def test_systemd_has_no_complaint_about_the_units_of_the_system(
    tmp_path: Path, agent: str, account: Account
) -> None:
    made = system_units(replace(_odd(program_in(tmp_path), agent=agent), account=account))
    assert complaints([(f.name, f.text) for f in made.files], tmp_path / "units", user=False) == ""


@needs_analyze
@pytest.mark.parametrize("user", [True, False])
def test_a_setting_that_systemd_does_not_know_is_complained_about(tmp_path: Path, *, user: bool) -> None:
    made = (user_units if user else system_units)(replace(BASE, program=program_in(tmp_path)))
    spoilt = [(file.name, file.text.replace("WatchdogSec", "WatchfulSec")) for file in made.files]
    assert "WatchfulSec" in complaints(spoilt, tmp_path / "units", user=user)


@needs_analyze
def test_a_program_that_is_not_there_is_complained_about(tmp_path: Path) -> None:
    made = user_units(replace(BASE, program=tmp_path / "gone"))
    assert "gone" in complaints([(f.name, f.text) for f in made.files], tmp_path / "units", user=True)


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd-escape is not installed")
@pytest.mark.parametrize("agent", [agent for agent in ODD_AGENTS if not agent.startswith("-")])
def test_units_are_named_as_systemd_escape_does(agent: str) -> None:
    command = ["systemd-escape", "--", agent]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=VERIFY_SECONDS)
    made = system_units(replace(BASE, agent=agent))
    assert [file.name for file in made.files] == [
        f"hive-subagent-{ran.stdout.strip()}.{kind}" for kind in ("socket", "service")
    ]


@pytest.mark.parametrize(
    ("agent", "name"),
    [("a", "hive-subagent-a"), ("a-b", r"hive-subagent-a\x2db"), ("-p", r"hive-subagent-\x2dp")],
)
def test_agents_have_units_of_their_own_in_both_forms(agent: str, name: str) -> None:
    for form in (user_units, system_units):
        made = form(replace(BASE, agent=agent))
        assert [file.name for file in made.files] == [f"{name}.socket", f"{name}.service"]
        assert settings(made, "service")["Unit.After"][0] == f"{name}.socket"
        assert f"--agent={agent}" in settings(made, "service")["Service.ExecStart"][0]


def test_the_only_daemon_of_a_user_needs_no_name() -> None:
    assert [file.name for file in USER.files] == ["hive-subagent.socket", "hive-subagent.service"]
    assert settings(USER, "service")["Service.ExecStart"] == ["/opt/hive/bin/hive-subagent-daemon"]


@FORMS
def test_what_the_daemon_relies_on_stands_in_every_service(made: UnitFiles) -> None:
    found = {key: value for key, [value, *_] in settings(made, "service").items()}
    expected = {
        "Unit.StartLimitIntervalSec": "0",
        "Service.Type": "notify",
        "Service.NotifyAccess": "main",
        "Service.ExecReload": "kill -HUP $MAINPID",
        "Service.OOMPolicy": "continue",
        "Service.Restart": "on-failure",
        "Service.KillMode": "mixed",
        "Service.WatchdogSec": "60s",
        "Service.TimeoutStopSec": "30s",
        "Service.UMask": "0077",
        "Service.LimitCORE": "0",
        "Service.KeyringMode": "private",
    }
    assert {key: found.get(key) for key in expected} == expected


@FORMS
def test_what_would_hurt_turns_is_named_and_not_set(made: UnitFiles) -> None:
    keys = {key.partition(".")[2] for key in settings(made, "service")}
    assert not keys & set(HARMFUL)
    unexplained = [key for key in HARMFUL if not re.search(rf"^#.*\b{key}\b", text_of(made, "service"), re.M)]
    assert not unexplained


@FORMS
def test_each_file_says_what_it_is_where_it_belongs_and_what_to_type(made: UnitFiles) -> None:
    for file in made.files:
        lines = file.text.splitlines()
        assert lines[0] == f"# {file.name}"
        assert made.folder in file.text
        assert [line for line in lines if line.startswith("#   ")][: len(made.commands)] == [
            f"#   {command}" for command in made.commands
        ]
        assert not re.search(r"@[A-Z]", file.text)
        assert max(map(len, lines)) <= 110


def test_the_service_of_the_system_waits_for_the_manager_of_its_user() -> None:
    found = settings(SYSTEM, "service")
    assert found["Unit.Requires"] == ["hive-subagent-alice.socket", "user@1001.service"]
    assert found["Unit.After"] == ["hive-subagent-alice.socket", "dbus.service", "user@1001.service"]
    assert "XDG_RUNTIME_DIR=/run/user/1001" in found["Service.Environment"]
    assert found["Service.User"] == ["alice"]
    assert found["Service.StateDirectory"] == ["hive-subagent/alice"]


def test_the_commands_come_in_one_order_and_with_sudo_where_a_user_needs_it() -> None:
    assert USER.commands == (
        "systemctl --user daemon-reload",
        "systemctl --user enable --now hive-subagent.socket",
        "loginctl enable-linger",
    )
    assert SYSTEM.commands == (
        "sudo systemctl daemon-reload",
        "sudo systemctl enable --now hive-subagent-alice.socket",
        "sudo loginctl enable-linger alice",
    )
    assert AS_ROOT.commands == (
        "systemctl daemon-reload",
        "systemctl enable --now hive-subagent-root.socket",
    )
    dashed = system_units(replace(BASE, agent="a-b"))
    assert r"sudo systemctl enable --now 'hive-subagent-a\x2db.socket'" in dashed.commands


def test_root_uses_the_manager_of_the_system_and_is_told_of_allow_root() -> None:
    found = settings(AS_ROOT, "service")
    assert found["Unit.Requires"] == ["hive-subagent-root.socket"]
    assert not [value for value in found["Service.Environment"] if "XDG_RUNTIME_DIR" in value]
    assert "allow_root = true" in text_of(AS_ROOT, "service")


def test_a_user_gets_nothing_that_only_root_can_give() -> None:
    keys = {key.partition(".")[2] for key in settings(USER, "service")}
    assert not keys & {"User", "OOMScoreAdjust", "StateDirectory"}


def test_addresses_are_written_as_systemd_reads_them() -> None:
    addresses = (TcpAddress("localhost", 7311), TcpAddress("::1", 7311), TCP)
    odd = UnixAddress(Path("/run/a b%c.sock"))
    found = settings(system_units(replace(BASE, listen=(*addresses, odd))), "socket")
    assert found["Socket.ListenStream"] == [
        "127.0.0.1:7311",
        "[::1]:7311",
        "127.0.0.1:7310",
        "/run/a b%%c.sock",
    ]
    assert found["Socket.Accept"] == ["no"]


@pytest.mark.parametrize(("made", "owner"), [(user_units(ON_UNIX), None), (system_units(ON_UNIX), ["alice"])])
def test_a_unix_socket_is_for_its_user_alone(made: UnitFiles, owner: list[str] | None) -> None:
    found = settings(made, "socket")
    assert found["Socket.SocketMode"] == ["0600"]
    assert found.get("Socket.SocketUser") == owner


def test_tcp_alone_has_no_settings_of_files() -> None:
    assert "Socket.SocketMode" not in settings(SYSTEM, "socket")


def test_words_are_quoted_as_systemd_unquotes_them() -> None:
    made = system_units(
        replace(
            BASE,
            agent='a:"b%',
            program=Path("/opt/a $b/hive-subagent-daemon"),
            config_file=Path("/etc/a b$c%d\\e.toml"),
            work_dir=Path("/srv/plain"),
        )
    )
    found = settings(made, "service")
    program, arguments = (
        '"/opt/a $b/hive-subagent-daemon"',
        r'"--config=/etc/a b$$c%%d\\e.toml" "--agent=a:\x22b%%"',
    )
    assert found["Service.ExecStart"] == [f"{program} {arguments} --work-dir=/srv/plain"]
    assert found["Service.StateDirectory"] == [r'"hive-subagent/a\:\x22b%%"']
    assert found["Unit.Description"] == ['Hive subagent daemon of a:"b%%']


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (replace(BASE, config_file=Path("/etc/a\nb")), "'/etc/a\\nb' cannot stand in a unit file"),
        (replace(BASE, work_dir=Path("/srv/a ")), "blank or backslash"),
        (replace(BASE, agent="a\\"), "blank or backslash"),
        (replace(BASE, program=Path("/opt/\udc80")), "printable"),
        (replace(BASE, agent="ü" * 63), "take a shorter name"),
    ],
)
@pytest.mark.parametrize("form", [user_units, system_units])
def test_what_cannot_stand_in_a_unit_is_refused(
    wanted: Wanted, reason: str, form: Callable[[Wanted], UnitFiles]
) -> None:
    with pytest.raises(UnitFilesError, match=re.escape(reason)):
        form(wanted)


def test_a_port_of_the_kernels_choice_is_refused() -> None:
    with pytest.raises(UnitFilesError, match="fixed port"):
        user_units(replace(BASE, listen=(TcpAddress("127.0.0.1", 0),)))


def test_a_socket_in_a_folder_that_is_mounted_later_is_refused_for_the_system() -> None:
    early = replace(BASE, listen=(UnixAddress(Path("/run/user/1001/hive.sock")),))
    assert settings(user_units(early), "socket")["Socket.ListenStream"] == ["/run/user/1001/hive.sock"]
    with pytest.raises(UnitFilesError, match="/run/user is not there yet"):
        system_units(early)


def test_a_name_is_no_address_for_a_socket_unit() -> None:
    with pytest.raises(UnitFilesError, match=r"box:7310: systemd looks up no names: a socket unit needs an"):
        user_units(replace(BASE, listen=(TcpAddress("box", 7310),)))
