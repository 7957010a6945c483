"""Run a property for a time instead of for a number of examples, from one seed on, and count what it got.

An example that failed is kept as an explicit `@example` or a test of its own beside the property.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

T = TypeVar("T")
SEED_VARIABLE = "HIVE_SUBAGENT_FUZZ_SEED"
USUAL_SEED = 20260104
EXAMPLES_AT_ONCE = 200
LONG_FACTOR = 6
LONG_LIMIT_SECONDS = 300  # of a test, with --long too


def fuzz(
    inputs: st.SearchStrategy[T],
    check: Callable[[T], object],
    *,
    seconds: float,
    what: str,
    request: pytest.FixtureRequest,
) -> None:
    """Check the property for about this long, six times as long with --long, and print how often that was.

    A failure names the seed that plays it again, and hypothesis prints the smallest input that fails.
    """
    limit = time.monotonic() + seconds * (LONG_FACTOR if request.config.getoption("--long") else 1)
    number = int(os.environ.get(SEED_VARIABLE, USUAL_SEED))
    tried = 0

    def counted(value: T) -> None:
        """Count the inputs while they are tried."""
        nonlocal tried
        tried += 1
        check(value)

    while time.monotonic() < limit:
        print(f"{what}: {SEED_VARIABLE}={number} begins here")
        chosen = settings(
            max_examples=EXAMPLES_AT_ONCE,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        seed(number)(chosen(given(inputs)(counted)))()
        number += 1
    request.getfixturevalue("figure")(f"bad inputs tried, {what}: {tried}, none got through")


def damaged(wholes: Sequence[bytes], *, alphabet: bytes) -> st.SearchStrategy[bytes]:
    """Give valid contents with a few places overwritten, cut out, doubled or swollen."""
    edits = st.tuples(
        st.sampled_from(["set", "cut", "double", "insert"]),
        st.integers(0, 100_000),
        st.integers(1, 40),
        st.binary(max_size=12) | st.text(alphabet.decode("latin-1"), max_size=12).map(str.encode),
    )
    return st.builds(_edited, st.sampled_from(list(wholes)), st.lists(edits, min_size=1, max_size=6))


def _edited(whole: bytes, edits: list[tuple[str, int, int, bytes]]) -> bytes:
    for kind, position, length, content in edits:
        at = position % (len(whole) + 1)
        behind = at if kind in ("insert", "double") else at + (len(content) if kind == "set" else length)
        middle = whole[at : at + length] * 2 if kind == "double" else b"" if kind == "cut" else content
        whole = whole[:at] + middle + whole[behind:]
    return whole


def retyped(wholes: Sequence[object], junk: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Give valid JSON values with one of the values anywhere inside replaced by junk."""
    return st.builds(_replaced, st.sampled_from(list(wholes)), st.lists(st.integers(0, 50), max_size=4), junk)


def _replaced(whole: object, path: list[int], junk: object) -> object:
    if not path or not isinstance(whole, dict | list) or not whole:
        return junk
    if isinstance(whole, dict):
        key = list(whole)[path[0] % len(whole)]
        return whole | {key: _replaced(whole[key], path[1:], junk)}
    index = path[0] % len(whole)
    return [*whole[:index], _replaced(whole[index], path[1:], junk), *whole[index + 1 :]]


JSON_JUNK: st.SearchStrategy[object] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "../../x", "/", "\0", "\ud800", "2026-01-31T12:00:00", 2**70, -1, 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
