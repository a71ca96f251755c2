"""Run our kernels for compute capability 7.5, which are compiled on the user's machine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import (
    Backend,
    Gradients,
    align_rows,
    head_size_up_to,
    on_cuda,
)
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.kernels.turing.builds import (
    CAPABILITY,
    LARGEST_HEAD,
    LARGEST_HEAD_BACKWARD,
)
from gpudeck.accel.attention.problem import Problem, dtype_name
from gpudeck.accel.lessons.records import Direction
from gpudeck.accel.runtime.refusals import this_gpu_has
from gpudeck.language.text import Text, phrase


class Turing(Backend):
    """Kernels in CUDA C++ for the tensor cores of RTX 20, T4 and Titan RTX."""

    variants = frozenset({"lse_grad", "alibi"})

    def load(self) -> None:
        """Find the compiler."""
        from gpudeck.accel.runtime.nvrtc import library

        library()

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        if p.capability is not None and p.capability != CAPABILITY:
            needed = phrase("is for compute capability {version}", version="7.5")
            yield this_gpu_has(needed, p.capability)
        if p.dtype == torch.bfloat16:
            yield phrase(
                "takes float16, not bfloat16, for which compute capability {version} has no tensor"
                " cores: convert the model with .half(), or use torch.autocast with torch.float16",
                version="7.5",
            )
        elif p.dtype != torch.float16:
            yield phrase("takes float16, not {name}", name=dtype_name(p.dtype))
        limit = LARGEST_HEAD if direction == "forward" else LARGEST_HEAD_BACKWARD
        yield from head_size_up_to(limit, p)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, with head sizes padded to a multiple of 8."""
        from gpudeck.accel.attention.kernels.turing.passes import forward

        q, k, v = align_rows(x)[:3]
        out, lse = forward(
            q, k, v, problem.rules, ragged=x.ragged, bias=_expand(x), slopes=x.slopes
        )
        return out[..., : problem.head_dim], lse

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Run the backward pass without atomic additions, so that results are always the same."""
        from gpudeck.accel.attention.kernels.turing.passes import backward

        q, k, v = align_rows(x)[:3]
        d, o = align_rows(Inputs(dout, out, out))[:2]
        *grads, dbias = backward(
            d, q, k, v, o, lse, problem.rules, ragged=x.ragged, bias=_expand(x),
            bias_grad=problem.bias_grad, slopes=x.slopes, dlse=dlse,
        )  # fmt: skip
        dq, dk, dv = (g[..., : problem.head_dim] for g in grads)
        if dbias is None or x.bias is None:
            return Gradients(dq, dk, dv)
        return Gradients(dq, dk, dv, dbias.sum_to_size(x.bias.shape).to(x.bias.dtype))


def _expand(x: Inputs) -> Tensor | None:
    """Return the bias or mask in full size."""
    return None if x.bias is None else x.bias.expand(*x.q.shape[:3], x.k.shape[2])
