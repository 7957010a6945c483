"""The benchmarks that need a systemd, in a machine that is booted for them."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
from typing import TYPE_CHECKING

from tests.benchmarks.figures import Figure
from tests.support.scripted_daemon import REPOSITORY
from tests.systemd.machines import NAMESPACES, NOT_POSSIBLE, python_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_SECONDS = 300


class NotMeasuredError(Exception):
    """No machine can be booted here; the message says why."""


def figures() -> Iterator[Figure]:
    """Boot a machine and yield what is measured in it; NotMeasuredError where that is not possible."""
    if os.geteuid() != 0:
        message = "booting a machine needs root"
        raise NotMeasuredError(message)
    # The user inside could not keep what Python compiles, and would compile it at each start.
    for package in ("hive_subagent_daemon", "tests"):
        compileall.compile_dir(REPOSITORY / package, quiet=1)
    process = subprocess.Popen(
        python_inside(NAMESPACES, "tests.benchmarks.inside"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # the machine goes with it
            raise
    if process.returncode == NOT_POSSIBLE:
        raise NotMeasuredError(errors.strip())
    if process.returncode != 0:
        message = f"the benchmarks in the machine ended with {process.returncode}:\n{output}{errors}"
        raise RuntimeError(message)
    for line in output.splitlines():
        yield Figure(**json.loads(line))
