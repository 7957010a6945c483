"""The claude of the VM test, which cannot be booted everywhere, serves a real daemon as that test expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.nix.evaluation import HERE, evaluate, needs_nix
from tests.stub.conftest import assert_without_fault
from tests.support.daemon_harness import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_nix


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon with that claude."""
    claude = tmp_path / "claude"
    claude.write_text("#!/bin/sh\n" + evaluate(f"(import {HERE / 'machine_probe.nix'} {{ }}).claude"))
    claude.chmod(0o755)
    made = Daemon(tmp_path / "daemon", claude).boot()
    yield made
    made.shut()
    assert_without_fault(made.log)


def test_a_turn_tells_its_path_and_umask(daemon: Daemon) -> None:
    end = daemon.play("quick", trigger="go")
    assert end["outcome"] == "completed"
    assert end["text"].startswith("PATH=/")
    assert end["text"].endswith(" umask=0022")


def test_a_turn_stays_until_it_is_interrupted(daemon: Daemon) -> None:
    daemon.start("stayer", trigger="stay")
    assert daemon.status_of("stayer")["state"] == "running"
    daemon.ok("interrupt", name="stayer", force=True)
    assert daemon.loose_end("stayer")["outcome"] == "killed"


def test_a_restart_reports_what_it_stopped(daemon: Daemon) -> None:
    daemon.start("victim", trigger="stay")
    daemon.restart()
    end = daemon.loose_end("victim")
    assert (end["outcome"], end["cause"]) == ("killed", "daemon stopped")
