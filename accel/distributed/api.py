"""Validate a call, agree on it with the other ranks, choose strategies and run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from gpudeck.accel.attention.fp8 import check_precision
from gpudeck.accel.attention.inputs import Window, check_window
from gpudeck.accel.attention.problem import default_scale
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.distributed.choice import Choice
from gpudeck.accel.distributed.operation import forward_op, plan_of
from gpudeck.accel.distributed.sharding import Spans

NO_WINDOW: Window = (None, None)


def distributed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    causal: bool = False,
    window: Window = NO_WINDOW,
    seqlens: Sequence[int] | Ragged | None = None,
    tokens: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    sink: Tensor | None = None,
    layout: str | Sequence[Spans] = "zigzag",
    deterministic: bool = False,
    strategy: str = "auto",
    backward_strategy: str = "auto",
    backend: str = "auto",
    precision: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute attention over a sequence that is divided among ranks, exactly and with gradients.

    Every rank of the group calls it with its part of the sequence, and gets the output of its own
    queries. Shapes: q [B,H,S,D], k [B,Hkv,S,D], v [B,Hkv,S,Dv] with the S tokens of this rank, as
    `gpudeck.accel.distributed.sharding.spans_of` gives them; Hkv divides H. dtypes and devices are
    those of `gpudeck.accel.attention.attention`.

    Args:
        group: the ranks, or a device mesh with one dimension; all ranks by default.
        causal: a query sees no key after its own position in the whole sequence.
        window: (left, right), the number of keys that a query sees before and after its position.
        seqlens: the lengths of the documents in the whole sequence, end to end, that do not see
            each other.
        tokens: the length of the whole sequence, if ranks may have different numbers of tokens;
            all have the same by default. The sum of `seqlens`, if they are given.
        scale: the factor of the scores, 1/sqrt(D) by default.
        softcap: c > 0 turns each score s into c tanh(s/c).
        sink: [H], one more score in each softmax. Its gradient is that of this rank's queries, like
            those of all parameters.
        layout: `zigzag`, `striped`, `contiguous`, or the spans of each rank.
        deterministic: gradients are bit-identical when they are computed again.
        strategy: `auto`, or the name of a strategy of the forward pass.
        backward_strategy: the same for the backward pass.
        backend: the backend of `accel.attention` for the local work.
        precision: "fp8" computes the products in E4M3, without gradients, as in `accel.attention`;
            keys and values travel in their own dtype.
        return_lse: also return the logarithm of each row's sum of exponentials, float32 [B,H,S].

    Raises:
        ValueError: on every rank, if the arguments do not fit together or differ among ranks.
        RuntimeError: if another rank fails or does not answer for a minute.
    """
    settings = settings_of(
        q, group, causal, window, seqlens, tokens, scale, softcap, layout, deterministic, strategy,
        backward_strategy, backend, precision,
    )  # fmt: skip
    if (
        precision is not None
        and torch.is_grad_enabled()
        and any(t.requires_grad for t in (q, k, v))
    ):
        raise ValueError("attention in FP8 has no gradients: call it under torch.no_grad()")
    out, lse = forward_op(q, k, v, sink, *settings)
    return (out, lse) if return_lse else out


def explain(
    q: Tensor, k: Tensor, v: Tensor, *, sink: Tensor | None = None, **options: Any
) -> tuple[Choice, Choice]:
    """Return which strategies `distributed_attention` uses for these arguments, forward and
    backward, and how tensors travel.

    Every rank must call it.
    """
    plan = plan_of(q, k, v, sink, *settings_of(q, *{**defaults(), **options}.values()))
    forward, backward = (
        replace(c, exchange=plan.world.described(q.device, plan.problem, c))
        for c in (plan.forward, plan.backward)
    )
    return forward, backward


def defaults() -> dict[str, Any]:
    """Return the options that make up the settings of the operation, in the order of
    `settings_of`."""
    return {
        "group": None, "causal": False, "window": NO_WINDOW, "seqlens": None, "tokens": None,
        "scale": None, "softcap": 0.0, "layout": "zigzag", "deterministic": False,
        "strategy": "auto", "backward_strategy": "auto", "backend": "auto", "precision": None,
    }  # fmt: skip


def settings_of(
    q: Tensor,
    group: dist.ProcessGroup | DeviceMesh | None,
    causal: bool,
    window: Window,
    seqlens: Sequence[int] | Ragged | None,
    tokens: int | None,
    scale: float | None,
    softcap: float,
    layout: str | Sequence[Spans],
    deterministic: bool,
    strategy: str,
    backward_strategy: str,
    backend: str,
    precision: str | None,
) -> tuple[Any, ...]:
    """Return the arguments of the operation after the tensors, which are plain values."""
    if precision is not None:
        check_precision(precision)
    left, right = check_window(window)
    if any(side is not None and side < 0 for side in (left, right)):
        raise ValueError(f"a window over several GPUs has no negative side; got {window!r}")
    limits = [-1 if left is None else left, 0 if causal else -1 if right is None else right]
    spans = (
        []
        if isinstance(layout, str)
        else [n for rank, mine in enumerate(layout) for span in mine for n in (rank, *span)]
    )
    return (
        _group_name(group),
        layout if isinstance(layout, str) else "",
        spans,
        -1 if tokens is None else tokens,
        _lengths(seqlens),
        limits,
        default_scale(q.shape[-1]) if scale is None else scale,
        softcap,
        deterministic or torch.are_deterministic_algorithms_enabled(),
        f"{strategy},{backward_strategy}",
        backend,
        precision or "",
    )


def _group_name(group: dist.ProcessGroup | DeviceMesh | None) -> str:
    if isinstance(group, DeviceMesh):
        group = group.get_group()
    if group is None:
        if not dist.is_initialized():
            raise RuntimeError(
                "torch.distributed is not initialized: start the program by torchrun and call"
                " torch.distributed.init_process_group, or use RingAttention(num_gpus=…)"
            )
        group = dist.distributed_c10d._get_default_group()
    return group.group_name


def _lengths(seqlens: Sequence[int] | Ragged | None) -> list[int]:
    if seqlens is None:
        return []
    if isinstance(seqlens, Ragged):
        return seqlens.starts_q.diff().tolist()
    return list(seqlens)
