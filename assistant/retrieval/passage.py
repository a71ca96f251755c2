"""A passage that was found: its words as they stand there, and where that is. Data: it is quoted, and never acted on."""

from __future__ import annotations

from typing import Literal

import msgspec

Where = Literal["docs", "logs"]


class Passage(msgspec.Struct, frozen=True):
    where: Where
    file: str
    """`README.md`, or the path of a job's log."""
    first: int
    last: int
    """Its lines, from 1; of a long log, whose lines nobody counted, where it begins in bytes and 0."""
    text: str
    """Verbatim, but for what would steer a terminal."""
    heading: str = ""
    """What it stands under; of a log its job."""
    score: float = 0.0

    @property
    def cite(self) -> str:
        """README.md, lines 12-14."""
        if not self.last:
            return f"{self.file}, from byte {self.first} on"
        return (
            f"{self.file}, line {self.first}"
            if self.first == self.last
            else f"{self.file}, lines {self.first}-{self.last}"
        )
