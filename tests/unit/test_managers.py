"""Which systemd manager is asked, and in which words the daemon says why there is none."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from hive_subagent_daemon import cgroups, dbus_link, managers
from hive_subagent_daemon.children import Children
from hive_subagent_daemon.config_values import Percent, ScopeChoice, Scopes
from hive_subagent_daemon.errors import StartUpError
from hive_subagent_daemon.managers import NoManagerError, User, choose_launcher, manager_for
from hive_subagent_daemon.oomd import SYSTEM_BUS, OomdWatch
from hive_subagent_daemon.scopes import Place
from tests.support.slices import slices_in
from tests.unit.support_bus import FakeBus, Manner, body, returned, serving
from tests.unit.support_turns import LIMIT_SECONDS, Parts, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jeepney import Message

    from hive_subagent_daemon.config_values import Config
    from hive_subagent_daemon.launcher import Launcher

AGENT, ROOT = User(1234, "agent"), User(0, "root")
AUTO, USER, SYSTEM, OFF = ScopeChoice.AUTO, ScopeChoice.USER, ScopeChoice.SYSTEM, ScopeChoice.OFF
NO_MEMORY = "this systemd manager has no memory controller: "
UNTOLD = "OOM kills cannot be told from others"


# Which one


@pytest.mark.parametrize(("choice", "user"), [(AUTO, ROOT), (SYSTEM, ROOT)])
def test_root_asks_the_system_manager(choice: ScopeChoice, user: User) -> None:
    manager = manager_for(choice, user, {"XDG_RUNTIME_DIR": "/run/user/0"})
    assert (manager.name, manager.description) == ("the system manager", "system scope")
    assert manager.sockets == (SYSTEM_BUS,)


@pytest.mark.parametrize(("choice", "user"), [(AUTO, AGENT), (USER, AGENT), (USER, ROOT)])
def test_everybody_else_asks_the_own_users_manager(choice: ScopeChoice, user: User) -> None:
    """Root may too."""
    manager = manager_for(choice, user, {})
    assert (manager.name, manager.description) == ("the user's own manager", "user scope")
    assert manager.sockets == (Path(f"/run/user/{user.uid}/bus"),)


def test_nobody_else_asks_the_system_manager() -> None:
    """A polkit rule for it would be as good as root."""
    with pytest.raises(NoManagerError, match=r'use scopes\.manager = "user" and enable lingering'):
        manager_for(SYSTEM, AGENT, {})


@pytest.mark.parametrize(
    ("told", "sockets"),
    [
        ("/run/user/1234", ["/run/user/1234/bus"]),
        ("/elsewhere", ["/elsewhere/bus", "/run/user/1234/bus"]),
        ("", ["/run/user/1234/bus"]),
        ("relative", ["/run/user/1234/bus"]),
    ],
)
def test_the_users_bus_is_where_the_environment_says_or_where_it_always_is(
    told: str, sockets: list[str]
) -> None:
    """A system service with `User=` has no XDG_RUNTIME_DIR."""
    manager = manager_for(AUTO, AGENT, {"XDG_RUNTIME_DIR": told})
    assert [str(path) for path in manager.sockets] == sockets


# With a manager, and without


class Machine:
    """What a start-up finds: control groups, the folder of the user's manager, linger files."""

    def __init__(self, folder: Path) -> None:
        """Have cgroup v2, and no manager."""
        self.parts = Parts(folder)
        self.cgroup, self.run_user, self.linger = (folder / name for name in ("cgroup", "run-user", "linger"))
        for made in (self.cgroup, self.run_user, self.linger):
            made.mkdir()
        self.controllers("cpu memory pids")

    @property
    def place(self) -> Path:
        """The folder of the user's manager."""
        return self.run_user / str(AGENT.uid)

    def controllers(self, names: str) -> None:
        """Have these controllers."""
        (self.cgroup / "cgroup.controllers").write_text(f"{names}\n")

    async def choose(
        self, choice: ScopeChoice = AUTO, *, user: User = AGENT, scopes: Scopes | None = None
    ) -> tuple[Launcher, list[str]]:
        """Choose a launcher, and let it come to its end."""
        config = replace(self.parts.config, scopes=replace(scopes or Scopes(), manager=choice))
        launcher, notices = await self._choose(config, user)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(launcher.run)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return launcher, notices

    async def _choose(self, config: Config, user: User) -> tuple[Launcher, list[str]]:
        return await choose_launcher(
            config,
            Children(),
            user=user,
            environ={},
            instance="0f0e0d0c",
            to_stop=slices_in(self.parts.storage.root),
        )

    async def refusal(self, choice: ScopeChoice = USER, *, user: User = AGENT) -> str:
        """Choose and return why it is refused; with `auto` that is a warning and turns are process groups."""
        with pytest.raises(StartUpError) as error:
            await self.choose(choice, user=user)
        reason = str(error.value).removeprefix(f'scopes.manager = "{choice}": ')
        if user != AGENT or choice is not USER:
            return reason
        launcher, [notice] = await self.choose(AUTO)
        assert (launcher.description, launcher.makes_scopes) == ("process group", False)
        assert notice == (
            f"turns run as process groups: {reason}. So there are no memory limits and no OOM reports"
        )
        return reason


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Let nothing of the machine of the tests be seen, and wait shortly."""
    made = Machine(tmp_path)
    monkeypatch.setattr(cgroups, "ROOT", made.cgroup)
    monkeypatch.setattr(managers, "_RUN_USER", made.run_user)
    monkeypatch.setattr(managers, "_LINGER", made.linger)
    monkeypatch.setattr(managers, "COMING_UP_SECONDS", 0.2)
    monkeypatch.setattr(managers, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(managers, "OomdWatch", lambda: OomdWatch(tmp_path / "none"))
    monkeypatch.setattr(dbus_link, "CONNECT_SECONDS", 0.1)
    return made


def version(call: Message) -> list[Message]:
    """Answer what a property of the manager is."""
    known = {"Version": "257", "ControlGroup": "/"}
    return [returned(call, "v", ("s", known[body(call)[1]]))]


@pytest.fixture
async def bus(machine: Machine) -> AsyncIterator[FakeBus]:
    """Let the user's manager run."""
    machine.place.mkdir()
    made = FakeBus(machine.place / "bus")
    made.answers["Get"] = version
    async with serving(made):
        yield made
        made.hang_up()


