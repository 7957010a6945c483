"""The page reads what the real claude keeps of a conversation."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

from tests.support.looking import look, metric

if TYPE_CHECKING:
    from tests.claude.real_daemon import RealDaemon


ENTRY = re.compile(
    r'<li class="(\w+)">\s*<h3 dir="auto">(.*?) <span.*?</h3>\s*<pre dir="auto">(.*?)</pre>', re.DOTALL
)


def test_a_conversation_is_shown_with_its_prompts_tools_and_answers(daemon: RealDaemon) -> None:
    daemon.completed("worker", "look around [[bash: echo 'by <b>bash</b>'; false]] [[say: first]]")
    daemon.continued("worker", "and go on [[say: second]]")
    shown = look(daemon.port, "/?name=worker")
    assert shown.status == 200
    said = [[unescape(part) for part in entry] for entry in ENTRY.findall(shown.text)]
    assert [(kind, heading) for kind, heading, _ in said] == [
        ("prompt", "prompt"),
        ("tool", "tool Bash"),
        ("error", "error"),
        ("subagent", "subagent"),
        ("prompt", "prompt"),
        ("subagent", "subagent"),
    ]
    texts = [text for _, _, text in said]
    assert texts[0].startswith("look around")
    assert texts[1].startswith("command: echo 'by <b>bash</b>'; false")
    assert "by <b>bash</b>" in texts[2]
    assert texts[3:] == ["first", "and go on [[say: second]]", "second"]


def test_its_cost_is_told_to_prometheus(daemon: RealDaemon) -> None:
    cost = daemon.completed("worker", "[[say: done]]")["cost_usd"]
    assert metric(daemon.port, "hive_subagent_turn_cost_usd_sum") == cost > 0
