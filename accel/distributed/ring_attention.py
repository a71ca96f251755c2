"""Offer attention over several GPUs by the names of Ring Attention (arXiv 2310.01889)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.distributed.api import NO_WINDOW, defaults, distributed_attention, settings_of
from gpudeck.accel.distributed.merging import Sum
from gpudeck.accel.distributed.message_exchange import Messages
from gpudeck.accel.distributed.operation import backward_op
from gpudeck.accel.distributed.pool import Pool, pool_of
from gpudeck.accel.distributed.sharding import shard, spans_of

RING = "ring"


class RingAttention(torch.nn.Module):
    """Compute attention over several GPUs.

    In a program that torchrun has started, with torch.distributed initialized, every rank gives its
    shards of q, k and v [B,H,S,D]. In any other program, whole tensors are given: processes are
    started, one for each GPU (or CPU process, for tensors on the CPU), which compute the shards,
    and the whole output is returned. Both have gradients.
    """

    def __init__(self, num_gpus: int | None = None, **options: Any) -> None:
        """Create the module.

        Args:
            num_gpus: the number of ranks; by default all of torch.distributed, or all GPUs.
            options: those of `distributed_attention`, such as causal, layout and strategy.
        """
        super().__init__()
        self.options = options
        self.num_gpus = _ranks(num_gpus)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Return the output of this rank's queries, or of all queries.

        Raises:
            ValueError: if torch.distributed has another number of ranks.
        """
        chosen = {**self.options, **options}
        if dist.is_initialized():
            out: Tensor = distributed_attention(q, k, v, **chosen)  # type: ignore[assignment]
            return out
        pool = pool_of(self.num_gpus, q.device.type)
        whole: Tensor = _Whole.apply(q, k, v, pool, chosen)  # type: ignore[no-untyped-call]
        return whole

    def extra_repr(self) -> str:
        """Return the text that printing the module shows."""
        shown = {"num_gpus": self.num_gpus, **self.options}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


def _ranks(asked: int | None) -> int:
    if dist.is_initialized():
        there = dist.get_world_size()
        if asked not in (None, there):
            raise ValueError(
                f"torch.distributed has {there} ranks, and num_gpus={asked} was asked for; leave"
                " num_gpus out, or give a group"
            )
        return there
    return max(1, torch.cuda.device_count()) if asked is None else asked


class _Whole(torch.autograd.Function):
    """Let a pool of processes compute the shards of whole tensors."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, pool: Pool, options: dict[str, Any]
    ) -> Tensor:
        out, lse = pool.forward(q, k, v, options)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.pool, ctx.options = pool, options
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        return (*ctx.pool.backward(dout, q, k, v, out, lse, ctx.options), None, None)


def ring_attention_forward(
    q: Tensor, k: Tensor, v: Tensor, *, strategy: str = RING, **options: Any
) -> tuple[Tensor, Tensor]:
    """Return the output of this rank's queries and the logarithms of their sums.

    The arguments are those of `distributed_attention`.
    """
    out, lse = distributed_attention(q, k, v, strategy=strategy, return_lse=True, **options)
    return out, lse


def ring_attention_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    backward_strategy: str = RING,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of this rank's q, k and v from what the forward pass returned."""
    named = {**defaults(), **options, "backward_strategy": backward_strategy}
    sink = named.pop("sink", None)
    settings = settings_of(q, *named.values())
    dq, dk, dv, _ = backward_op(dout, None, out, lse, q, k, v, sink, *settings)
    return dq, dk, dv


def shard_sequence(
    x: Tensor, ranks: int, rank: int | None = None, *, layout: str = "zigzag", dim: int = 2
) -> Tensor | list[Tensor]:
    """Return the shard of one rank, or of all ranks, of a tensor with the whole sequence."""
    spans = spans_of(layout, x.shape[dim], ranks)
    if rank is not None:
        return shard(x, spans[rank], dim)
    return [shard(x, mine, dim) for mine in spans]


def ring_send_recv(
    *tensors: Tensor, group: dist.ProcessGroup | None = None, sizes: Iterable[int] = ()
) -> list[Tensor]:
    """Send tensors to the next rank, and return those of the rank before, which have their shapes.

    Args:
        tensors: tensors with at most 4 dimensions.
        group: the ranks; all by default.
        sizes: the length of dimension 2 of what each tensor receives, if it differs.
    """
    whole = group if group is not None else dist.distributed_c10d._get_default_group()
    me, ranks = dist.get_rank(whole), dist.get_world_size(whole)
    given = list(sizes) or [t.shape[2] if t.dim() > 2 else 0 for t in tensors]
    shapes = [
        (*t.shape[:2], size, *t.shape[3:]) if t.dim() > 2 else tuple(t.shape)
        for t, size in zip(tensors, given, strict=True)
    ]
    return Messages(whole).pass_on(
        list(tensors), (me + 1) % ranks, (me - 1) % ranks, [torch.Size(s) for s in shapes]
    )


def local_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] = NO_WINDOW,
    scale: float | None = None,
    softcap: float = 0.0,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Return the partial answer of queries over some keys: the output and the logarithms of the
    sums, as `global_accumulate` takes them."""
    return attention(
        q, k, v, causal=causal, window=window, scale=scale, softcap=softcap, backend=backend,
        return_lse=True,
    )  # fmt: skip


def global_accumulate(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the answer of queries over all keys from partial answers over different keys.

    Shapes: each part has an output [B,H,S,Dv] and logarithms, float32 [B,H,S]. The sums are kept in
    float32; the output has the dtype of the first part.

    Raises:
        ValueError: if there is no part.
    """
    total, dtype = None, None
    for out, lse in parts:
        if total is None:
            total, dtype = Sum(tuple(out.shape), out.device), out.dtype
        total.add(out, lse, slice(0, out.shape[2]))
    if total is None or dtype is None:
        raise ValueError("global_accumulate needs at least one partial answer")
    return total.out.to(dtype), total.lse
