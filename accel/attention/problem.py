"""What is asked of attention, as one value: validated once, then all that dispatch and the backends need to know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Problem:
    """Attention of q [batch, heads, seq_q, head_dim] over k, v [batch, kv_heads, seq_k, head_dim].

    With `causal` the last query sees every key and each earlier one sees one key fewer (aligned bottom-right). A query that sees no key,
    as the first ones do where seq_q > seq_k, gives zeros.
    """

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    capability: tuple[int, int] | None
    """CUDA compute capability; None on a CPU."""
    causal: bool
    scale: float
    grad: bool
    """Whether gradients will be asked for."""
    dense: bool = True
    """Whether the elements of each head lie side by side in memory (last stride 1)."""

    def __post_init__(self) -> None:
        """Raises ValueError saying what was given and what is possible."""
        if self.dtype not in DTYPES:
            raise ValueError(f"attention takes {', '.join(dtype_name(d) for d in DTYPES)}; got {dtype_name(self.dtype)}")
        if self.device.type not in DEVICES:
            raise ValueError(f"attention runs on {' and '.join(DEVICES)}; got tensors on {self.device}")
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(
                f"the key/value heads must divide the query heads, at least 1 each; got {self.kv_heads} for {self.heads} query heads"
            )
        if self.head_dim < 1:
            raise ValueError(f"the head size must be at least 1; got {self.head_dim}")
        # The fused kernels take the largest score before they scale it: a negative scale would make that the smallest, and overflow.
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be a finite number above 0, or None for 1/sqrt(head size); got {self.scale}")

    @property
    def blind(self) -> int:
        """How many of the first queries see no key."""
        return max(0, self.seq_q - self.seq_k) if self.causal else 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute: no sequence, no query or no key."""
        return 0 in (self.batch, self.seq_q, self.seq_k)

    @property
    def mask(self) -> Literal["none", "square", "lower right"]:
        """The mask over the queries that see a key. A single one sees all keys, and needs none."""
        seeing = self.seq_q - self.blind
        if not self.causal or seeing <= 1:
            return "none"
        return "square" if seeing == self.seq_k else "lower right"

    @property
    def pairs(self) -> int:
        """(query, key) pairs of one head that are not masked: S(S+1)/2 for the causal square."""
        if not self.causal:
            return self.seq_q * self.seq_k
        seeing = self.seq_q - self.blind
        return seeing * self.seq_k - seeing * (seeing - 1) // 2

    @property
    def flops(self) -> float:
        """Floating-point operations of the forward pass: a multiplication and an addition for each element of each pair, in both products.

        4 x batch x heads x pairs x head_dim. The usual rule for causal attention, half of 4BHS²D, leaves out half the diagonal: it is
        smaller by the factor S/(S+1).
        """
        return 4.0 * self.batch * self.heads * self.pairs * self.head_dim

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads} over {self.kv_heads}"
        seq = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q} over {self.seq_k}"
        kind = f"{dtype_name(self.dtype)}{', causal' if self.causal else ''}"
        return f"batch {self.batch}, heads {heads}, sequence {seq}, head size {self.head_dim}, {kind} on {self.device}"


@dataclass(frozen=True)
class Candidate:
    """A backend, and why it cannot solve the problem (None: it can)."""

    backend: str
    refusal: str | None


@dataclass(frozen=True)
class Choice:
    """Which backend runs, why, and what stood beside it."""

    backend: str
    reason: str
    candidates: tuple[Candidate, ...]


class Backend(Protocol):
    """One implementation of attention."""

    @property
    def name(self) -> str: ...

    def refusal(self, problem: Problem) -> str | None:
        """Why it cannot solve this problem, in words; None where it can."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
        """Solve `problem`, which describes q, k and v, is not refused and not empty. Returns [batch, heads, seq_q, head_dim]."""


def describe(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Problem:
    """The problem that q [B,H,Sq,D], k and v [B,Hkv,Sk,D] pose. Raises ValueError saying what was given and what is possible."""
    given = {"q": q, "k": k, "v": v}
    for name, x in given.items():
        if x.layout != torch.strided or x.is_nested:
            raise ValueError(f"{name} must be an ordinary dense tensor; got layout {x.layout}, nested: {x.is_nested}")
        if x.dim() != 4:
            raise ValueError(f"{name} must be [batch, heads, sequence, head size]; got shape {list(x.shape)}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must have one dtype; got {', '.join(f'{n}: {dtype_name(x.dtype)}' for n, x in given.items())}")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must have one device; got {', '.join(f'{n}: {x.device}' for n, x in given.items())}")
    _check_shapes(q, k, v)
    batch, heads, seq_q, head_dim = q.shape
    kv_heads, seq_k = k.shape[1:3]
    return Problem(
        batch,
        heads,
        kv_heads,
        seq_q,
        seq_k,
        head_dim,
        q.dtype,
        q.device,
        torch.cuda.get_device_capability(q.device) if q.is_cuda else None,
        causal,
        default_scale(head_dim) if scale is None else scale,
        torch.is_grad_enabled() and any(x.requires_grad for x in given.values()),
        all(x.stride(-1) == 1 for x in given.values()),
    )


def default_scale(head_dim: int) -> float:
    """1/sqrt(head_dim)."""
    return 1.0 / math.sqrt(max(1, head_dim))


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    if k.shape != v.shape:
        wrong = "k and v must have one shape"
    elif q.shape[0] != k.shape[0]:
        wrong = "q, k and v must have one batch size"
    elif q.shape[3] != k.shape[3]:
        wrong = "q, k and v must have one head size"
    else:
        return
    raise ValueError(f"{wrong}; got q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}")