@pytest.mark.usefixtures("bus")
async def test_control_groups_that_may_not_be_looked_at_are_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container or under InaccessiblePaths=: a reason, and with `auto` turns all the same."""
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.is_relative_to(machine.cgroup):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    assert (await machine.refusal()).startswith(f"cgroup v2 is not mounted at {machine.cgroup}")


OF_SYSTEM = "system.slice/x.service"
OF_USER = "user.slice/user-{uid}.slice/user@{uid}.service/app.slice/x.service"


@pytest.mark.parametrize(
    ("cgroup", "choice", "user", "unit"),
    [
        (OF_SYSTEM, SYSTEM, ROOT, "x.service"),
        (OF_USER.format(uid=1234), USER, AGENT, "x.service"),
        (OF_SYSTEM, USER, AGENT, None),
        (OF_USER.format(uid=5), USER, AGENT, None),
        (OF_SYSTEM, USER, ROOT, None),
        (OF_USER.format(uid=0), USER, ROOT, "x.service"),
        (OF_USER.format(uid=0), SYSTEM, ROOT, None),
        (f"{OF_SYSTEM}/below", SYSTEM, ROOT, None),
        ("user.slice/user-0.slice/session-1.scope", SYSTEM, ROOT, None),
        (None, SYSTEM, ROOT, None),
    ],
)
async def test_scopes_come_before_the_own_unit_only_in_the_manager_that_runs_it(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    cgroup: str | None,
    choice: ScopeChoice,
    user: User,
    unit: str | None,
) -> None:
    """What another manager does not know would be a unit that is not found there."""
    place = machine.run_user / str(user.uid)
    place.mkdir()
    monkeypatch.setattr(managers, "SYSTEM_BUS", place / "bus")
    monkeypatch.setattr(cgroups, "of_process", lambda _: cgroup and cgroups.at(cgroup))
    own_units: list[str | None] = []

    def note(*place: str) -> Place:
        own_units.append(place[2])
        return Place(*place)

    monkeypatch.setattr(managers, "Place", note)
    bus = FakeBus(place / "bus")
    bus.answers["Get"] = version
    async with serving(bus):
        await machine.choose(choice, user=user)
        bus.hang_up()
    assert own_units == [unit]


@pytest.mark.parametrize("choice", [AUTO, USER])
@pytest.mark.usefixtures("bus")
async def test_the_users_manager_makes_scopes_below_the_slice_of_the_agent(
    machine: Machine, choice: ScopeChoice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    launcher, notices = await machine.choose(choice)
    assert (launcher.description, launcher.makes_scopes, notices) == ("user scope", True, [])
    assert launcher.scope_of("t1") == "hive\\x2dsubagent-unit-0f0e0d0c\\x2dt1.scope"
    assert "turns run in scopes of the user's own manager (systemd 257 at" in caplog.text


@pytest.mark.usefixtures("bus")
async def test_a_slice_that_is_configured_takes_the_place_of_the_agents(machine: Machine) -> None:
    launcher, _ = await machine.choose(scopes=Scopes(slice="agents.slice"))
    assert launcher.scope_of("t1") == "agents-0f0e0d0c\\x2dt1.scope"


async def test_off_is_the_process_group_on_purpose(machine: Machine, bus: FakeBus) -> None:
    launcher, notices = await machine.choose(OFF)
    assert (launcher.description, notices, bus.connected) == ("process group", [], 0)


@pytest.mark.parametrize("sign", ["linger", "folder", "asked-for"])
async def test_a_manager_that_is_still_coming_up_is_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """Its folder, the linger file, or the configuration says that it will come."""
    monkeypatch.setattr(managers, "COMING_UP_SECONDS", LIMIT_SECONDS)
    if sign == "linger":
        (machine.linger / AGENT.name).touch()
    if sign == "folder":
        machine.place.mkdir()
    found: list[str] = []

    async def choose() -> None:
        """Keep what is chosen."""
        launcher, _ = await machine.choose(USER if sign == "asked-for" else AUTO)
        found.append(launcher.description)

    async with anyio.create_task_group() as choosing:
        choosing.start_soon(choose)
        await anyio.sleep(0.05)  # it has been looked for in vain by then
        assert found == []
        machine.place.mkdir(exist_ok=True)
        bus = FakeBus(machine.place / "bus")
        bus.answers["Get"] = version
        async with serving(bus):
            await until(lambda: found)
    assert found == ["user scope"]


async def test_a_manager_that_nothing_speaks_for_is_not_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start-up is quick where there is no systemd."""
    monkeypatch.setattr(managers, "COMING_UP_SECONDS", LIMIT_SECONDS)
    with anyio.fail_after(LIMIT_SECONDS / 2):
        launcher, [notice] = await machine.choose(AUTO)
    assert launcher.description == "process group"
    assert notice.startswith("turns run as process groups: user agent has no running manager")


