"""Measure everything and print a table; exit 1 when a limit is missed in each of three tries."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tests.benchmarks import command, crowd, hooks, machine, running, starting
from tests.benchmarks.figures import Figure, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

MEASURES = (
    starting.measure,
    command.measure,
    running.measure_memory,
    running.measure_status,
    running.measure_chatty,
    crowd.measure,
    hooks.measure,
)


def main() -> int:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slack", type=float, default=1.0, help="fail only beyond the limits times this")
    parser.add_argument(
        "--require-all", action="store_true", help="what cannot be measured here is a failure"
    )
    arguments = parser.parse_args()
    figures: list[Figure] = []
    complete = True
    try:
        for figure in _figures():
            figures.append(figure)
            print(figure.line, flush=True)
    except machine.NotMeasuredError as error:
        complete = False
        print(f"NOT MEASURED: what needs a systemd, in a machine booted for it: {error}")
    kept = sum(figure.kept for figure in figures)
    print(f"benchmarks: {kept} of {len(figures)} limits kept")
    missed = any(figure.value > figure.limit * arguments.slack for figure in figures)
    return 1 if missed or (arguments.require_all and not complete) else 0


def _figures() -> Iterator[Figure]:
    """Yield what can be measured anywhere, then what needs a systemd."""
    for measure in MEASURES:
        yield from measured(measure)
    yield from machine.figures()


if __name__ == "__main__":
    sys.exit(main())
