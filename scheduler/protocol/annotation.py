"""What happened at a moment or over a span, drawn on the time axis of the charts."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["job", "throttle", "alert", "xid"]


class Annotation(msgspec.Struct, frozen=True):
    """A span, or a moment where `until` equals `time`.

    `time`, `kind`, `device` and `name` tell it from others: one that is annotated again replaces what was known, which is how a span that
    goes on is ended.
    """

    time: float
    """Seconds since the epoch."""
    until: float | None
    """None while it goes on."""
    kind: Kind
    text: str
    """One line, for people."""
    device: str = ""
    """Id of the device; empty: of the machine."""
    job: int | None = None
    """The job it is about."""
    name: str = ""
    """Where several of one kind may begin at once: which of them it is, e.g. the rule of an alert."""
