"""Compute attention of many short sequences with low latency, by the portable kernels
(FlashCore)."""

from __future__ import annotations

from torch import Tensor

from gpudeck.accel.attention.dispatch import choose
from gpudeck.accel.attention.inputs import arrange, problem_of, rules_of


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_m: int | None = None,
    block_n: int | None = None,
) -> Tensor:
    """Compute softmax(q kᵀ · scale) v without gradients.

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D].

    A tile has `block_m` queries and `block_n` keys, each 16, 32, 64 or 128; None chooses them by
    head size, lengths and GPU. `validate` and `compare` run the same kernels as the backend
    `triton`. `gpudeck.accel.runtime.graphs.Replay` saves the cost of launching them.

    Raises:
        ValueError: for inputs that the backend `triton` refuses, and for other tile sizes.
        RuntimeError: if a tile does not fit into the GPU's shared memory.
    """
    from gpudeck.accel.attention.kernels.portable.forward import forward

    x = arrange(q, k, v, None, None, "bhsd")
    p = problem_of(x, rules_of(x.q, causal, scale=scale))
    choose(p, "triton")
    if p.empty:
        return q.new_zeros(q.shape)
    return forward(x.q, x.k, x.v, p.rules, blocks=(block_m, block_n))[0]
