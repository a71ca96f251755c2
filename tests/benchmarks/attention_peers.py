"""Call the peers of our attention that no backend wraps, each by its own function.

They are torch's scaled_dot_product_attention with grouped heads and masks, FlexAttention compiled,
and flash-attn-4 with windows and ragged batches. Each takes q, k and v in its own best layout. The
gradients come from autograd.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from accel.attention import Ragged
from accel.attention.dispatch import unloadable
from accel.attention.inputs import Inputs
from tests.benchmarks.attention_shapes import ModelShape

PeerCall = Callable[..., Tensor]
"""Takes q, k, v [B,H,S,D] (ragged: [1,H,T,D]), and a mask if there is one; returns the output."""


def peers(shape: ModelShape, x: Inputs) -> Iterator[tuple[str, PeerCall]]:
    """Yield the peers that can compute a shape, by their names.

    Args:
        shape: the problem.
        x: one set of tensors, of which FlexAttention and flash-attn-4 read the sizes only.
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
    if not plain and shape.mask == "none" and unloadable("fa4") is None:
        yield "fa4 func", partial(_fa4, shape, x.ragged)


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


def _fa4(shape: ModelShape, ragged: Ragged | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from flash_attn.cute.interface import flash_attn_func, flash_attn_varlen_func

    rows = [t.transpose(1, 2) for t in (q, k, v)]
    causal = shape.causal and shape.left is None
    rules = {
        "causal": causal,
        "window_size": (shape.left, 0) if shape.left is not None else (None, None),
        "softcap": shape.softcap,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if ragged is None:
            out = flash_attn_func(*rows, **rules)
        else:
            out = flash_attn_varlen_func(
                *(t.squeeze(0) for t in rows),
                cu_seqlens_q=ragged.starts_q,
                cu_seqlens_k=ragged.starts_k,
                max_seqlen_q=ragged.longest_q,
                max_seqlen_k=ragged.longest_k,
                **rules,
            )
    first: Tensor = out[0] if isinstance(out, tuple) else out
    return first.transpose(1, 2) if ragged is None else first.transpose(0, 1).unsqueeze(0)
