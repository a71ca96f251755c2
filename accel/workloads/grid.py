"""Enumerate the attention problems that a workload's parameters span, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpudeck.accel.result import Cell, Direction
from gpudeck.accel.workloads.catalog import TOKENS, WIDTH, split
from gpudeck.language.text import phrase

MOST_CELLS = 800
"""The most cells of a Result: more would not fit into the file that the daemon reads."""
BACKWARD = 2.5
"""Operations of the backward pass for each of the forward pass: five products instead of two."""

ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
"""The size of an element of each dtype."""


@dataclass(frozen=True)
class Shape:
    """Describe self-attention of `batch` sequences of one length."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    causal: bool
    dtype: str

    @property
    def pairs(self) -> int:
        """Return the (query, key) pairs of one head that are not masked."""
        return self.seq * (self.seq + 1) // 2 if self.causal else self.seq * self.seq

    def flops(self, direction: Direction) -> float:
        """Return the floating-point operations of one call, of unmasked elements only."""
        forward = 4.0 * self.batch * self.heads * self.pairs * self.head_dim
        return forward if direction == "forward" else BACKWARD * forward

    def moved(self, direction: Direction) -> float:
        """Return the least bytes that one call reads and writes.

        Forward these are q, k, v and out; backward also dout, lse and the gradients.
        """
        elements = self.batch * self.seq * (self.heads + self.kv_heads) * self.head_dim
        rows = 2.0 * elements * ELEMENT_BYTES[self.dtype]
        if direction == "forward":
            return rows
        return 2 * rows + 4.0 * self.batch * self.heads * self.seq

    @property
    def held(self) -> float:
        """Return the bytes of q, k, v and the output."""
        return self.moved("forward")

    @property
    def scores(self) -> float:
        """Return the bytes of all scores in the inputs' type, which `math` and `reference` hold."""
        return float(self.batch * self.heads * self.seq * self.seq * ELEMENT_BYTES[self.dtype])

    def cell(self, direction: Direction, contender: str) -> Cell:
        """Return an empty cell of a Result for this problem."""
        return Cell(
            self.batch,
            self.heads,
            self.kv_heads,
            self.seq,
            self.head_dim,
            self.causal,
            self.dtype,
            direction,
            contender,
            flops=self.flops(direction),
            moved=self.moved(direction),
        )

    def __str__(self) -> str:
        heads = (
            f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads} over {self.kv_heads}"
        )
        mask = ", causal" if self.causal else ""
        return (
            f"batch {self.batch}, heads {heads}, sequence {self.seq}, head size {self.head_dim},"
            f" {self.dtype}{mask}"
        )


def shapes(values: Mapping[str, str]) -> tuple[Shape, ...]:
    """Return all combinations of the listed parameters, by head size, mask and length.

    Raises:
        ValueError: if the key/value heads do not divide the heads.
    """
    batch, heads, kv_heads = (int(values[name]) for name in ("batch", "heads", "kv_heads"))
    masks = {"no": (False,), "yes": (True,), "both": (False, True)}[values["causal"]]
    return tuple(
        _shape(
            batch or max(1, TOKENS // seq),
            heads or max(1, WIDTH // dim),
            kv_heads,
            seq,
            dim,
            causal,
            values["dtype"],
        )
        for dim in map(int, split(values["head_dim"]))
        for causal in masks
        for seq in map(int, split(values["seq"]))
    )


def directions(name: str) -> tuple[Direction, ...]:
    """Return the directions that `forward`, `backward` or `both` names."""
    if name == "both":
        return ("forward", "backward")
    return ("backward",) if name == "backward" else ("forward",)


def _shape(
    batch: int, heads: int, kv_heads: int, seq: int, dim: int, causal: bool, dtype: str
) -> Shape:
    kv_heads = kv_heads or heads
    if heads % kv_heads:
        raise ValueError(
            phrase(
                "{n} heads cannot share {heads} key/value heads: these must divide them",
                n=heads,
                heads=kv_heads,
            )
        )
    return Shape(batch, heads, kv_heads, seq, dim, causal, dtype)
