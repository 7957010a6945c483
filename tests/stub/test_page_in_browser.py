"""The page in a real browser: nothing in a transcript acts, nothing is fetched, everything can be read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.stub.steps import assistant, forever, init, result, tool_use
from tests.support.browser import browsing, chromium
from tests.support.daemon_harness import Daemon, Setting
from tests.support.processes import eventually
from tests.support.receivers import OK, answer, receiving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.browser import Browser
    from tests.support.receivers import Receiver, Request

PROGRAM = chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed")
LONGEST = "a-very-long-name-that-uses-all-of-the-sixty-three-characters-ok"
ACTED = "acted"
# Ratio of luminances that WCAG 2 asks for (AA), measured on every text that is shown.
CONTRAST = """
(() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const weights = [0.2126, 0.7152, 0.0722];
  const light = c => weights.reduce((sum, weight, i) => sum + weight * channel(parts(c)[i]), 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (parts(colour).length === 3) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(e.outerHTML.slice(0, 80));
  }
  return faint;
})()
"""


@pytest.fixture(scope="module")
def canary() -> Iterator[tuple[Receiver, int]]:
    """Listen for whoever follows what stands in a transcript."""
    with receiving(lambda _request: OK) as (receiver, port):
        yield receiver, port


def enemy(port: int) -> str:
    """Return a text that would act if it were taken for markup."""
    there = f"http://127.0.0.1:{port}"
    return (
        f"</pre></title><script>document.title='{ACTED}'</script><script src={there}/a.js></script>"
        f"<img src={there}/b.png onerror=\"document.title='{ACTED}'\"><iframe src={there}/c></iframe>"
        f"<link rel=stylesheet href={there}/d.css>"
        f"<style>@import url({there}/e.css); body {{ display: none }}</style>"
        f"<meta http-equiv=refresh content='0;url={there}/f'><base href={there}>"
        f"<svg/onload=document.title='{ACTED}'><form action={there}><button autofocus>x</button></form>"
        "\u202e\u0007{{7*7}}"
    )


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, claude_program: Path, canary: tuple[Receiver, int]
) -> Iterator[Daemon]:
    """Run a daemon with every kind of subagent, and an enemy's words wherever words can stand."""
    words = enemy(canary[1])
    setting = Setting(limits={"stall_after_seconds": 1}, top={"agent": "alice"})
    daemon = Daemon(tmp_path_factory.mktemp("page"), claude_program, setting).boot()
    daemon.play("enemy", [init(), assistant(words), result(words)])
    daemon.play("failing", [init(), result(words, is_error=True, api_error_status=529, subtype="success")])
    daemon.start(LONGEST, [init(), tool_use(f"mcp__{'x' * 150}"), forever()])
    daemon.start("cut", [init(), forever()])
    daemon.ok("interrupt", name="cut", force=True)
    [transcript] = [p for p in daemon.transcripts() if p.stem == daemon.status_of("enemy")["session_id"]]
    call = {"type": "tool_use", "name": words, "input": {words: words}}
    blocks = [
        {"type": "text", "text": words},
        call,
        {"type": "tool_result", "content": words, "is_error": True},
    ]
    record = {"type": "assistant", "timestamp": words, "message": {"content": blocks}}
    with transcript.open("a") as file:
        file.write(json.dumps(record) + "\n")
    eventually(lambda: daemon.status_of(LONGEST)["stalled"], what="one that is stalled")
    yield daemon
    daemon.end_all_turns()
    daemon.shut()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start the browser, once for all tests."""
    assert PROGRAM is not None
    with browsing(PROGRAM, tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Browser:
    """Lend the browser to a test: a wide window, nothing complained of yet."""
    opened.look(width=1400)
    opened.complaints.clear()
    opened.requests.clear()
    return opened


def address(daemon: Daemon, query: str = "refresh=0") -> str:
    """Return an address of the page."""
    return f"http://127.0.0.1:{daemon.port}/?{query}"


VIEWS = {
    "all": "refresh=0",
    "an-enemy": "refresh=0&name=enemy",
    "one-that-failed": "refresh=0&name=failing",
    "a-long-name": f"refresh=0&name={LONGEST}",
}
views = pytest.mark.parametrize("query", VIEWS.values(), ids=VIEWS.keys())


@views
def test_it_asks_for_its_style_sheet_and_nothing_else_and_has_nothing_to_complain_of(
    browser: Browser, shown: Daemon, canary: tuple[Receiver, int], query: str
) -> None:
    browser.open(address(shown, query))
    assert browser.evaluate("document.styleSheets[0].cssRules.length") != 0
    assert browser.requests == [address(shown, query), f"http://127.0.0.1:{shown.port}/style.css"]
    assert browser.complaints == []
    assert canary[0].requests == []


def test_the_words_of_an_enemy_are_shown_as_words(
    browser: Browser, shown: Daemon, canary: tuple[Receiver, int]
) -> None:
    browser.open(address(shown, "refresh=0&name=enemy"))
    assert browser.evaluate("document.title") == "enemy: idle \N{EN DASH} subagents of alice"
    found = browser.evaluate(
        "document.querySelectorAll('script,img,iframe,style,base,svg,form,button').length"
    )
    assert found == 0
    text = browser.evaluate("document.body.innerText")
    assert isinstance(text, str)
    assert text.count("<script>document.title='acted'</script>") >= 5
    assert text.count("[U+202E][U+0007]{{7*7}}") >= 5
    assert canary[0].requests == []


def test_if_the_escaping_failed_the_policy_would_still_stop_it(
    browser: Browser, shown: Daemon, canary: tuple[Receiver, int]
) -> None:
    """An element put there from the outside is what a hole in a template would be."""
    browser.open(address(shown))
    there = f"http://127.0.0.1:{canary[1]}"
    acts = f"document.title='{ACTED}'"
    hole = (
        f'<img src={there}/i onerror="{acts}"><iframe src={there}/f></iframe>'
        f'<p style="color: red" onclick="{acts}" id=p>x</p>'
    )
    browser.evaluate(
        f"document.body.insertAdjacentHTML('beforeend', `{hole}`);"
        f"const s = document.createElement('script'); s.src = '{there}/s'; document.body.append(s);"
        "document.getElementById('p').click();"
    )
    browser.until(lambda: len(browser.complaints) >= 5)
    assert all("Content Security Policy" in one for one in browser.complaints)
    assert browser.evaluate("document.title") != ACTED
    assert canary[0].requests == []


def site(markup: str) -> Callable[[Request], bytes]:
    """Return what another site on this machine answers to everything."""
    page = f"<!doctype html><title>other</title>{markup}".encode()
    return lambda _request: answer(200, "Content-Type: text/html", body=page)


def test_without_the_policy_and_the_escaping_the_enemy_would_act(
    browser: Browser, canary: tuple[Receiver, int]
) -> None:
    """What the tests above look for is what this browser does."""
    with receiving(site(enemy(canary[1]))) as (_, port):
        browser.open(f"http://127.0.0.1:{port}/")
        asked = eventually(lambda: sorted(request.line for request in canary[0].requests), what="a request")
        browser.until(lambda: browser.evaluate("document.title") == ACTED)
        browser.open("about:blank")
    canary[0].requests.clear()
    assert any("/a.js" in line for line in asked)


def test_it_reads_itself_again_and_its_links_lead_on(browser: Browser, shown: Daemon) -> None:
    """What a browser says of itself (Sec-Fetch) at a typed address, a link and a refresh is let in."""
    browser.open(address(shown, ""))
    loads = browser.loads
    browser.until(lambda: browser.loads > loads, within=15)
    browser.evaluate("document.querySelector('a[href=\"/?name=enemy\"]').click()")
    browser.until(lambda: browser.loads > loads + 1)
    assert browser.evaluate("document.querySelector('h1').textContent") == "enemy"
    assert browser.complaints == []


def test_another_site_can_neither_read_nor_frame_nor_load_it(browser: Browser, shown: Daemon) -> None:
    """The other site is one on this machine too, at another port: what can be nearest."""
    url = f"http://127.0.0.1:{shown.port}"
    ways = (
        f"<link rel=stylesheet href={url}/style.css><script src={url}/></script>"
        f"<iframe src={url}/></iframe><img src={url}/metrics>"
    )
    with receiving(site(ways)) as (_, port):
        for host in ("127.0.0.1", "localhost"):  # same-site, cross-site
            browser.answers.clear()
            browser.open(f"http://{host}:{port}/")
            browser.until(lambda: {f"{url}/", f"{url}/style.css", f"{url}/metrics"} <= browser.answers.keys())
            assert {status for asked, status in browser.answers.items() if asked.startswith(url)} == {403}
        browser.open("about:blank")


@views
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [380, 1400])
def test_it_fits_and_every_text_stands_out(
    browser: Browser, shown: Daemon, query: str, width: int, *, dark: bool
) -> None:
    browser.look(width=width, dark=dark)
    browser.open(address(shown, query))
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    assert browser.evaluate(CONTRAST) == []
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 26)" if dark else "rgb(251, 251, 249)")


def test_who_hears_it_instead_of_seeing_it_gets_a_table_with_headers(browser: Browser, shown: Daemon) -> None:
    for width in (380, 1400):
        browser.look(width=width)
        browser.open(address(shown))
        nodes = browser.tell("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        assert (roles.count("table"), roles.count("columnheader"), roles.count("rowheader")) == (1, 7, 4)
        assert roles.count("main") == roles.count("banner") == roles.count("contentinfo") == 1
        assert browser.evaluate("document.documentElement.lang") == "en"
