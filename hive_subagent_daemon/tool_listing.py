"""What the MCP server says of itself and of its tools, without the SDK and without a daemon.

`tool_listing.json` holds the server's own answers; a test compares them, and `python -m
tests.support.tool_listing` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from hive_subagent_daemon import __version__

_FILE: Final = Path(__file__).with_name("tool_listing.json")
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
# What the handshake era does not have in its results.
_MODERN_KEYS: Final = frozenset({"resultType", "ttlMs", "cacheScope", "supportedVersions"})

Answer = dict[str, Any]


class ToolListing:
    """The answers to `initialize`, `server/discover` and `tools/list`."""

    def __init__(self) -> None:
        """Read the file of the package; it is the version of this package that speaks."""
        answers: dict[str, Answer] = json.loads(_FILE.read_bytes())
        for answer in answers.values():
            answer["_meta"][_SERVER_KEY]["version"] = __version__
        self.discovered: Final = answers["server/discover"]
        self.tools: Final = answers["tools/list"]

    def initialized(self, version: str) -> Answer:
        """Return the answer to `initialize`, once the version of the protocol is agreed on."""
        server = self.discovered["_meta"][_SERVER_KEY]
        return {"protocolVersion": version, "serverInfo": server} | of_handshake_era(self.discovered)


def of_handshake_era(answer: Answer) -> Answer:
    """Return an answer of the 2026 era as the era of the handshake knows it."""
    kept = {key: value for key, value in answer.items() if key not in _MODERN_KEYS}
    meta = {key: value for key, value in kept.pop("_meta", {}).items() if key != _SERVER_KEY}
    return kept | ({"_meta": meta} if meta else {})
