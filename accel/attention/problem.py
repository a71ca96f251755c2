"""Describe an attention problem as one validated value that holds all that dispatch needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DEVICES = ("cpu", "cuda")
NO_LIMIT = 2**31 - 1
"""Stands for no limit of a window where None cannot be passed."""

LOG2E = 1.4426950408889634

Bias = Literal["none", "bool", "float"]
Variant = Literal["lse_grad", "alibi", "blocks"]
"""What a problem may ask for that only some backends offer."""


class Rules(NamedTuple):
    """Say which keys a query sees, and how its scores follow from the products with them.

    Query i sees the keys from i + seq_k - seq_q - left to i + seq_k - seq_q + right; None means no
    limit, and a negative side begins beyond the query itself. Scores are scale x q.k, or with a
    softcap above 0 softcap x tanh(scale x q.k / softcap).
    """

    left: int | None = None
    right: int | None = None
    scale: float = 1.0
    softcap: float = 0.0

    @property
    def is_cut(self) -> bool:
        """Return whether a side is limited."""
        return self.left is not None or self.right is not None

    @property
    def factor(self) -> float:
        """Return by what a kernel multiplies products: before the softcap, or else to base 2."""
        return self.scale / self.softcap if self.softcap else self.scale * LOG2E


@dataclass(frozen=True)
class Problem:
    """Attention of q [batch, heads, seq_q, head_dim] over k, v [batch, kv_heads, seq_k, head_dim].

    Queries and keys are aligned bottom-right: query i stands at position p = i + seq_k - seq_q and
    sees the keys from p - left to p + right. Causal attention has right = 0. A query that sees no
    key, like the first ones if seq_q > seq_k and right = 0, gives zeros.
    """

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    """The number of queries; in a ragged batch that of the longest sequence."""
    seq_k: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    capability: tuple[int, int] | None
    """The CUDA compute capability; None on a CPU."""
    scale: float
    grad: bool = False
    """True if gradients will be requested."""
    left: int | None = None
    """The number of keys that are visible before the query's own position; None means all. If it
    is negative, the first visible key stands so many keys after that position."""
    right: int | None = None
    softcap: float = 0.0
    """Scores become softcap x tanh(score / softcap); 0 leaves them unchanged."""
    bias: Bias = "none"
    """`bool` is a mask that is True where a query sees a key; `float` is added to the scores."""
    bias_grad: bool = False
    ragged: bool = False
    """True if `batch` sequences of different lengths lie end to end."""
    deterministic: bool = False
    """True if gradients must be bit-identical when they are computed again."""
    sink: bool = False
    """True if each head has a learned term in the denominator of its softmax."""
    alibi: bool = False
    """True if each head has a slope, by which a key's distance is multiplied and added."""
    blocks: bool = False
    """True if a list of blocks says which keys are visible."""
    lse_grad: bool = False
    """True if lse has a gradient in the backward pass."""
    wants_lse: bool = True
    """False if nobody will read lse, which a backend may then leave unwritten."""
    value_dim: int = 0
    """The head size of v and of the output if it is less than head_dim (MLA), else 0."""
    values_in_keys: bool = False
    """True if v is the first value_dim dimensions of k in memory, as in MLA's absorbed form."""

    def __post_init__(self) -> None:
        """Validate the problem.

        Raises:
            ValueError: says what was given and what is possible.
        """
        if self.dtype not in DTYPES:
            raise ValueError(
                f"attention takes {', '.join(dtype_name(d) for d in DTYPES)}; got"
                f" {dtype_name(self.dtype)}"
            )
        if self.device.type not in DEVICES:
            raise ValueError(
                f"attention runs on {' and '.join(DEVICES)}; got tensors on {self.device}"
            )
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(
                "the key/value heads must divide the query heads, at least 1 each; got"
                f" {self.kv_heads} for {self.heads} query heads"
            )
        if self.head_dim < 1:
            raise ValueError(f"the head size must be at least 1; got {self.head_dim}")
        if not 0 <= self.value_dim < self.head_dim:
            raise ValueError(
                f"values of another size than keys ({self.head_dim}) must be smaller; got"
                f" {self.value_dim}"
            )
        # Fused kernels take the largest score before they scale it. A negative scale would turn it
        # into the smallest one and overflow.
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(
                "scale must be a finite number above 0, or None for 1/sqrt(head size); got"
                f" {self.scale}"
            )
        if not (math.isfinite(self.softcap) and self.softcap >= 0):
            raise ValueError(
                f"softcap must be a finite number above 0, or 0 for none; got {self.softcap}"
            )

    @property
    def rules(self) -> Rules:
        """Return which keys are seen, and how scores are made."""
        return Rules(self.left, self.right, self.scale, self.softcap)

    @property
    def out_dim(self) -> int:
        """Return the head size of values and of the output."""
        return self.value_dim or self.head_dim

    @property
    def causal(self) -> bool:
        """Return True if a query sees all keys up to its own position and no others."""
        return self.right == 0 and self.left is None

    @property
    def windowed(self) -> bool:
        """Return True if keys are hidden in another way than by causality."""
        return self.left is not None or self.right not in (None, 0)

    @property
    def skips_own(self) -> bool:
        """Return True if a window hides the key at the query's own position."""
        return any(side is not None and side < 0 for side in (self.left, self.right))

    @property
    def blind(self) -> int:
        """Return how many of the first queries see no key, as they stand before the first one."""
        return (
            0
            if self.right is None
            else min(self.seq_q, max(0, self.seq_q - self.seq_k - self.right))
        )

    @property
    def empty(self) -> bool:
        """Return True if there is nothing to compute: no sequence, no query or no key."""
        return 0 in (self.batch, self.seq_q, self.seq_k)

    @property
    def mask(self) -> Literal["none", "square", "lower right", "window"]:
        """Return the kind of mask over the queries that see a key.

        A single causal query sees all keys and needs no mask.
        """
        if self.windowed:
            return "window"
        seeing = self.seq_q - self.blind
        if self.right is None or (seeing <= 1 and not self.ragged):
            return "none"
        return "square" if seeing == self.seq_k and not self.ragged else "lower right"

    @property
    def pairs(self) -> int:
        """Count the visible (query, key) pairs of one head: S(S+1)/2 for a causal square."""
        n, shift = self.seq_q, self.seq_k - self.seq_q
        ends = n * self.seq_k
        if self.right is not None:
            ends = _sum_of_clamped(n, shift + self.right + 1, self.seq_k)
        starts = 0 if self.left is None else _sum_of_clamped(n, shift - self.left, self.seq_k)
        return ends - starts

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Return what this problem asks for that only some backends offer."""
        return tuple(name for name in get_args(Variant) if getattr(self, name))

    @property
    def flops(self) -> float:
        """Count the floating-point operations of the forward pass: 2 x batch x heads x pairs x
        (head size of keys + head size of values).

        Each element of a pair takes a multiplication and an addition in both products. The backward
        pass has five products instead of two, 2.5 times as many operations. The usual rule for
        causal attention, half of 4BHS²D, omits half of the diagonal: it is smaller by the factor
        S/(S+1). A ragged batch counts as if every sequence were the longest.
        """
        return 2.0 * self.batch * self.heads * self.pairs * (self.head_dim + self.out_dim)

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
        kind += ["sink"] if self.sink else []
        kind += ["ALiBi"] if self.alibi else []
        kind += ["block mask"] if self.blocks else []
        return (
            f"batch {self.batch}, heads {heads}, sequence {seq}, head size {self.head_dim}"
            f"{f' (values {self.value_dim})' if self.value_dim else ''},"
            f" {', '.join(kind)} on {self.device}"
        )


def _sum_of_clamped(n: int, first: int, most: int) -> int:
    """Return the sum of first, first + 1, ... (n numbers), each raised to 0 and lowered to most."""
    rise = min(n, max(0, -first))
    top = min(n, max(rise, most - first))
    return (top - rise) * (2 * first + rise + top - 1) // 2 + (n - top) * most


def default_scale(head_dim: int) -> float:
    """Return 1/sqrt(head_dim)."""
    return 1.0 / math.sqrt(max(1, head_dim))


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of a dtype, such as `float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")
