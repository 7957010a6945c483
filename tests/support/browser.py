"""A headless Chromium of the test's own, told what to do over its debugging pipe; standard library only.

What it complains about and what it asks for is kept: the console, exceptions, blocked content, every request.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Json = dict[str, Any]
LIMIT_SECONDS = 40.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
# The browser wants the ends of its pipe as the descriptors 3 and 4, which may be taken: out of the way first.
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 100) for word in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted, inheritable=True)
    os.close(end)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """Return the program, if it is installed."""
    return shutil.which("chromium")


class Browser:
    """One tab."""

    def __init__(self, *, reading: int, writing: int) -> None:
        """Talk over the ends of its pipe; nothing was complained of, asked for or loaded yet."""
        self.session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.answers: dict[str, int] = {}
        self.loads = 0
        self._reading = reading
        self._writing = writing
        self._number = 0
        self._read = b""

    def open(self, url: str) -> None:
        """Go to an address; return when it is loaded."""
        before = self.loads
        answer = self.tell("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.until(lambda: self.loads > before)

    def evaluate(self, expression: str) -> object:
        """Return the value of an expression in the page; the page's own policy does not bind it."""
        answer = self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        value: object = answer["result"].get("value")
        return value

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show pages from now on as on a display of this width, to somebody who likes it dark or light."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.tell("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a picture."""
        answer = self.tell("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def tell(self, method: str, **parameters: object) -> Json:
        """Give one command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while (answer := self._next(time.monotonic() + LIMIT_SECONDS)).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        result: Json = answer["result"]
        return result

    def until(self, condition: Callable[[], bool], *, within: float = LIMIT_SECONDS) -> None:
        """Wait until what the browser tells makes this true."""
        deadline = time.monotonic() + within
        while not condition():
            self._next(deadline)

    def _next(self, deadline: float) -> Json:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser says nothing more"
            content = os.read(self._reading, 1 << 20)
            assert content, "the browser is gone"
            self._read += content
        line, _, self._read = self._read.partition(b"\0")
        message: Json = json.loads(line)
        self._take(message.get("method", ""), message.get("params", {}))
        return message

    def _take(self, method: str, told: Json) -> None:
        match method:
            case "Page.loadEventFired":
                self.loads += 1
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Network.responseReceived":
                self.answers[told["response"]["url"]] = told["response"]["status"]
            case "Log.entryAdded":
                self.complaints.append(f"{told['entry']['source']}: {told['entry']['text']}")
            case "Runtime.consoleAPICalled":
                said = [str(one.get("value")) for one in told["args"]]
                self.complaints.append(f"console.{told['type']}: {' '.join(said)}")
            case "Runtime.exceptionThrown":
                self.complaints.append(f"exception: {told['exceptionDetails']['text']}")


@contextlib.contextmanager
def browsing(program: str, folder: Path) -> Iterator[Browser]:
    """Run a browser with a new profile in this folder until the block ends."""
    to_it, from_us = os.pipe()
    to_us, from_it = os.pipe()
    start = [sys.executable, "-ISc", LAUNCHER, str(to_it), str(from_it), program, *FLAGS]
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [*start, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(to_it, from_it),
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"},
        )
    os.close(to_it)
    os.close(from_it)
    try:
        yield _tab(Browser(reading=to_us, writing=from_us))
    finally:
        with contextlib.suppress(BrokenPipeError):
            os.write(from_us, b'{"id": 0, "method": "Browser.close"}\0')
        try:
            process.wait(LIMIT_SECONDS)
        finally:
            process.kill()
            process.wait()
            os.close(to_us)
            os.close(from_us)


def _tab(browser: Browser) -> Browser:
    """Take the one tab and have it tell everything."""
    target = browser.tell("Target.createTarget", url="about:blank")["targetId"]
    attached = browser.tell("Target.attachToTarget", targetId=target, flatten=True)
    browser.session = attached["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.tell(f"{domain}.enable")
    return browser
