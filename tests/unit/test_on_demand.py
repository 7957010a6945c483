"""What nobody asks for is not imported, and all of it is there when it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import hive_subagent_daemon
from hive_subagent_daemon.on_demand import OnDemand

PACKAGE = Path(hive_subagent_daemon.__file__).parent
LATE = ("jinja2", "prometheus_client")


def stand_ins() -> list[OnDemand[..., object]]:
    """Return every stand-in of the package."""
    users = [path.stem for path in PACKAGE.glob("*.py") if "= OnDemand[" in path.read_text()]
    found = [
        value
        for user in users
        for value in vars(import_module(f"hive_subagent_daemon.{user}")).values()
        if isinstance(value, OnDemand)
    ]
    assert len(found) == sum((PACKAGE / f"{user}.py").read_text().count("= OnDemand[") for user in users)
    return found


def test_each_stands_for_a_function_that_is_there() -> None:
    assert len(stand_ins()) >= 5
    for one in stand_ins():
        module = ast.parse((PACKAGE / f"{one.module.rpartition('.')[2]}.py").read_text())
        assert one.name in [node.name for node in module.body if isinstance(node, ast.FunctionDef)]


def test_a_daemon_that_starts_imports_none_of_it() -> None:
    script = f"""
import sys
import hive_subagent_daemon.daemon_main
print([name for name in {LATE} if name in sys.modules])
from hive_subagent_daemon import metric_families, page_rendering
print([name for name in {LATE} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    assert done.stdout.splitlines() == ["[]", str(list(LATE))]
