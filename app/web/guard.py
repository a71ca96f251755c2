"""Let only the holder of the token read, and let nobody change anything.

The server listens on the loopback address, which every user of the machine can reach, and every
web page that its browsers visit. So a request must name this machine as its host, which a page
whose name was made to lead here cannot, and everything but the empty page needs the token. The
token travels in a header that only our own page can set: a cookie would also be sent to the
servers of other users, as cookies do not tell ports apart.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
OPEN = frozenset({"/"})
"""The paths that need no token, beside the files below /static/: they hold no data."""
MOST_PATH = 200
"""Characters of a path, of which the longest that there is has a quarter."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Guard:
    """Check each request before the application sees it, and add headers to each reply."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application answer it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
        else:
            status, text = refusal
            await PlainTextResponse(text + "\n", status)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason with which a request is refused; None if it is not."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not {hosts[0], hosts[0].rpartition(":")[0]} & HOSTS:
            return 403, "address this page as 127.0.0.1 or localhost"
        if scope["method"] != "GET":
            return 403, "this page can only be read"
        if len(scope["path"]) > MOST_PATH:
            return 403, "there is no such page"
        if scope["path"] in OPEN or scope["path"].startswith("/static/"):
            return None
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token):
            return 401, "open the link that `gpudeck web` prints: it holds the token"
        return None
