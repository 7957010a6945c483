"""The kinds of configuration values that limit a scope, as systemd.resource-control(5) writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.config_checks import Kind, Places, fits_64_bits, must_be, nonempty_text, refusal
from hive_subagent_daemon.config_values import UNLIMITED, Amount, Percent
from hive_subagent_daemon.unit_names import MAX_PARENT_SLICE_BYTES, is_slice

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Final = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_PARTS: Final = re.compile(r"([0-9]{1,15})([KMGT%]?)")


def size(*, lowest: int = 1) -> Kind:
    """Return the kind of amounts of memory: bytes, "512M" (to the base 1024), "40%" of all, or "infinity"."""
    allowed = 'a number of bytes, or text such as "512M", "2G", "40%" or "infinity"'
    return _amount(allowed, _UNITS, lowest=lowest)


def count() -> Kind:
    """Return the kind of numbers of processes: a number, "10%" of all that there may be, or "infinity"."""
    return _amount('a number, or text such as "10%" or "infinity"', {}, lowest=1)


def _amount(allowed: str, units: Mapping[str, int], *, lowest: int) -> Kind:
    # systemd takes no limit below 1 but for swap.
    def _read(value: object, _places: Places) -> Amount:
        match value:
            case bool():
                raise must_be(value, allowed)
            case int() if value >= lowest and fits_64_bits(value):
                return value
            case "infinity":
                return UNLIMITED
            case str() if (parts := _PARTS.fullmatch(value)) is not None:
                number, unit = int(parts[1]), parts[2]
                if unit == "%" and 0 < number <= 100:
                    return Percent(number)
                factor = 1 if unit == "" else units.get(unit, 0)
                if factor and lowest <= number * factor < 2**63:
                    return number * factor
        raise must_be(value, allowed)

    return Kind(allowed, _read, _written)


def _written(amount: Amount) -> int | str:
    if isinstance(amount, Percent):
        return f"{amount.value}%"
    return "infinity" if amount == UNLIMITED else amount


def slice_name() -> Kind:
    """Return the kind of names of slices, as `systemd-escape` writes them."""
    allowed = f'the name of a slice such as "agents.slice", at most {MAX_PARENT_SLICE_BYTES} bytes'

    def _read(value: object, _places: Places) -> str:
        name = nonempty_text(value, allowed)
        if len(name.encode()) > MAX_PARENT_SLICE_BYTES or not name.endswith(".slice"):
            raise must_be(value, allowed)
        if not is_slice(name):
            reason = (
                f'must be {allowed}: letters, digits, ":", "_", "." and "\\", with single dashes between, '
                "which nest it in another slice (see systemd-escape)"
            )
            raise refusal(reason)
        return name

    return Kind(allowed, _read)
