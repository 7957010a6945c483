"""The guest has what the tests of memory need: the controller, and a kernel that kills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.systemd.managers import CGROUPS

if TYPE_CHECKING:
    from tests.systemd.managers import Form, Manager

HOG = "x=xxxxxxxx; while :; do x=$x$x; done"


def test_what_takes_too_much_memory_in_a_scope_is_killed(form: Form, managers: list[Manager]) -> None:
    """Also in the manager of a user, which is given the controller."""
    assert form.manager in managers
    folder = CGROUPS / form.manager.cgroup.lstrip("/")
    assert "memory" in (folder / "cgroup.controllers").read_text().split()
    limits = ["--property=MemoryMax=30M", "--property=MemorySwapMax=0", "--property=OOMPolicy=continue"]
    done = form.manager.systemd_run("--scope", "--unit=hog.scope", *limits, "sh", "-c", HOG)
    assert done.returncode == -9, (done.returncode, done.stderr)
