"""Run FlashAttention-4 (the package flash-attn-4) if it is installed.

Its kernels compile at their first use.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import (
    Backend,
    Gradients,
    align_rows,
    half_precision_on_ampere,
    head_size_up_to,
    no_bias,
    on_cuda,
    own_key_visible,
)
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.lessons.records import Direction
from gpudeck.language.text import Text, phrase

DISTRIBUTION = "flash-attn-4"
_SHARED = (
    "softmax_scale", "causal", "softcap", "window_size_left", "window_size_right",
    "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k",
)  # fmt: skip
_NEEDED = {
    "_flash_attn_fwd": (*_SHARED, "return_lse", "out"),
    "_flash_attn_bwd": (*_SHARED, "deterministic"),
}


class FlashAttention4(Backend):
    """FlashAttention-4, which works on [B,S,H,D] and aligns bottom-right."""

    layout = "bshd"

    def missing(self) -> Text | None:
        """Return that the package is not there, or None."""
        if find_version():
            return None
        return phrase("is not installed ({command})", command="pip install --pre flash-attn-4")

    def load(self) -> None:
        """Import the package, and check that its functions take what is passed here.

        Another flash-attn, installed later, may have written its own modules over these.
        """
        for name, needed in _NEEDED.items():
            taken = inspect.signature(getattr(_interface(), name)).parameters
            if missing := [argument for argument in needed if argument not in taken]:
                raise ImportError(
                    f"{DISTRIBUTION} {find_version()}: {name} has no argument {missing[0]}"
                )

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        yield from half_precision_on_ampere(p)
        yield from head_size_up_to(256, p)
        yield from no_bias(p)
        yield from own_key_visible(p)
        if p.capability is not None and p.capability[0] != 9:
            yield phrase("has been tried here on compute capability 9.0 only")
        if p.blind or (p.windowed and p.seq_q > p.seq_k):
            yield phrase("leaves queries that see no key to others here")
        # 4.0.0b36 answered at random at 40, 72 and 80, and rightly at 64, 96, 128, 192 and 256.
        if direction == "backward" and p.head_dim % 32:
            yield phrase(
                "gives wrong gradients at head sizes such as {n}, no multiple of 32", n=p.head_dim
            )

    def takes_narrow(self, p: Problem) -> bool:
        """Return True for the sizes of MLA, for which it has kernels."""
        return (p.head_dim, p.value_dim) == (192, 128)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, with head sizes padded to a multiple of 8.

        The kernel writes into the layout of q, so that the output need not be copied.
        """
        wide = align_rows(x)
        out, lse, *_ = _interface()._flash_attn_fwd(
            *_rows(x, *wide[:3]),
            **_rules(x, problem),
            return_lse=True,
            out=_rows(x, torch.empty_like(wide.q[..., : wide.v.shape[3]]))[0],
        )
        lse = lse if x.ragged is None else lse.unsqueeze(0)
        return _heads(x, out)[..., : problem.out_dim], lse

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass, deterministically if requested."""
        q, k, v = align_rows(x)[:3]
        d, o, _ = align_rows(Inputs(dout, out, out))[:3]
        grads = _interface()._flash_attn_bwd(
            *_rows(x, q, k, v, o, d),
            lse if x.ragged is None else lse.squeeze(0),
            **_rules(x, problem),
            deterministic=problem.deterministic,
        )
        sizes = (problem.head_dim, problem.head_dim, problem.out_dim)
        return Gradients(*(_heads(x, g)[..., :size] for g, size in zip(grads, sizes, strict=False)))


def _rows(x: Inputs, *tensors: Tensor) -> list[Tensor]:
    """Return tensors [B,H,S,D] as the package takes them: [B,S,H,D], or [T,H,D] if ragged."""
    rows = [t.transpose(1, 2) for t in tensors]
    return rows if x.ragged is None else [t.squeeze(0) for t in rows]


def _heads(x: Inputs, rows: Tensor) -> Tensor:
    """Return a result of the package as [B,H,S,D]."""
    return (rows if x.ragged is None else rows.unsqueeze(0)).transpose(1, 2)


def _rules(x: Inputs, p: Problem) -> dict[str, Any]:
    """Return the scale, the softcap, which keys are visible, and where sequences begin."""
    causal = p.left is None and p.right == 0
    rules: dict[str, Any] = {"softmax_scale": p.scale, "causal": causal, "softcap": p.softcap}
    if not causal:
        rules |= {"window_size_left": p.left, "window_size_right": p.right}
    if x.ragged is not None:
        rules |= {
            "cu_seqlens_q": x.ragged.starts_q, "cu_seqlens_k": x.ragged.starts_k,
            "max_seqlen_q": p.seq_q, "max_seqlen_k": p.seq_k,
        }  # fmt: skip
    return rules


@lru_cache(maxsize=1)
def find_version() -> str | None:
    """Return the version of the distribution, or None; importing it takes seconds.

    A module flash_attn.cute says nothing: flash-attn 2.8.3 ships one that does not work.
    """
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _interface() -> Any:
    return importlib.import_module("flash_attn.cute.interface")
