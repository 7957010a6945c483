"""Answers stay bounded whatever a turn reports, and a lack of resources is not taken for damage."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon import records, turn_warnings, views
from hive_subagent_daemon.events import parse
from hive_subagent_daemon.output import TurnFiles
from hive_subagent_daemon.skim import Seen, skim
from hive_subagent_daemon.storage import Storage
from hive_subagent_daemon.tool_calls import tool_call
from tests.unit.support_records import TURN, loose_end

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lack_of_descriptors_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loose-ends").mkdir()
    kept = records.Records(Storage(tmp_path, ballast_bytes=0))
    kept.store_loose_end(loose_end())
    with monkeypatch.context() as patched:

        def fail(path: Path, _most: int) -> bytes:
            """Behave as an open without a free descriptor."""
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

        patched.setattr(records, "read_regular", fail)
        with pytest.raises(OSError, match="Too many open files"):
            kept.read_loose_end(TURN)
    assert kept.read_loose_end(TURN) == loose_end()
    assert kept.unreadable == []


def test_thousands_of_servers_and_huge_names_stay_small() -> None:
    servers = [{"name": "s" * 5000 + str(n), "status": "failed"} for n in range(3000)]
    line = {"type": "system", "subtype": "init", "model": "m" * 100_000, "mcp_servers": servers}
    told = skim(Seen(), json.dumps(line).encode() + b"\n", offset=0)
    assert told.init is not None
    assert len(told.init.model or "") == 200
    problems = views.bounded(turn_warnings.mcp_problems(told, ("one",) * 3000))
    assert len(json.dumps(problems)) < 6_000
    assert problems[-1].endswith("more")


def test_a_tool_of_a_huge_name_is_cut() -> None:
    block = {"type": "tool_use", "id": "t", "name": "n" * 50_000}
    event = parse(json.dumps({"type": "assistant", "message": {"content": [block]}}).encode())
    assert getattr(event, "tools", None) == {"t": "n" * 200}


def test_what_was_written_last_is_still_known_after_the_files_were_completed(tmp_path: Path) -> None:
    files = TurnFiles(tmp_path)
    files.create(b"prompt")
    for path in (files.stdout, files.stderr):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    files.complete()
    assert files.last_written().timestamp() == 1_000_000_000


def test_a_link_in_the_place_of_the_output_is_put_away(tmp_path: Path) -> None:
    files = TurnFiles(tmp_path)
    files.stdout.symlink_to("nowhere")
    files.stderr.mkdir()
    files.complete()
    assert files.stdout.is_file()
    assert files.stderr.is_file()


def test_a_prompt_that_is_not_ascii_is_sent_as_it_is() -> None:
    """Escaped, three million of these would be too long for the daemon."""
    body = tool_call({"name": "continue", "arguments": {"name": "a", "prompt": "é" * 1000}}).body
    assert len(body) < 3_000
