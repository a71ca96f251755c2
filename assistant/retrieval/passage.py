"""Represent a passage that was found: its exact words, and where they are.

A passage is data: it is quoted, and never acted on.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Where = Literal["docs", "logs"]


class Passage(msgspec.Struct, frozen=True):
    """Quote a part of the manual or of a log."""

    where: Where
    file: str
    """`README.md`, or the path of a job's log."""
    first: int
    last: int
    """Its lines, from 1. In a long log, whose lines are not counted: its offset in bytes, and 0."""
    text: str
    """The exact words, without terminal control characters."""
    heading: str = ""
    """The heading above it; for a log, its job."""
    score: float = 0.0

    @property
    def cite(self) -> str:
        """Return the place: README.md, lines 12-14."""
        if not self.last:
            return f"{self.file}, from byte {self.first} on"
        return (
            f"{self.file}, line {self.first}"
            if self.first == self.last
            else f"{self.file}, lines {self.first}-{self.last}"
        )
