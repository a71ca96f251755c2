"""Call the peers of our attention that no backend wraps, each by its own function.

They are torch's scaled_dot_product_attention with grouped heads and masks, and FlexAttention
compiled. Each takes q, k and v in its own best layout. The gradients come from autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from gpudeck.accel.attention import Ragged
from gpudeck.accel.attention.inputs import Inputs
from tests.benchmarks.attention_shapes import ModelShape

PeerCall = Callable[..., Tensor]
"""Takes q, k, v [B,H,S,D] (ragged: [1,H,T,D]), and a mask if there is one; returns the output."""


def peers(shape: ModelShape, x: Inputs) -> Iterator[tuple[str, PeerCall]]:
    """Yield the peers that can compute a shape, by their names.

    Args:
        shape: the problem.
        x: one set of tensors, of which FlexAttention reads the sizes only.
    """
    square = shape.seq_q == shape.seq_k or shape.seq_q == 1
    plain = shape.left is None and not shape.softcap and x.ragged is None
    if plain and (square or not shape.causal):
        fixed = None
        if x.bias is not None and shape.causal:  # torch takes either: the mask is made ahead
            hidden = torch.ones(shape.seq_q, shape.seq_k, dtype=torch.bool, device=x.q.device)
            fixed = x.bias.masked_fill(hidden.triu(1), -torch.inf)
        yield "torch sdpa", partial(_sdpa, shape, fixed, None)
        if shape.mask != "none":
            yield "torch sdpa cudnn", partial(_sdpa, shape, fixed, SDPBackend.CUDNN_ATTENTION)
    if not plain or shape.mask != "none":
        yield "flex", _flex(shape, x)


def _sdpa(
    shape: ModelShape,
    fixed: Tensor | None,
    backend: SDPBackend | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    call = partial(
        scaled_dot_product_attention,
        q,
        k,
        v,
        attn_mask=bias if fixed is None else fixed,
        is_causal=shape.causal and shape.seq_q > 1 and fixed is None,
        enable_gqa=shape.heads != shape.kv_heads,
    )
    if backend is None:
        return call()
    with sdpa_kernel(backend):
        return call()


def _flex(shape: ModelShape, x: Inputs) -> PeerCall:
    """Return FlexAttention, compiled for the shape, with a block mask made ahead.

    Its backward pass keeps the buffers of the forward pass, as it runs again and again.
    """
    torch._functorch.config.donated_buffer = False
    device = x.q.device
    lengths = (x.q.shape[2], x.k.shape[2])
    sequence = _sequence_of(x.ragged, lengths[0]) if x.ragged is not None else None
    keep = x.bias[:, 0, 0] if x.bias is not None and shape.mask == "padding" else None

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = i == i
        if shape.causal:
            seen = seen & (j <= i)
        if shape.left is not None:
            seen = seen & (i - j <= shape.left)
        if sequence is not None:
            seen = seen & (sequence[i] == sequence[j])
        if keep is not None:
            seen = seen & keep[b, j]
        return seen

    masked = shape.causal or shape.left is not None or sequence is not None or keep is not None
    blocks = None
    if masked:
        batch = shape.batch if keep is not None else None
        blocks = create_block_mask(visible, batch, None, *lengths, device=device)
    run: Any = torch.compile(flex_attention, dynamic=False)

    def call(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            if shape.softcap:
                s = shape.softcap * torch.tanh(s / shape.softcap)
            if bias is not None and shape.mask != "padding":
                s = s + bias[0, h, i, j]
            return s

        changed = shape.softcap or (bias is not None and shape.mask != "padding")
        out: Tensor = run(
            q,
            k,
            v,
            score_mod=score if changed else None,
            block_mask=blocks,
            enable_gqa=shape.heads != shape.kv_heads,
        )
        return out

    return call


def _sequence_of(ragged: Ragged, tokens: int) -> Tensor:
    """Return the number of the sequence that each token belongs to."""
    at = torch.arange(tokens, device=ragged.starts_q.device, dtype=torch.int32)
    return torch.searchsorted(ragged.starts_q[1:], at, right=True)
