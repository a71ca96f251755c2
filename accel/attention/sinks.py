"""Add attention sinks to what a kernel without them computed.

A sink is one more score in the softmax of every row of a head, to which no value belongs. It needs
nothing but the rows' lse: with whole = log(exp(lse) + exp(sink)) the output is multiplied by
exp(lse - whole), and whole is the new lse. From these a backward pass that recomputes the weights
as exp(score - whole) gives the gradients of q, k and v without any change; that of the sink
follows from the rows' sums.

Source: gpt-oss (arXiv 2508.10925), and arXiv 2309.17453.
"""

from __future__ import annotations

import torch
from torch import Tensor


def add_sink(out: Tensor, lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output, scaled in place, and the new lse.

    Shapes: out [B,H,S,D], lse float32 [B,H,S], sink [H].
    """
    whole = torch.logaddexp(lse, sink.to(lse.dtype)[:, None])
    share = torch.exp(lse - whole).masked_fill_(torch.isneginf(lse), 0.0)
    return out.mul_(share[..., None]), whole


def sink_gradient(
    dout: Tensor, out: Tensor, lse: Tensor, dlse: Tensor | None, sink: Tensor | None
) -> Tensor:
    """Return the gradient of the sink [H], from out and lse with the sink, and their gradients; an
    empty tensor without a sink.

    The sink's weight is p = exp(sink - lse), and its score's gradient p (dlse - sum(dout out)). The
    sums are float32, but of an output that was rounded to its dtype: that is the gradient's error.
    """
    if sink is None:
        return out.new_empty(0)
    kind = torch.promote_types(torch.float32, out.dtype)
    sums = (out.to(kind) * dout.to(kind)).sum(-1).neg_()
    if dlse is not None:
        sums += dlse
    weights = torch.exp(sink.to(kind)[:, None] - lse.to(kind))
    return (weights.masked_fill_(torch.isneginf(lse), 0.0) * sums).sum((0, 2)).to(sink.dtype)
