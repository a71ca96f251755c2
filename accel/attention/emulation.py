"""Compute attention in FP8 as the kernels do, in torch on any device: what FP8 costs in error.

q, k, v and the weights are rounded to E4M3 in the blocks of the kernels, and everything between is
exact in the dtype asked for. It is slow, and it is the oracle of the kernels' tests.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.kernels.quantised import (
    CERTAIN,
    CERTAIN_OF_SAMPLE,
    E4M3,
    KEYS,
    LARGEST,
    LEAST_SCALE,
    PARTS,
    QUERIES,
    SAMPLED,
    Quantised,
    pad_head,
    place_of_key,
    rotation,
)
from gpudeck.accel.attention.problem import Problem

SHIFT = 8.0
"""Weights are stored 2**SHIFT times as large."""


def quantise(q: Tensor, k: Tensor, v: Tensor) -> Quantised:
    """Return q [B,H,Sq,D], k and v [B,Hkv,Sk,D] in E4M3."""
    dim = pad_head(q.shape[3])
    turn = rotation(dim, torch.float32, q.device)
    q8, q_scales = _round(_pad(q, dim) @ turn, QUERIES)
    k8, k_scales = _round(_pad(k, dim) @ turn, KEYS)
    dtype, v = v.dtype, _pad(v, dim)
    centre = _centre(v, dtype)
    v8, v_scales = _round(v - centre[:, :, None], KEYS)
    blocks = v_scales.shape[2]
    whole = v8.new_zeros((*v8.shape[:2], blocks * KEYS, dim), dtype=torch.uint8)
    places = torch.tensor([place_of_key(key) for key in range(KEYS)], device=v.device)
    places = (torch.arange(blocks, device=v.device)[:, None] * KEYS + places).flatten()
    whole[:, :, places[: v8.shape[2]]] = v8.view(torch.uint8)
    unit = 1 / math.sqrt(dim)
    v8 = whole.mT.contiguous().view(E4M3)
    return Quantised(q8, k8, v8, q_scales * unit, k_scales * unit, v_scales, centre)


def _centre(v: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is subtracted from all values of a head: see `Quantised.v_centre`.

    The mean of a sample is rounded to `dtype`, that of the values.
    """
    sampled = v.shape[3] in SAMPLED
    step = max(1, -(-v.shape[2] // PARTS) if sampled else v.shape[2])
    rows = torch.arange(v.shape[2], device=v.device)
    sample = v[:, :, rows % step < KEYS]
    variance, mean = torch.var_mean(sample, 2, correction=0)
    least = CERTAIN_OF_SAMPLE if sampled else CERTAIN
    certain = mean.square() > least**2 * variance / sample.shape[2]
    centre = mean.masked_fill(~(certain & mean.isfinite()), 0.0)
    return centre.to(dtype).float() if sampled else centre


def fp8_block_quantize(x: Tensor, rows: int = KEYS) -> tuple[Tensor, Tensor]:
    """Return x [..., rows of all blocks, D] in E4M3, and float32 scales [..., blocks].

    Each block of `rows` rows has one scale, by which its numbers are to be multiplied. A scale
    passes over NaN, which stays in its place.

    Raises:
        ValueError: if `rows` is not at least 1, or x has fewer than two dimensions.
    """
    if rows < 1 or x.dim() < 2:
        raise ValueError(
            f"blocks have at least 1 row, of tensors of two or more dimensions; got {rows} rows and"
            f" {list(x.shape)}"
        )
    flat, scales = _round(x.float().reshape(1, -1, *x.shape[-2:]), rows)
    return flat.reshape(x.shape), scales.reshape(*x.shape[:-2], -1)


def blockwise_softmax(scores: Tensor, block: int = KEYS) -> tuple[Tensor, Tensor]:
    """Return the softmax over the last dimension, and its log of the sum of exponentials.

    The sum is made `block` scores at a time with a running maximum, as attention kernels do; a row
    that is -inf throughout gives zeros, and -inf.
    """
    most = scores.new_full((*scores.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(most)
    for part in torch.split(scores, block, -1):
        before, most = most, torch.maximum(most, part.amax(-1, keepdim=True))
        base = most.masked_fill(most == -math.inf, 0.0)
        total = total * torch.exp(before - base) + torch.exp(part - base).sum(-1, keepdim=True)
    lse = most + torch.log(total)
    return torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0)), lse.squeeze(-1)


def attend(made: Quantised, problem: Problem, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the output [B,H,Sq,D], its head padded, and lse, in `dtype`."""
    p = problem
    q = made.q.to(dtype) * _spread(made.q_scales, QUERIES, p.seq_q).to(dtype)
    places = torch.tensor([place_of_key(key) for key in range(KEYS)], device=q.device)
    rows = torch.arange(p.seq_q, device=q.device)[:, None] + p.seq_k - p.seq_q
    most = q.new_full((*q.shape[:3], 1), -math.inf)
    total, out = torch.zeros_like(most), torch.zeros_like(q)
    for block in reversed(range(made.k_scales.shape[2])):
        cut = slice(block * KEYS, min((block + 1) * KEYS, p.seq_k))
        k = made.k[:, :, cut].to(dtype) * made.k_scales[:, :, block, None, None]
        v = made.v[:, :, :, block * KEYS : (block + 1) * KEYS].to(dtype)[..., places].mT
        v = v[:, :, : k.shape[2]] * made.v_scales[:, :, block, None, None]
        k, v = (x.repeat_interleave(p.heads // p.kv_heads, 1) for x in (k, v))
        scores = (q @ k.mT) * p.scale
        if p.softcap:
            scores = p.softcap * torch.tanh(scores / p.softcap)
        keys = torch.arange(cut.start, cut.stop, device=q.device)
        hidden = torch.zeros((p.seq_q, len(keys)), dtype=torch.bool, device=q.device)
        if p.right is not None:
            hidden |= keys > rows + p.right
        if p.left is not None:
            hidden |= keys < rows - p.left
        scores = scores.masked_fill(hidden, -math.inf) / math.log(2)
        before, most = most, torch.maximum(most, scores.amax(-1, keepdim=True))
        base = most.masked_fill(most == -math.inf, 0.0)
        weights = torch.exp2(scores - base + SHIFT)
        shrink = torch.exp2(before - base)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights.float().to(E4M3).to(dtype) @ v
    lse = (most - SHIFT + torch.log2(total)) * math.log(2)
    centre = made.v_centre.to(dtype).repeat_interleave(p.heads // p.kv_heads, 1)[:, :, None]
    out = out / total.masked_fill(total == 0, 1.0) + centre * (total > 0)
    return out, lse.squeeze(-1)


def forward(
    x: Inputs, problem: Problem, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return the output like q, and lse, float32 [B,H,Sq], of each sequence on its own."""
    if x.ragged is None:
        out, lse = attend(quantise(*x[:3]), problem, dtype)
        return out[..., : problem.head_dim].to(x.q.dtype), lse.float()
    out = torch.zeros_like(x.q)
    lse = x.q.new_full(x.q.shape[:3], -math.inf, dtype=torch.float32)
    starts = (x.ragged.starts_q.tolist(), x.ragged.starts_k.tolist())
    for (q0, q1), (k0, k1) in zip(*map(pairwise, starts), strict=True):
        if q0 == q1 or k0 == k1:
            continue
        part = Inputs(x.q[:, :, q0:q1], x.k[:, :, k0:k1], x.v[:, :, k0:k1])
        one = replace(problem, batch=1, seq_q=q1 - q0, seq_k=k1 - k0, ragged=False)
        out[:, :, q0:q1], lse[:, :, q0:q1] = forward(part, one, dtype)
    return out, lse


def _pad(x: Tensor, dim: int) -> Tensor:
    return torch.nn.functional.pad(x.float(), (0, dim - x.shape[3]))


def _round(x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return x in E4M3 and the scales of its blocks of rows. A scale passes over NaN."""
    blocks = -(-x.shape[2] // rows)
    size = x.abs().nan_to_num(nan=0.0, posinf=math.inf)
    size = torch.nn.functional.pad(size, (0, 0, 0, blocks * rows - x.shape[2]))
    largest = size.view(*size.shape[:2], blocks, rows, -1).amax((3, 4))
    scales = (largest / LARGEST).clamp(min=LEAST_SCALE)
    small = x * _spread(1 / scales, rows, x.shape[2])
    return small.clamp(-LARGEST, LARGEST).to(E4M3), scales


def _spread(scales: Tensor, rows: int, length: int) -> Tensor:
    return scales.repeat_interleave(rows, 2)[:, :, :length, None]
