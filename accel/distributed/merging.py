"""Merge partial answers over different keys, with sums in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.attention.sinks import add_sink
from gpudeck.accel.distributed.local import Answer


class Sum:
    """Add up partial answers of the same queries.

    With whole = log(exp(a) + exp(b)) the sum of two answers is out_a exp(a - whole) + out_b exp(b -
    whole), and its logarithm whole (arXiv 1805.02867).
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        """Begin with no key. Shapes: `shape` is [B,H,S,Dv]."""
        self.out = torch.zeros(shape, dtype=torch.float32, device=device)
        self.lse = torch.full(shape[:3], -torch.inf, dtype=torch.float32, device=device)

    def add(self, out: Tensor, lse: Tensor, rows: slice) -> None:
        """Add the answer of some of the rows."""
        before = self.lse[:, :, rows]
        whole = torch.logaddexp(before, lse)
        base = whole.masked_fill(torch.isneginf(whole), 0.0)
        total = self.out[:, :, rows]
        total.mul_(torch.exp(before - base)[..., None])
        total.addcmul_(out.float(), torch.exp(lse - base)[..., None])
        before.copy_(whole)

    def write(self, answer: Answer, sink: Tensor | None = None) -> None:
        """Write the sum, with the sink, if there is one."""
        out, lse = self.out, self.lse
        if sink is not None:
            out, lse = add_sink(out, lse, sink)
        answer.out.copy_(out)
        answer.lse.copy_(lse)
