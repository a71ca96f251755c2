"""The one recurrence that every kind of linear attention is a case of.

    S'_t = diag(exp(decay_t)) S_{t-1}
    S_t  = S'_t + k_t v_t^T + b_t u_t^T
    o_t  = scale q_t^T S_t

S is a matrix of keys by values. u_t is what is written in place of what is erased:

    sign < 0, a delta rule:  u_t = v_t - a_t^T S'_t, b_t = beta_t a_t, and there is no k_t v_t^T
    sign > 0:                u_t = a_t^T S'_t, or a_t^T S_{t-1} if the erasing key is exclusive

Without a and b there is no u_t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Rule(NamedTuple):
    """Say what of the recurrence a kind uses; the kernels are specialised to it."""

    writes: Literal["values", "corrections", "both"]
    """`values`: k v^T only; `corrections`: a delta rule, b u^T only; `both`: k v^T + b u^T."""
    exclusive: bool = False
    """True if a_t is multiplied with S_{t-1}, before its decay."""
    gentle: bool = False
    """True if a model of this kind has no decay below exp(-1)."""

    @property
    def plain(self) -> bool:
        """Return True if k v^T is written."""
        return self.writes != "corrections"

    @property
    def erases(self) -> bool:
        """Return True if b u^T is written."""
        return self.writes != "values"

    @property
    def strongest(self) -> float:
        """Return the smallest log decay of a token; what decays faster counts as this.

        It keeps the factors around the middle of a block of tokens within float32's range: e^80 of
        16 tokens (exp(-10) is 4.5e-5), or e^32 of the 64 tokens of a gentle kind.
        """
        return -1.0 if self.gentle else -10.0

    @property
    def sign(self) -> int:
        """Return the sign of a^T S in u."""
        return -1 if self.writes == "corrections" else 1


@dataclass(frozen=True)
class Operands:
    """Hold the tensors of the recurrence.

    Shapes: q, k, a are [B,T,Hk,Dk]; v is [B,T,H,Dv] with Hk dividing H; b is [B,T,H,Dk]; beta is
    [B,T,H] and stands for b = beta a in a delta rule; decay is float32 [B,T,H] or [B,T,H,Dk];
    state is float32 [N,H,Dk,Dv]. N is B, or the number of sequences if `starts` [N+1] int32 says
    where each begins in a batch of 1 and where the last ends.
    """

    q: Tensor
    v: Tensor
    decay: Tensor
    scale: float
    rule: Rule
    k: Tensor | None = None
    a: Tensor | None = None
    b: Tensor | None = None
    beta: Tensor | None = None
    state: Tensor | None = None
    starts: tuple[int, ...] | None = None

    @property
    def group(self) -> int:
        """Return how many heads of values share a head of keys."""
        return int(self.v.shape[2] // self.q.shape[2])

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """Return where each sequence begins and ends among all tokens of the batch, in order."""
        if self.starts is not None:
            return tuple(zip(self.starts[:-1], self.starts[1:], strict=True))
        batch, length = self.q.shape[:2]
        return tuple((n * length, (n + 1) * length) for n in range(batch))

    def to(self, dtype: torch.dtype) -> Operands:
        """Return the same operands in another dtype, the decay and the state included."""
        names = ("q", "k", "v", "a", "b", "beta", "decay", "state")
        given = {name: x for name in names if (x := getattr(self, name)) is not None}
        converted: dict[str, Any] = {name: x.to(dtype) for name, x in given.items()}
        return replace(self, **converted)

    def spell_out(self) -> Operands:
        """Return the same operands with b in place of beta, in the dtype of the decay."""
        if self.beta is None or self.a is None:
            return self
        keys = self.a.to(self.decay.dtype).repeat_interleave(self.group, 2)
        return replace(self, b=keys * self.beta.to(self.decay.dtype).unsqueeze(-1), beta=None)
