"""Inside a machine: measure what needs a systemd, and print each figure as a line of JSON."""

from __future__ import annotations

import dataclasses
import json

from tests.benchmarks import activation, idle, spawning
from tests.benchmarks.figures import measured

MEASURES = (spawning.measure, activation.measure, idle.measure)


def main() -> None:
    """Run all benchmarks that need a systemd."""
    for measure in MEASURES:
        for figure in measured(measure):
            print(json.dumps(dataclasses.asdict(figure)), flush=True)


if __name__ == "__main__":
    main()
