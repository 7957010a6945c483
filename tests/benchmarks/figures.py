"""One measured figure beside its limit."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRIES = 3


@dataclass(frozen=True)
class Figure:
    """What was measured, in a unit, and how much it may be."""

    what: str
    value: float
    limit: float
    unit: str
    how: str

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.limit

    @property
    def line(self) -> str:
        """A line for people."""
        verdict = "ok" if self.kept else "MISSED"
        return f"{verdict:6}  {self.what}: {self.value:.2f} {self.unit} (limit {self.limit:g}) - {self.how}"


def measured(measure: Callable[[], list[Figure]]) -> list[Figure]:
    """Measure, and again where a limit was missed: a shared machine has bad moments."""
    figures = measure()
    for _ in range(TRIES - 1):
        if all(figure.kept for figure in figures):
            break
        figures = measure()
    return figures


def median_ms(seconds: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return statistics.median(seconds) * 1000


def private_kib(pid: int) -> int:
    """Return the private memory of a process (smaps_rollup: clean and dirty)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
