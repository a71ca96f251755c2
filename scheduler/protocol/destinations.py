"""Where people are told about their jobs, alerts and bookings.

An address may hold a password or a token. It is stored by the daemon alone, and no reply has it.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args
from urllib.parse import parse_qs, urlsplit

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

Kind = Literal["ntfy", "slack", "discord", "telegram", "mail", "webhook", "desktop"]
NoticeEvent = Literal["end", "fail", "alert", "booking"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NOTICE_EVENTS: tuple[NoticeEvent, ...] = get_args(NoticeEvent)
DEFAULT_EVENTS: tuple[NoticeEvent, ...] = ("fail", "alert", "booking")
MOST_DESTINATIONS = 20
"""Destinations of one user."""
EXAMPLES: dict[Kind, str] = {
    "ntfy": "https://ntfy.sh/TOPIC, or https://USER:PASSWORD@HOST/TOPIC",
    "slack": "https://hooks.slack.com/services/…",
    "discord": "https://discord.com/api/webhooks/…",
    "telegram": "https://api.telegram.org/botTOKEN/sendMessage?chat_id=NUMBER",
    "mail": "smtps://USER:PASSWORD@HOST/?from=ME@HOST&to=ME@HOST, or smtp:// for STARTTLS",
    "webhook": "https://HOST/PATH",
    "desktop": "",
}
"""What an address looks like."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_LONGEST = 2000
_SCHEMES = {"mail": ("smtp", "smtps")}


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describe one way to tell a person something."""

    kind: Kind
    address: str = ""
    events: Annotated[tuple[NoticeEvent, ...], msgspec.Meta(max_length=len(NOTICE_EVENTS))] = (
        DEFAULT_EVENTS
    )
    """What it is told without being asked: every end of a job, failures, alerts, bookings. A job
    that names the destination is told in any case."""


class DestinationState(msgspec.Struct, frozen=True):
    """Describe a destination as it is listed: without its address, which may be a secret."""

    name: str
    kind: Kind
    host: str
    """The server of its address; empty for the desktop."""
    events: tuple[NoticeEvent, ...]
    waiting: int = 0
    """How many notices wait to be sent."""
    problem: str = ""
    """Why the last attempt failed; empty where it did not."""


def host_of(address: str) -> str:
    """Return the server of an address, without anything that may be secret."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def check_destination(name: str, destination: Destination) -> None:
    """Raise UserError where a destination cannot be used. No message repeats the address."""
    if not _NAME.fullmatch(name):
        raise UserError(
            phrase(
                "a destination has a name of letters, digits, dots and dashes; got {name}",
                name=repr(name),
            )
        )
    kind, address = destination.kind, destination.address
    if kind == "desktop":
        if address:
            raise UserError(phrase("the desktop has no address"))
        return
    problem = UserError(
        phrase(
            "the address for {kind} must look like this: {example}",
            kind=kind,
            example=EXAMPLES[kind],
        )
    )
    if len(address) > _LONGEST or not address.isprintable() or " " in address:
        raise problem
    try:
        parts = urlsplit(address)
        known = bool(parts.hostname) and parts.port != 0
        named = parse_qs(parts.query)
    except ValueError:
        raise problem from None
    if not known or parts.scheme not in _SCHEMES.get(kind, ("http", "https")):
        raise problem
    required = {"mail": ("from", "to"), "telegram": ("chat_id",)}.get(kind, ())
    if any(field not in named for field in required):
        raise problem
    if not all(value.isprintable() for values in named.values() for value in values):
        raise problem  # they are decoded, and a line break would end a header of a mail
    if kind == "ntfy" and not re.fullmatch(r"/[A-Za-z0-9_-]{1,64}/?", parts.path):
        raise problem
