"""The real claude where there is a memory controller, with an offline model: a whole turn in its scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.systemd.managers import USER
from tests.systemd.real_turn import assert_a_whole_turn_in_its_scope

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService


@pytest.mark.parametrize("form", [USER], ids=["user"])
@pytest.mark.timeout(140)
def test_a_whole_turn_of_the_real_claude_stays_in_its_scope(make_service: MakeService) -> None:
    assert_a_whole_turn_in_its_scope(make_service, turn_seconds=90)
