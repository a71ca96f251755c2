"""Decode MLA with many heads by Hopper's own kernel, and combine its parts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from triton import cdiv

from gpudeck.accel.attention.kernels.decoding.kernel import join
from gpudeck.accel.attention.kernels.decoding.splits import split
from gpudeck.accel.attention.kernels.geometry import MLA_KEYS, MLA_VALUES, target_of
from gpudeck.accel.attention.kernels.hopper.latent import HEADS, Latent, Run, parts, plan_run
from gpudeck.accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

if TYPE_CHECKING:
    from gpudeck.accel.attention.kernels.decoding.plan import Kind

_JOINED = 4
"""Heads that a program combines."""
_PARTS = 2
"""Parts that it combines at once."""


@lru_cache(maxsize=4096)
def takes(kind: Kind) -> bool:
    """Return whether `attend` computes a problem: MLA in one query, whole tiles of heads, and
    every sequence in one piece of the same length."""
    batch, heads, queries, size = kind.q
    ruled = kind.rules.left is not None or kind.rules.softcap
    plain = not (kind.table_width or kind.counted or ruled)
    sizes = (queries, size, kind.values, kind.k[1]) == (1, MLA_KEYS, MLA_VALUES, 1)
    shape = sizes and heads % HEADS == 0
    typed = kind.kept == kind.dtype and kind.dtype in (torch.float16, torch.bfloat16)
    strides = (kind.q_strides[0], kind.q_strides[1], kind.k_strides[0], kind.k_strides[2])
    boxed = kind.aligned and all(n * kind.dtype.itemsize % ALIGNMENT == 0 for n in strides)
    shared = kind.k_strides == kind.v_strides and kind.k[2] > 0
    counted = 0 < batch * heads * MLA_VALUES < 1 << 31
    if not (
        plain and shape and typed and boxed and shared and counted and kind.device.type == "cuda"
    ):
        return False
    return target_of(kind.device).capability == 90


def join_call(kind: Kind, splits: int, out_strides: tuple[int, int]) -> KernelCall:
    """Return the launch that combines the parts of every sequence."""
    wide = Pointer(torch.float32)
    return KernelCall(
        join,
        (kind.q[0], kind.q[1] // _JOINED, 1),
        {
            "out_ptr": Pointer(kind.dtype),
            "lse_ptr": wide if kind.wants_lse else None,
            "partial_ptr": wide,
            "sums_ptr": wide,
            "splits": splits,
            "stride_ob": out_strides[0],
            "stride_oh": out_strides[1],
        },
        {
            "HEADS": kind.q[1],
            "REAL": _JOINED,
            "VALUES": MLA_VALUES,
            "PARTS": _PARTS,
            "EARLY": True,
        },
        {"num_warps": 4, "launch_pdl": 1},
    )


def attend(q: Tensor, k: Tensor, out: Tensor, lse: Tensor | None, kind: Kind) -> None:
    """Compute attention into `out` and `lse`; see `plan.attend`."""
    _prepare(kind, (out.stride(0), out.stride(1)))(q, k, out, lse)


@lru_cache(maxsize=4096)
def _prepare(kind: Kind, out_strides: tuple[int, int]) -> Run:
    batch, heads, keys = kind.q[0], kind.q[1], kind.k[2]
    of_q, of_k = kind.q_strides, kind.k_strides
    problem = Latent(
        batch, heads, keys, (of_q[0], of_q[1]), (of_k[0], of_k[2]), out_strides, kind.dtype,
        kind.rules.scale, kind.wants_lse,
    )  # fmt: skip
    programs = batch * heads // HEADS
    processors = target_of(kind.device).processors
    splits = parts(keys, split(programs, cdiv(keys, HEADS), processors, 2))
    decode = plan_run(problem, splits, kind.device)
    if splits == 1:
        return decode
    combine = prepare(join_call(kind, splits, out_strides), kind.device)

    def run(q: Tensor, k: Tensor, out: Tensor, lse: Tensor | None) -> tuple[Tensor, ...]:
        combine(out, *(() if lse is None else (lse,)), *decode(q, k, out, lse))
        return ()

    return run
