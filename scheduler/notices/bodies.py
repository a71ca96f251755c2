"""What each service is sent: an address, a body of JSON and headers.

Sources: the documentation of ntfy (Publish as JSON), Slack (Incoming webhooks), Discord (Execute
webhook) and Telegram (sendMessage).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from gpudeck.scheduler.protocol.destinations import Kind

_URGENT = 4
"""The priority of ntfy for what failed; 3 is usual."""
_LONGEST = {"discord": 2000, "telegram": 4096, "slack": 4000, "ntfy": 4000}
"""The most characters that a service accepts in a message."""


class Wording(NamedTuple):
    """Hold the words of a notice in the reader's language."""

    title: str
    text: str
    fields: dict[str, Any]
    urgent: bool


class Post(NamedTuple):
    """Describe an HTTP request."""

    url: str
    body: dict[str, Any]
    headers: dict[str, str]


def post_of(kind: Kind, address: str, wording: Wording) -> Post:
    """Return what is sent to a service that takes JSON."""
    url, headers = _without_login(address)
    return _POSTS[kind](url, wording, headers)


def _ntfy(url: str, w: Wording, headers: dict[str, str]) -> Post:
    parts = urlsplit(url)
    body: dict[str, Any] = {
        "topic": parts.path.strip("/"),
        "title": w.title,
        "message": _cut("ntfy", w.text),
    }
    if w.urgent:
        body |= {"priority": _URGENT, "tags": ["warning"]}
    return Post(urlunsplit((parts.scheme, parts.netloc, "/", "", "")), body, headers)


def _slack(url: str, w: Wording, headers: dict[str, str]) -> Post:
    text = f"{w.title}\n{w.text}"
    for sign, code in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # else it mentions people
        text = text.replace(sign, code)
    return Post(url, {"text": _cut("slack", text)}, headers)


def _discord(url: str, w: Wording, headers: dict[str, str]) -> Post:
    text = _cut("discord", f"{w.title}\n{w.text}")
    return Post(url, {"content": text, "allowed_mentions": {"parse": []}}, headers)


def _telegram(url: str, w: Wording, headers: dict[str, str]) -> Post:
    parts = urlsplit(url)
    (chat, *_) = parse_qs(parts.query)["chat_id"]
    text = _cut("telegram", f"{w.title}\n{w.text}")
    return Post(urlunsplit(parts._replace(query="")), {"chat_id": chat, "text": text}, headers)


def _webhook(url: str, w: Wording, headers: dict[str, str]) -> Post:
    return Post(url, {"title": w.title, "text": w.text, **w.fields}, headers)


_POSTS: dict[str, Callable[[str, Wording, dict[str, str]], Post]] = {
    "ntfy": _ntfy, "slack": _slack, "discord": _discord, "telegram": _telegram,
    "webhook": _webhook,
}  # fmt: skip


def _without_login(address: str) -> tuple[str, dict[str, str]]:
    """Return an address without its user and password, and the header that carries them."""
    parts = urlsplit(address)
    login, at, server = parts.netloc.rpartition("@")
    if not at:
        return address, {}
    user, _, password = login.partition(":")
    word = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=server)), {"Authorization": f"Basic {word}"}


def _cut(service: str, text: str) -> str:
    longest = _LONGEST[service]
    return text if len(text) <= longest else text[: longest - 1] + "…"
