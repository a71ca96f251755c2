"""A proposal as it is sent and shown: an action that a person may allow or refuse."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpudeck.assistant.tools.buttons import Buttons
from gpudeck.language.languages import Language

Decision = Literal["once", "session", "never", "no"]
"""Carry it out, also allow it for the session, refuse its tool for good, or only drop it."""
_NEW_JOBS = frozenset({"submit", "retry"})


def submits_jobs(tool: str) -> bool:
    """Return whether a tool submits jobs, which get the environment of who approves."""
    return bool(_NEW_JOBS & {*tool.partition(" ")[2].split("+")})


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describe a job that would be submitted, for programs."""

    command: tuple[str, ...]
    """Word by word, without escape sequences and control characters."""
    folder: str
    environment: str
    """Where its variables come from, in a sentence: their values are secret."""
    gpus: int
    options: dict[str, str] = {}
    """What else was said about it: labels and values."""
    count: int = 1
    """How many jobs like it: an array."""
    begins: float | None = None
    """Seconds since the epoch; None: unknown."""
    devices: tuple[str, ...] = ()
    """Where it would run."""
    waits: str = ""
    """Why it would not start at once."""
    ahead: tuple[str, ...] = ()
    """The jobs that wait and come before it."""


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describe an action for a person to allow or refuse. All of it is plain text."""

    id: str
    tool: str
    """The tool, such as `operate cancel`, that a permission or a refusal applies to."""
    title: str
    effect: str
    """The consequences, in sentences computed from the current state; no model writes them."""
    details: tuple[tuple[str, str], ...] = ()
    """Captions and values."""
    expires: float = 0.0
    """Seconds since the epoch."""
    certain: bool = False
    """The rules read the request the same way, so a permission for the session is enough."""
    once: bool = False
    """The action differs each time, so it cannot be allowed for a session."""
    note: str = ""
    """The reason why it is proposed again."""
    by: str = ""
    """The program that proposes it; empty: the person asked for it."""
    buttons: Buttons = Buttons()
    """The captions of the two decisions on it."""
    runs: tuple[Preview, ...] = ()
    """The jobs that would be submitted."""
    language: Language = "en"
    """Of the texts, in which the person is asked, too."""
