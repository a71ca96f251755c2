"""Describe what a scan found, and the changes of the source that link it."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpudeck.language.text import Message, Number, Text, joined, phrase, phrase_count


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

    @property
    def text(self) -> Text:
        """Return the size as people read it."""
        tokens = Number(self.queries, ",")
        square = self.keys == self.queries
        shape = phrase_count(
            "batch {batch}, {n} head, {tokens} tokens, head size {size}",
            "batch {batch}, {n} heads, {tokens} tokens, head size {size}",
            self.heads,
            batch=self.batch,
            tokens=tokens if square else joined((tokens, Number(self.keys, ",")), " x "),
            size=self.head_size,
        )
        return phrase("{shape}, causal", shape=shape) if self.causal else shape


class Speedup(msgspec.Struct, frozen=True):
    """Predict how many times as fast linked attention is on one GPU, in bfloat16."""

    gpu: str
    shape: Shape
    forward: float
    training: float
    """Forward and backward together."""

    @property
    def text(self) -> Text:
        """Return the prediction as people read it."""
        return phrase(
            "predicted on an {gpu} for the attention alone: {forward} times as fast forward,"
            " {training} with the backward pass ({shape}, bfloat16)",
            gpu=self.gpu,
            forward=Number(self.forward, ".2g"),
            training=Number(self.training, ".2g"),
            shape=self.shape.text,
        )


Kind = Literal["by hand", "sdpa", "library", "softmax", ""]
"""Products and a softmax, torch's function, a function of another library, or a softmax of other
values; empty for a file that cannot be read."""


class Finding(msgspec.Struct, frozen=True):
    """Describe one attention, or a file that cannot be read."""

    file: str
    line: int
    action: Literal["link", "leave"]
    form: Message
    """How it is written; empty for a file that cannot be read."""
    reason: Message
    """What would run instead, or why it is left alone."""
    speedup: Speedup | None = None
    """None if it is unknown, because the file names no sizes or nothing like it was measured."""
    kind: Kind = ""
    steps: tuple[str, ...] = ()
    """What happens to scores and weights of attention by hand; see `Product.steps`."""
    saved: Number | None = None
    """The memory that scores of one sequence take; None if it is unknown or stays in use."""


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
