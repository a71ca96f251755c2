"""Describe what a scan found, and the changes of the source that link it."""

from __future__ import annotations

from typing import Literal

import msgspec


class Edit(msgspec.Struct, frozen=True, order=True):
    """Replace the characters from `start` to `end` of a source by `text`."""

    start: int
    end: int
    text: str


class Finding(msgspec.Struct, frozen=True):
    """Describe one attention, or a file that cannot be read."""

    file: str
    line: int
    action: Literal["link", "leave"]
    form: str
    """How it is written; empty for a file that cannot be read."""
    reason: str
    """What would run instead, or why it is left alone."""


class Site(msgspec.Struct, frozen=True):
    """Pair a finding with the changes that link it, all in its own file."""

    finding: Finding
    edits: tuple[Edit, ...] = ()
    function: str = ""
    """The qualified name of the function it is in, such as `Block.forward`."""
    first: int = 0
    """The first and the last line of its statements."""
    last: int = 0
    ends: tuple[int, ...] = ()
    """The lines on which the output may be computed."""
