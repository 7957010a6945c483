"""Paths that only show something: GET and HEAD, not for pages of other sites, nothing kept by a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.access import Refusal, send_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from hive_subagent_daemon.access import Headers

READ_ONLY: Final = Refusal(
    405, "Refused: only GET and HEAD are answered here; nothing can be changed.", allow="GET, HEAD"
)
FOREIGN: Final = Refusal(
    403,
    "Refused: a page of another site asks for this (Sec-Fetch-Site); type the address, or use a bookmark.",
)
# No content of ours needs anything but its own style sheet, and nobody may show it inside of something else.
_HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True)
class Document:
    """What is shown at a path."""

    content_type: str
    body: bytes
    status: int = 200


class Reading:
    """The ASGI application of a path that shows what `produce` returns for a request."""

    def __init__(self, produce: Callable[[Scope], Awaitable[Document | Refusal]]) -> None:
        """Show what `produce` makes."""
        self._produce: Final = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = refused_reading(scope["method"], scope["headers"]) or await self._produce(scope)
        if isinstance(answer, Refusal):
            await send_refusal(answer, receive, send)
            return
        headers = [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
            *_HEADERS,
        ]
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def refused_reading(method: str, headers: Headers) -> Refusal | None:
    """Refuse what is no reading, and what a browser says another site has asked for.

    A browser adds its user's rights to whatever a site lets it fetch. From another port of this machine
    (`same-site`) only a link that is followed passes, since the site learns nothing from that.
    """
    if method not in ("GET", "HEAD"):
        return READ_ONLY
    site, mode, dest = (
        {value.strip().lower() for key, value in headers if key == b"sec-fetch-" + name}
        for name in (b"site", b"mode", b"dest")
    )
    follows_link = (mode, dest) == ({b"navigate"}, {b"document"})
    if not site or site in ({b"same-origin"}, {b"none"}) or (site == {b"same-site"} and follows_link):
        return None
    return FOREIGN
