"""Our own kernels. Triton and the kernels are imported at their first use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import util
from typing import Any

import torch
from torch import Tensor

from accel.attention.backends.base import (
    Direction,
    Gradients,
    half_precision_on_ampere,
    head_size_up_to,
    loadable_rows,
    no_bias,
    on_cuda,
    side_by_side,
    version,
)
from accel.attention.inputs import Inputs
from accel.attention.problem import Problem


class Hopper:
    """Warp-specialised kernels for compute capability 9.0, written in Gluon (`accel.attention.kernels.hopper`)."""

    name = "hopper"

    def refusal(self, problem: Problem, direction: Direction) -> str | None:
        """Why not, in words."""
        return "; ".join(self._rules(problem)) or None

    def _rules(self, p: Problem) -> Iterator[str]:
        yield from on_cuda(p)
        if p.capability is not None and p.capability != (9, 0):
            yield f"needs compute capability 9.0; this GPU has {version(p)}"
        yield from half_precision_on_ampere(p)
        yield from head_size_up_to(256, p)
        yield from no_bias(p)
        yield from _triton(p)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Head sizes are widened to a multiple of 8."""
        from accel.attention.kernels.hopper.forward import forward

        q, k, v = loadable_rows(x)[:3]
        out, lse = forward(q, k, v, **_asked(x, problem))
        return out if out.shape[3] == problem.head_dim else out[..., : problem.head_dim], lse

    def backward(self, dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem) -> Gradients:
        """Deterministic where asked."""
        from accel.attention.kernels.hopper.backward import backward

        p = problem
        q, k, v = loadable_rows(x)[:3]
        d, o = loadable_rows(Inputs(dout, out, out))[:2]
        with torch.cuda.device(p.device):
            grads = backward(d, q, k, v, o, lse, **_asked(x, p), deterministic=p.deterministic)
        return Gradients(*(g[..., : p.head_dim] for g in grads))


class Portable:
    """Kernels in Triton for compute capability 8.0 to 12.0 (`accel.attention.kernels.portable`): they also take masks and biases."""

    name = "triton"

    def refusal(self, problem: Problem, direction: Direction) -> str | None:
        """Why not, in words."""
        return "; ".join(self._rules(problem)) or None

    def _rules(self, p: Problem) -> Iterator[str]:
        yield from on_cuda(p)
        if p.dtype == torch.float64:
            yield "takes float16, bfloat16 and float32, not float64"
        if p.capability is not None and p.capability < (8, 0):
            yield f"needs compute capability 8.0 or newer; this GPU has {version(p)}"
        yield from head_size_up_to(256, p)
        yield from _triton(p)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Any head size up to 256; float32 without tensor cores, in full precision."""
        from accel.attention.kernels.portable.forward import forward

        q, k, v = (side_by_side(t) for t in x[:3])
        return forward(q, k, v, **_asked(x, problem), bias=_expanded(x))

    def backward(self, dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem) -> Gradients:
        """Without atomic additions, so the same every time."""
        from accel.attention.kernels.portable.backward import backward

        p = problem
        d, q, k, v, o = (side_by_side(t) for t in (dout, x.q, x.k, x.v, out))
        bias = x.bias
        if bias is not None and p.bias_grad and any(n > 1 and step == 0 for n, step in zip(bias.shape, bias.stride(), strict=True)):
            x = x._replace(bias=bias.contiguous())  # the kernel would sum over what the caller expanded, who wants each copy's gradient
        dq, dk, dv, dbias = backward(
            d, q, k, v, o, lse, **_asked(x, p), bias=_expanded(x), bias_grad=p.bias_grad, deterministic=p.deterministic
        )  # fmt: skip
        return Gradients(dq, dk, dv, None if dbias is None or x.bias is None else dbias.sum_to_size(x.bias.shape))


def _asked(x: Inputs, p: Problem) -> dict[str, Any]:
    """What every kernel of ours is told beside its tensors."""
    return {"left": p.left, "right": p.right, "scale": p.scale, "softcap": p.softcap, "ragged": x.ragged}


def _expanded(x: Inputs) -> Tensor | None:
    return None if x.bias is None else x.bias.expand(*x.q.shape[:3], x.k.shape[2])


def _triton(p: Problem) -> Iterator[str]:
    if not _installed():
        yield "needs the package triton, which comes with torch's CUDA builds"


@lru_cache(maxsize=1)
def _installed() -> bool:
    return util.find_spec("triton") is not None
