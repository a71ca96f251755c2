"""A proposal as it is sent and shown: what would be done once a person allows it."""

from __future__ import annotations

from typing import Literal

import msgspec

Decision = Literal["once", "session", "never"]
NEW_JOBS = ("operate submit", "operate retry")
"""Tools that queue jobs, which have the environment of who approves them."""


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that would be done, for a person to allow or refuse. All of it is plain text."""

    id: str
    tool: str
    """`operate cancel`: what a permission for a session, or a refusal for good, is about."""
    title: str
    effect: str
    """What would come of it, in sentences; computed from the state of things, not written by a model."""
    details: tuple[tuple[str, str], ...] = ()
    """Caption and value."""
    expires: float = 0.0
    """Seconds since the epoch."""
    certain: bool = False
    """The rules read the request in the same way as who routed it: a permission for the session is enough."""
    once: bool = False
    """Each time it is something else: there is no permission for a session."""
    note: str = ""
    """Why it is proposed once more."""
