"""What the daemon's own server says of itself and of its tools, over HTTP: the source of tool_listing.json.

`python -m tests.support.tool_listing` writes that file, which the stdio bridge answers from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.fake_subagents import FakeSubagents
from tests.support.mcp_call import request
from tests.support.served_tools import served_on_tcp

FILE = Path(__file__).parents[2] / "hive_subagent_daemon" / "tool_listing.json"
METHODS = ("server/discover", "tools/list")


def told_by_the_server() -> dict[str, Any]:
    """Return the answers of a server without a standing stream, which the bridge has not either."""
    with served_on_tcp(FakeSubagents()) as url:
        return {method: request(urlsplit(url).port or 0, method, {}) for method in METHODS}


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(told_by_the_server(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