# Why there is none


async def test_without_the_second_version_of_control_groups_there_are_no_scopes(machine: Machine) -> None:
    (machine.cgroup / "cgroup.controllers").unlink()
    assert await machine.refusal() == (
        f"cgroup v2 is not mounted at {machine.cgroup} (boot with systemd.unified_cgroup_hierarchy=1)"
    )


async def test_a_user_without_a_manager_is_told_to_linger(machine: Machine) -> None:
    reason = await machine.refusal()
    assert reason.startswith(f"user agent has no running manager ({machine.place} is not there): ")
    for word in ("`loginctl enable-linger agent`", "ProtectHome=", "XDG_RUNTIME_DIR"):
        assert word in reason


async def test_a_folder_without_a_manager_is_told(machine: Machine) -> None:
    machine.place.mkdir()
    assert await machine.refusal() == (
        f"user agent has {machine.place} but no manager there: systemctl start user@1234"
    )


async def test_a_manager_without_a_message_bus_is_told_with_what_to_install(machine: Machine) -> None:
    (machine.place / "systemd").mkdir(parents=True)
    assert await machine.refusal() == (
        f"the manager of user agent has no message bus at {machine.place / 'bus'}: install dbus-user-session"
    )


async def test_a_bus_on_which_nobody_listens_is_told(machine: Machine) -> None:
    machine.place.mkdir()
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(machine.place / "bus"))
        reason = await machine.refusal()
    assert reason.startswith("the manager of user agent does not answer: ")
    assert "Connection refused" in reason
    assert reason.endswith("see systemctl status user@1234")


@pytest.mark.parametrize("manner", [Manner.SILENT, Manner.CLOSES, Manner.GREETS])
async def test_a_bus_that_does_not_speak_is_told(machine: Machine, manner: Manner) -> None:
    machine.place.mkdir()
    async with serving(FakeBus(machine.place / "bus", manner=manner)):
        assert "does not answer" in await machine.refusal()


async def test_a_user_that_must_not_ask_the_system_manager_is_told(machine: Machine) -> None:
    assert "only root may ask the system manager" in await machine.refusal(SYSTEM)


async def test_without_systemd_root_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = machine.run_user / "bus"
    monkeypatch.setattr(managers, "SYSTEM_BUS", nowhere)
    reason = await machine.refusal(SYSTEM, user=ROOT)
    assert reason.startswith(f"the system manager does not answer: the bus at {nowhere}")
    assert reason.endswith("is systemd running, and dbus?")


# Limits without effect


@pytest.mark.parametrize(
    ("controllers", "scopes", "expected"),
    [
        ("cpu memory pids", Scopes(memory_max=1, tasks_max=1, cpu_weight=1), []),
        ("cpu pids", Scopes(), [f"{NO_MEMORY}{UNTOLD}"]),
        (
            "cpu pids",
            Scopes(memory_max=1, memory_swap_max=0),
            [f"{NO_MEMORY}scopes.memory_max, scopes.memory_swap_max will have no effect and {UNTOLD}"],
        ),
        (
            "cpu pids",
            Scopes(memory_high=Percent(40)),
            [f"{NO_MEMORY}scopes.memory_high will have no effect and {UNTOLD}"],
        ),
        ("cpu memory", Scopes(), []),
        (
            "memory",
            Scopes(tasks_max=1, cpu_weight=1),
            [
                "this systemd manager has no pids controller: scopes.tasks_max will have no effect",
                "this systemd manager has no cpu controller: scopes.cpu_weight will have no effect",
            ],
        ),
    ],
)
@pytest.mark.usefixtures("bus")
async def test_a_limit_that_the_kernel_will_not_enforce_is_said(
    machine: Machine, controllers: str, scopes: Scopes, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """systemd accepts it without a word; the user's manager never gets some controllers."""
    machine.controllers(controllers)
    _, notices = await machine.choose(scopes=scopes)
    assert notices == expected
    assert all(notice in caplog.text for notice in notices)
