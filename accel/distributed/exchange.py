"""Define how tensors travel between ranks: rounds that land in buffers of the receivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Shape = tuple[int, ...]
Buffers = Sequence[tuple[Shape, torch.dtype]]
"""Shapes [B,H,S,D] and dtypes of landing buffers."""


class Part(NamedTuple):
    """Some heads and rows of one of the tensors [B,H,S,D] that are given to a round."""

    tensor: int
    heads: slice
    rows: slice
    step: int = 1
    """The distance of neighbouring rows."""

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the view [B,h,n,D]."""
        rows = slice(self.rows.start, self.rows.stop, self.step)
        return tensors[self.tensor][:, self.heads, rows]


class Place(NamedTuple):
    """Rows of a landing buffer [B,H,S,D]."""

    buffer: int
    row: int
    step: int = 1

    def of(self, buffers: Sequence[Tensor], rows: int) -> Tensor:
        """Return the view [B,H,rows,D]."""
        return buffers[self.buffer][:, :, self.row : self.row + rows * self.step : self.step]


class Send(NamedTuple):
    """What a peer gets, and where it lands there."""

    peer: int
    part: Part
    place: Place
    there: Buffers = ()
    """All landing buffers of the peer, which direct copies need to know."""


class Receive(NamedTuple):
    """What a peer sends: how many rows, and where they land."""

    peer: int
    place: Place
    rows: int


@dataclass(eq=False)
class Round:
    """Describe one round of an exchange, in which every rank takes part, without its tensors.

    Both sides list the rows between them in the same order. It is made once for a problem, and
    hashed by identity.
    """

    buffers: Buffers
    """The landing buffers of this rank."""
    size: int
    """The bytes of the landing buffers of the rank that has most, which all ranks state alike."""
    sends: list[Send] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)
    own: list[tuple[Part, Place]] = field(default_factory=list)
    """What stays on this rank."""
    back: bool = False
    """True if it takes results back, which were computed since the first round began: else it needs
    no wait for what has been queued since."""


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

    @property
    def ahead(self) -> int:
        """Return how many rounds that bring something may be under way at a time."""

    def reserve(self, there: int, back: int = 0) -> None:
        """Make room for rounds of so many bytes, and for those that take results back; all ranks
        ask for the same, between passes."""

    def begin(self, round_: Round, tensors: Sequence[Tensor]) -> Landing:
        """Start a round with these tensors."""

    def end(self) -> None:
        """Let the current stream wait until no tensor is needed any more."""


ALIGNMENT = 256


def padded(size: int) -> int:
    """Return a number of bytes, rounded up to what buffers begin at."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def bytes_of(*buffers: tuple[Shape, torch.dtype]) -> int:
    """Return the bytes of buffers, each rounded up."""
    return sum(padded(prod(shape) * dtype.itemsize) for shape, dtype in buffers)


def narrowed(t: Tensor) -> Tensor:
    """Return [B,H,S,1] as [B,H,S]."""
    return t.squeeze(-1) if t.dim() == 4 else t


def widened(t: Tensor) -> Tensor:
    """Return [B,H,S] as [B,H,S,1]."""
    return t if t.dim() == 4 else t.unsqueeze(-1)
