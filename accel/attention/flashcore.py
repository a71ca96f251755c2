"""FlashCore: attention of many short sequences with little latency, by our portable kernels; tile sizes are chosen, or given."""

from __future__ import annotations

from torch import Tensor

from accel.attention.dispatch import choose
from accel.attention.inputs import arrange, problem_of


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
    """softmax(q kᵀ · scale) v, without gradients: q [B,H,Sq,D], k and v [B,Hkv,Sk,D].

    `block_m` queries by `block_n` keys are a tile: 16, 32, 64 or 128; None chooses by head size, lengths and GPU. As backend `triton` it is
    what `validate` and `compare` run; `accel.runtime.graphs.Replay` saves what launching costs. Raises ValueError where that backend
    would, and for other blocks, and RuntimeError where a tile does not fit into the GPU's shared memory.
    """
    from accel.attention.kernels.portable.forward import forward

    x = arrange(q, k, v, None, None, "bhsd")
    p = problem_of(
        x, causal=causal, window=(None, None), scale=scale, softcap=0.0, deterministic=False
    )
    choose(p, "triton")
    if p.empty:
        return q.new_zeros(q.shape)
    return forward(
        x.q, x.k, x.v, left=p.left, right=p.right, scale=p.scale, blocks=(block_m, block_n)
    )[0]
