"""Looking at the paths of a daemon that only show something."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Looked:
    """What there was to be seen; names of headers in small letters."""

    status: int
    headers: dict[str, str]
    text: str


def look(port: int, path: str, *, method: str = "GET", **headers: str) -> Looked:
    """Ask for a path on a connection of its own; an underscore in a header's name stands for a dash."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Looked(response.status, received, response.read().decode())
    finally:
        connection.close()


def metric(port: int, sample: str) -> float:
    """Return one sample of the metrics, by its name and labels."""
    [found] = re.findall(rf"^{re.escape(sample)} (\S+)$", look(port, "/metrics").text, re.MULTILINE)
    return float(found)
