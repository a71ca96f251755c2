"""What is asked of attention, as one value: validated once, then all that dispatch needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DEVICES = ("cpu", "cuda")

Bias = Literal["none", "bool", "float"]


@dataclass(frozen=True)
class Problem:
    """Attention of q [batch, heads, seq_q, head_dim] over k, v [batch, kv_heads, seq_k, head_dim].

    Queries and keys are aligned bottom-right: query i stands at the place p = i + seq_k - seq_q, and sees the keys from p - left to
    p + right. Causal is right = 0. A query that sees no key, as the first ones do where seq_q > seq_k and right = 0, gives zeros.
    """

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    """With `ragged` the longest sequence's."""
    seq_k: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    capability: tuple[int, int] | None
    """CUDA compute capability; None on a CPU."""
    scale: float
    grad: bool = False
    """Whether gradients will be asked for."""
    left: int | None = None
    """Keys seen before the query's own place; None: all."""
    right: int | None = None
    softcap: float = 0.0
    """Scores become softcap x tanh(score / softcap); 0: they stay as they are."""
    bias: Bias = "none"
    """`bool`: a mask, True where a query may see a key. `float`: added to the scores."""
    bias_grad: bool = False
    ragged: bool = False
    """Whether `batch` sequences of different lengths lie end to end."""
    deterministic: bool = False
    """Whether gradients must be the same bit for bit when computed again."""

    def __post_init__(self) -> None:
        """Raises ValueError saying what was given and what is possible."""
        if self.dtype not in DTYPES:
            raise ValueError(
                f"attention takes {', '.join(dtype_name(d) for d in DTYPES)}; got {dtype_name(self.dtype)}"
            )
        if self.device.type not in DEVICES:
            raise ValueError(
                f"attention runs on {' and '.join(DEVICES)}; got tensors on {self.device}"
            )
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(
                f"the key/value heads must divide the query heads, at least 1 each; got {self.kv_heads} for {self.heads} query heads"
            )
        if self.head_dim < 1:
            raise ValueError(f"the head size must be at least 1; got {self.head_dim}")
        # The fused kernels take the largest score before they scale it: a negative scale would make that the smallest, and overflow.
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(
                f"scale must be a finite number above 0, or None for 1/sqrt(head size); got {self.scale}"
            )
        if not (math.isfinite(self.softcap) and self.softcap >= 0):
            raise ValueError(
                f"softcap must be a finite number above 0, or 0 for none; got {self.softcap}"
            )

    @property
    def causal(self) -> bool:
        """Whether no query sees a key after its own place, and nothing else is hidden from it."""
        return self.right == 0 and self.left is None

    @property
    def windowed(self) -> bool:
        """Whether keys are hidden in another way than by causality."""
        return self.left is not None or self.right not in (None, 0)

    @property
    def blind(self) -> int:
        """How many of the first queries see no key because they stand before the first one."""
        return (
            0
            if self.right is None
            else min(self.seq_q, max(0, self.seq_q - self.seq_k - self.right))
        )

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute: no sequence, no query or no key."""
        return 0 in (self.batch, self.seq_q, self.seq_k)

    @property
    def mask(self) -> Literal["none", "square", "lower right", "window"]:
        """The mask over the queries that see a key. A single causal one sees all keys, and needs none."""
        if self.windowed:
            return "window"
        seeing = self.seq_q - self.blind
        if self.right is None or (seeing <= 1 and not self.ragged):
            return "none"
        return "square" if seeing == self.seq_k and not self.ragged else "lower right"

    @property
    def pairs(self) -> int:
        """(query, key) pairs of one head that are not hidden by causality or window: S(S+1)/2 for the causal square."""
        shift = self.seq_k - self.seq_q
        if not self.windowed:  # all, or a trapezium: without a loop, as sequences may be long
            seeing = self.seq_q - self.blind
            return seeing * self.seq_k - (seeing * (seeing - 1) // 2 if self.right == 0 else 0)
        last = (
            self.seq_k - 1 if self.right is None else min(self.seq_k - 1, i + shift + self.right)
            for i in range(self.seq_q)
        )
        first = (
            0 if self.left is None else max(0, i + shift - self.left) for i in range(self.seq_q)
        )
        return sum(max(0, b - a + 1) for a, b in zip(first, last, strict=True))

    @property
    def flops(self) -> float:
        """Floating-point operations of the forward pass: a multiplication and an addition for each element of each pair, in both products.

        4 x batch x heads x pairs x head_dim; the backward pass has five products where this has two, 2.5 times as many. The usual rule for
        causal attention, half of 4BHS²D, leaves out half the diagonal: it is smaller by the factor S/(S+1). A ragged batch counts as if
        every sequence were the longest.
        """
        return 4.0 * self.batch * self.heads * self.pairs * self.head_dim

    def __str__(self) -> str:
        heads = (
            f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads} over {self.kv_heads}"
        )
        seq = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q} over {self.seq_k}"
        kind = [dtype_name(self.dtype)]
        kind += (
            ["causal"]
            if self.causal
            else [f"window ({self.left}, {self.right})"]
            if self.windowed
            else []
        )
        kind += [f"softcap {self.softcap:g}"] if self.softcap else []
        kind += [] if self.bias == "none" else ["mask" if self.bias == "bool" else "bias"]
        kind += ["ragged"] if self.ragged else []
        return f"batch {self.batch}, heads {heads}, sequence {seq}, head size {self.head_dim}, {', '.join(kind)} on {self.device}"


def default_scale(head_dim: int) -> float:
    """1/sqrt(head_dim)."""
    return 1.0 / math.sqrt(max(1, head_dim))


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")
