"""Measure everything and print a table; exit 1 when a limit is missed in each of three tries."""

from __future__ import annotations

import argparse
import sys

from tests.benchmarks import running, starting
from tests.benchmarks.figures import Figure, measured

MEASURES = (starting.measure, running.measure_memory, running.measure_status, running.measure_chatty)


def main() -> int:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slack", type=float, default=1.0, help="fail only beyond the limits times this")
    slack = parser.parse_args().slack
    figures: list[Figure] = []
    for measure in MEASURES:
        for figure in measured(measure):
            figures.append(figure)
            print(figure.line, flush=True)
    kept = sum(figure.kept for figure in figures)
    print(f"benchmarks: {kept} of {len(figures)} limits kept")
    return 1 if any(figure.value > figure.limit * slack for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
