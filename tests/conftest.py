"""Options and settings for all tiers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

TellFigure = Callable[[str], None]
FIGURE = "figure"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what scripts/test passes on."""
    parser.addoption("--long", action="store_true", help="also run the tests marked long")
    parser.addoption("--require-all", action="store_true", help="fail when a test was skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Let properties be tried with the same examples each time, with --long with new ones, at any pace."""
    same = not config.getoption("--long")
    settings.register_profile("usual", deadline=None, derandomize=same, print_blob=True)
    settings.load_profile("usual")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests unless asked for; they do not count as skipped."""
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail for a skipped test when all are required."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter else 0
    if skipped and session.config.getoption("--require-all") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> TellFigure:
    """Return what notes a line for the end of the run: what was tried, and how often."""

    def tell(line: str) -> None:
        """Note it."""
        record_property(FIGURE, line)

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have noted, also those of worker processes."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    for report in reports:
        for name, line in (
            getattr(report, "user_properties", []) if getattr(report, "when", "") == "call" else []
        ):
            if name == FIGURE:
                terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio alone, as the daemon does."""
    return "asyncio"
