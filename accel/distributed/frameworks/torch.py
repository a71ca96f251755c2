"""Take the place of torch's context parallelism: the same calls, with our attention.

Import `context_parallel` and `context_parallel_unshard` from here instead of
`torch.distributed.tensor.experimental`. Within the context, torch's
`scaled_dot_product_attention` is computed over the tokens of all ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from gpudeck.accel.distributed.api import distributed_attention
from gpudeck.accel.distributed.sharding import shard, size_of, spans_of, unshard

LAYOUT = "zigzag"


@contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: Sequence[Tensor] = (),
    buffer_seq_dims: Sequence[int] = (),
    no_restore_buffers: AbstractSet[Tensor] = frozenset(),
    **options: Any,
) -> Iterator[None]:
    """Divide each buffer among the ranks in its place, and compute attention over all of them.

    Args:
        mesh: one dimension of a device mesh.
        buffers: tensors with the whole sequence, all of one length, which need not be divisible.
        buffer_seq_dims: the dimension of the sequence in each buffer.
        no_restore_buffers: the buffers that stay divided afterwards.
        options: further ones of `distributed_attention`, such as seqlens and strategy.

    Raises:
        ValueError: if the buffers do not fit together.
    """
    lengths = {b.shape[dim] for b, dim in zip(buffers, buffer_seq_dims, strict=True)}
    if len(lengths) > 1:
        raise ValueError(f"all buffers must have one length of the sequence; got {sorted(lengths)}")
    tokens = lengths.pop() if lengths else None
    before = [b.clone() if not _among(b, no_restore_buffers) else None for b in buffers]
    if tokens is not None:
        mine = spans_of(LAYOUT, tokens, mesh.size())[mesh.get_local_rank()]
        for buffer, dim in zip(buffers, buffer_seq_dims, strict=True):
            _replace(buffer, shard(buffer, mine, dim))
    fused = functional.scaled_dot_product_attention
    attend = functools.partial(_attend, group=mesh, tokens=tokens, **options)
    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = fused
        for buffer, whole in zip(buffers, before, strict=True):
            if whole is not None:
                _replace(buffer, whole)


@torch.no_grad()
def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Tensor], seq_dims: Sequence[int]
) -> list[Tensor]:
    """Return the whole sequence of each buffer, whose shards all ranks give."""
    group, me = mesh.get_group(), mesh.get_local_rank()
    sizes: list[int] = [0] * mesh.size()
    whole = []
    for buffer, dim in zip(buffers, seq_dims, strict=True):
        dist.all_gather_object(sizes, buffer.shape[dim], group=group)
        spans = spans_of(LAYOUT, sum(sizes), mesh.size())
        shape = list(buffer.shape)
        parts = []
        for rank, of_rank in enumerate(spans):
            shape[dim] = size_of(of_rank)
            part = buffer.contiguous() if rank == me else buffer.new_empty(shape)
            dist.broadcast(part, dist.get_global_rank(group, rank), group=group)
            parts.append(part)
        whole.append(unshard(parts, spans, dim))
    return whole


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **options: Any,
) -> Tensor:
    """Compute torch's attention over the tokens of all ranks.

    Raises:
        ValueError: for a mask or dropout, which cannot be divided.
    """
    if attn_mask is not None or dropout_p:
        raise ValueError(
            "attention that is divided among ranks takes no mask and no dropout: use is_causal, or"
            " the options window and seqlens of context_parallel"
        )
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"{query.shape[1]} query heads share {key.shape[1]} key heads only with enable_gqa=True"
        )
    out = distributed_attention(query, key, value, causal=is_causal, scale=scale, **options)
    assert isinstance(out, Tensor)
    return out


@torch.no_grad()
def _replace(buffer: Tensor, content: Tensor) -> None:
    """Give a buffer other contents, and their shape."""
    content = content.clone()
    buffer.resize_(content.shape)
    buffer.copy_(content)


def _among(t: Tensor, others: AbstractSet[Tensor]) -> bool:
    return any(t is other for other in others)
