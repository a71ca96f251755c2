"""Describe what a scan found, and the changes of the source that link it."""

from __future__ import annotations

from typing import Literal

import msgspec


class Edit(msgspec.Struct, frozen=True, order=True):
    """Replace the characters from `start` to `end` of a source by `text`."""

    start: int
    end: int
    text: str


class Shape(msgspec.Struct, frozen=True):
    """Describe the size of one attention."""

    batch: int
    heads: int
    queries: int
    keys: int
    head_size: int
    causal: bool = False

    def __str__(self) -> str:
        tokens = f"{self.queries:,}" + (f" x {self.keys:,}" * (self.keys != self.queries))
        return (
            f"batch {self.batch}, {self.heads} head{'s' * (self.heads != 1)}, {tokens} tokens,"
            f" head size {self.head_size}{', causal' * self.causal}"
        )


class Speedup(msgspec.Struct, frozen=True):
    """Predict how many times as fast linked attention is on one GPU, in bfloat16."""

    gpu: str
    shape: Shape
    forward: float
    training: float
    """Forward and backward together."""

    def __str__(self) -> str:
        return (
            f"predicted on an {self.gpu} for the attention alone: {self.forward:.2g} times as fast"
            f" forward, {self.training:.2g} with the backward pass ({self.shape}, bfloat16)"
        )


class Finding(msgspec.Struct, frozen=True):
    """Describe one attention, or a file that cannot be read."""

    file: str
    line: int
    action: Literal["link", "leave"]
    form: str
    """How it is written; empty for a file that cannot be read."""
    reason: str
    """What would run instead, or why it is left alone."""
    speedup: Speedup | None = None
    """None if it is unknown, because the file names no sizes or nothing like it was measured."""


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
