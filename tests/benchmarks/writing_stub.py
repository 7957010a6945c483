#!/usr/bin/env python3
"""A stand-in for claude that writes a lot: BENCH_WRITES says `rate LINES_A_SECOND` or `fat MEGABYTES`."""

import os
import sys
import time

INIT = (
    '{"type":"system","subtype":"init","session_id":"00000000-0000-4000-8000-000000000000","model":"stub",'
    '"tools":[],"mcp_servers":[],"claude_code_version":"2.1.197"}\n'
)
LINE = (
    '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"a few words of text"}}}\n'
)
TICK_SECONDS = 0.1


def main() -> None:
    """Write until ended by a signal."""
    if "--version" in sys.argv:
        print("2.1.197 (Claude Code)")
        return
    sys.stdin.read()
    os.write(1, INIT.encode())
    kind, amount = os.environ["BENCH_WRITES"].split()
    if kind == "rate":
        write_lines(int(amount))
    write_fat_lines(int(amount))


def write_lines(lines_a_second: int) -> None:
    """Write short lines at this rate for ever."""
    block = (LINE * int(lines_a_second * TICK_SECONDS)).encode()
    due = time.monotonic()
    while True:
        os.write(1, block)
        due += TICK_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))


def write_fat_lines(megabytes: int) -> None:
    """Write lines of one megabyte, then be silent."""
    text = "x" * 1_000_000
    line = (
        f'{{"type":"user","message":{{"content":[{{"type":"tool_result","content":"{text}"}}]}}}}\n'.encode()
    )
    for _ in range(megabytes):
        os.write(1, line)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
