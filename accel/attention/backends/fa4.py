"""Run FlashAttention-4 (the package flash-attn-4) if it is installed.

Its kernels compile at their first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accel.attention.backends.base import (
    Backend,
    Direction,
    Gradients,
    half_precision_on_ampere,
    head_size_up_to,
    loadable_rows,
    no_bias,
    on_cuda,
)
from accel.attention.inputs import Inputs
from accel.attention.problem import Problem


class FlashAttention4(Backend):
    """FlashAttention-4, which works on [B,S,H,D] and aligns bottom-right."""

    name = "fa4"

    layout = "bshd"

    def refusal(self, problem: Problem, direction: Direction) -> str | None:
        """Return why it cannot compute the pass, or None; the package is looked up last."""
        if (refusal := super().refusal(problem, direction)) is not None:
            return refusal
        return None if installed() else "is not installed (pip install --pre flash-attn-4)"

    def load(self) -> None:
        """Import the package and what it needs."""
        _interface()

    def rules(self, p: Problem, direction: Direction) -> Iterator[str]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        yield from half_precision_on_ampere(p)
        yield from head_size_up_to(256, p)
        yield from no_bias(p)
        if p.capability is not None and p.capability[0] != 9:
            yield "has been tried here on compute capability 9.0 only"
        if p.ragged:
            yield "takes no ragged batches here"
        if p.blind or p.windowed:
            yield "leaves queries that see no key, and windows, to others here"
        if p.softcap and direction == "backward":
            yield "takes no softcap in the backward pass here"
        # 4.0.0b36 answered at random at 40, 72 and 80, and rightly at 64, 96, 128, 192 and 256.
        if direction == "backward" and p.head_dim % 32:
            yield f"gives wrong gradients at head sizes such as {p.head_dim}, no multiple of 32"

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, with head sizes padded to a multiple of 8.

        The kernel writes into the layout of q, so that the output need not be copied.
        """
        wide = loadable_rows(x)
        q, k, v = (t.transpose(1, 2) for t in wide[:3])
        out, lse, *_ = _interface()._flash_attn_fwd(
            q,
            k,
            v,
            softmax_scale=problem.scale,
            causal=problem.right == 0,
            softcap=problem.softcap or None,
            return_lse=True,
            out=torch.empty_like(wide.q).transpose(1, 2),
        )
        return out.transpose(1, 2)[..., : problem.head_dim], lse

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
        q, k, v = (t.transpose(1, 2) for t in loadable_rows(x)[:3])
        d, o, _ = (t.transpose(1, 2) for t in loadable_rows(Inputs(dout, out, out))[:3])
        grads = _interface()._flash_attn_bwd(
            q,
            k,
            v,
            o,
            d,
            lse,
            softmax_scale=problem.scale,
            causal=problem.right == 0,
            deterministic=problem.deterministic,
        )
        return Gradients(*(g.transpose(1, 2)[..., : problem.head_dim] for g in grads[:3]))


@lru_cache(maxsize=1)
def installed() -> bool:
    """Return True if the package is there; importing it takes seconds, and `load` does that."""
    package = util.find_spec("flash_attn")
    # The search looks for a folder: to find a submodule, Python would import the package, which may
    # be an older and broken flash-attn.
    return package is not None and any(
        (Path(place) / "cute").is_dir() for place in package.submodule_search_locations or ()
    )


@lru_cache(maxsize=1)
def _interface() -> Any:
    return importlib.import_module("flash_attn.cute.interface")
