"""`hive-subagent doctor` beside a real systemd, as the user of the daemon calls it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.daemon_harness import REPOSITORY
from tests.systemd.managers import ROOT, run

if TYPE_CHECKING:
    from tests.systemd.service_harness import Service


def test_doctor_finds_the_manager_that_makes_the_scopes(service: Service) -> None:
    form = service.form
    environment = form.manager.environment | service.environment() | {"PYTHONPATH": str(REPOSITORY)}
    config = str(service.folder / "config.toml")
    words = [sys.executable, "-m", "hive_subagent_daemon.client_main", "doctor", "--config", config]
    words += ["--url", f"http://127.0.0.1:{service.port}/mcp"]
    done = run(*words, uid=form.uid, environment=environment)
    found = {line[6:20].strip(): line for line in done.stdout.splitlines() if not line.startswith(" ")}
    which, scope = (
        ("the system manager", "system scope") if form is ROOT else ("the user's own manager", "user scope")
    )
    assert found["systemd"] == f"ok    systemd        scopes by {which}", done.stdout + done.stderr
    assert found["turns"] == f"ok    turns          run in scopes ({scope})"
    assert found["claude"].startswith("ok ")
    assert found["state dir"].startswith("ok ")
    lingers = Path(f"/var/lib/systemd/linger/{form.user}").exists()
    assert ("linger" in found) is (form is not ROOT)
    if form is not ROOT:
        assert found["linger"].startswith("ok " if lingers else "note ")
    assert done.returncode == any(line.startswith("FAIL") for line in done.stdout.splitlines())
