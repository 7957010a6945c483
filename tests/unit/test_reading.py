"""Paths that only show: nothing but GET and HEAD, nothing for other sites, nothing kept."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.access import Refusal
from hive_subagent_daemon.mcp_endpoint import Paths
from hive_subagent_daemon.reading import FOREIGN, READ_ONLY, Document, Reading, refused_reading
from tests.support.edge import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Scope

    from tests.support.edge import Client, Edge

POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'"


async def shown(_scope: Scope) -> Document | Refusal:
    """Show something."""
    return Document("text/plain", b"something", 404)


async def refused(_scope: Scope) -> Document | Refusal:
    """Refuse to show anything."""
    return Refusal(503, "Refused: not now.")


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    """Serve both."""
    async with serving(Paths({"/": Reading(shown), "/busy": Reading(refused)})) as edge:
        yield edge


@pytest.fixture
async def client(edge: Edge) -> AsyncIterator[Client]:
    """Connect."""
    async with edge.client() as client:
        yield client


async def test_a_document_comes_with_a_policy_that_lets_nothing_act(client: Client) -> None:
    answer = await client.call("GET", "/")
    assert (answer.status, answer.body) == (404, b"something")
    wanted = {
        "content-type": "text/plain",
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
    assert wanted.items() <= answer.headers.items()


async def test_head_says_the_same_without_the_body(client: Client) -> None:
    whole = await client.call("GET", "/")
    head = await client.call("HEAD", "/")
    assert (head.status, head.headers, head.body) == (whole.status, whole.headers, b"")
    assert (await client.call("GET", "/")).status == 404  # the connection is in order


async def test_a_refusal_is_a_sentence(client: Client) -> None:
    answer = await client.call("GET", "/busy")
    assert (answer.status, answer.text) == (503, "Refused: not now.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_nothing_can_be_changed(client: Client, method: str) -> None:
    answer = await client.call(method, "/")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.text.strip() == READ_ONLY.sentence


async def test_a_caller_inside_a_turn_is_refused_as_everywhere(edge: Edge, client: Client) -> None:
    edge.turn = "20260131_120000_000_abcd"
    assert (await client.call("GET", "/")).status == 403


def fetched(**named: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that a browser adds."""
    return [(f"sec-fetch-{name}".encode(), value.encode()) for name, value in named.items()]


@pytest.mark.parametrize("site", ["none", "same-origin", "Same-Origin "])
def test_the_page_itself_and_a_typed_address_may_read(site: str) -> None:
    assert refused_reading("GET", fetched(site=site, mode="no-cors", dest="style")) is None


def test_a_client_that_is_no_browser_may_read() -> None:
    assert refused_reading("HEAD", []) is None


@pytest.mark.parametrize(
    ("site", "mode", "dest"),
    [
        *product(["cross-site", "", "somewhere"], ["navigate"], ["document"]),
        *product(["same-site"], ["navigate"], ["iframe", "frame", "object", "embed", ""]),
        *product(["same-site"], ["no-cors", "cors"], ["document", "script", "image", "style"]),
    ],
)
def test_other_sites_may_not(site: str, mode: str, dest: str) -> None:
    assert refused_reading("GET", fetched(site=site, mode=mode, dest=dest)) is FOREIGN


def test_a_link_on_another_page_of_this_machine_may_be_followed() -> None:
    assert refused_reading("GET", fetched(site="same-site", mode="navigate", dest="document")) is None


def test_of_two_answers_of_one_browser_the_worse_counts() -> None:
    headers = fetched(site="cross-site") + fetched(site="same-origin")
    assert refused_reading("GET", headers) is FOREIGN
