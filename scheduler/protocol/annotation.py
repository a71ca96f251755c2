"""Describe events and spans that the charts draw on their time axis."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpudeck.language.text import Message

Kind = Literal["job", "throttle", "alert", "xid"]


class Annotation(msgspec.Struct, frozen=True):
    """Describe a span, or a moment where `until` equals `time`.

    `time`, `kind`, `device` and `name` identify it: another one with the same key replaces it,
    which is how an open span is ended.
    """

    time: float
    """Seconds since the epoch."""
    until: float | None
    """None while it lasts."""
    kind: Kind
    text: Message
    """One line, for people."""
    device: str = ""
    """The id of the device; empty: the machine."""
    job: int | None = None
    """The job it is about."""
    name: str = ""
    """Tells apart annotations of one kind that begin at once, e.g. the rule of an alert."""
