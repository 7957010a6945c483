"""The real claude in a scope, with an offline model: a whole turn, and it stays where it was put."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.systemd.real_turn import assert_a_whole_turn_in_its_scope

if TYPE_CHECKING:
    from tests.systemd.conftest import MakeService


def test_a_whole_turn_of_the_real_claude_stays_in_its_scope(make_service: MakeService) -> None:
    assert_a_whole_turn_in_its_scope(make_service, turn_seconds=60)
