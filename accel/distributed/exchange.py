"""Define how tensors travel between ranks: rounds that land in buffers of the receivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Shape = tuple[int, ...]
Buffers = Sequence[tuple[Shape, torch.dtype]]
"""Shapes [B,H,S,D] and dtypes of landing buffers."""


class Send(NamedTuple):
    """Rows that a peer gets: [B,H,n,D], to be put at `row` of its landing buffer number
    `buffer`."""

    peer: int
    source: Tensor
    buffer: int
    row: int
    step: int = 1
    """The distance of neighbouring rows there."""
    there: Buffers = ()
    """All landing buffers of the peer, which direct copies need to know."""


class Receive(NamedTuple):
    """Rows that a peer sends: `rows` of them, at `row` of the landing buffer number `buffer`."""

    peer: int
    buffer: int
    row: int
    rows: int
    step: int = 1


class Own(NamedTuple):
    """Rows of this rank itself, for the landing buffer number `buffer`."""

    source: Tensor
    buffer: int
    row: int
    step: int = 1


@dataclass
class Round:
    """Describe one round of an exchange, in which every rank takes part.

    Both sides list the rows between them in the same order.
    """

    shapes: Buffers
    """The landing buffers of this rank."""
    bytes_of_any: int
    """The bytes of the largest landing buffers of any rank, which all ranks state alike."""
    sends: list[Send] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)
    own: list[Own] = field(default_factory=list)
    fresh: bool = False
    """True if the sources were computed since the first round began: else they need no wait for
    what has been queued since."""


class Landing(Protocol):
    """The landing buffers of one round."""

    buffers: list[Tensor]

    def arrive(self) -> None:
        """Let the current stream wait until everything is there."""

    def release(self) -> None:
        """Declare that what is queued on the current stream was the last to need the buffers."""


class Exchange(Protocol):
    """A way for tensors to travel, named as the result says it."""

    name: str

    def reserve(self, size: int) -> None:
        """Make room for rounds of so many bytes; all ranks ask for the same, between passes."""

    def begin(self, round_: Round) -> Landing:
        """Start a round."""

    def end(self) -> None:
        """Let the current stream wait until no source is needed any more."""


def place(buffer: Tensor, row: int, rows: int, step: int) -> Tensor:
    """Return the view of rows of a landing buffer [B,H,S,D]."""
    return buffer[:, :, row : row + rows * step : step]


ALIGNMENT = 256


def padded(size: int) -> int:
    """Return a number of bytes, rounded up to what buffers begin at."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def bytes_of(shape: Shape, dtype: torch.dtype) -> int:
    """Return the bytes of a buffer, rounded up."""
    count = 1
    for n in shape:
        count *= n
    return padded(count * dtype.itemsize)
