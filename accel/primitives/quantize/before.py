"""Say what a matrix passes through before it is rounded: a norm of its rows, or an activation.

The kernels that round apply it to what they load, so that its result is never written in 16 bits,
nor rounded to them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.quantize.fp8 import by_kernels

NORMS = ("layer", "rms")
ACTIVATIONS = ("gelu", "swiglu")


@dataclass(frozen=True)
class Before:
    """Hold a function of a matrix [rows, columns] and its parameters."""

    kind: str = "none"
    """`none`, one of NORMS or of ACTIVATIONS: `gelu` is tanh's approximation, `swiglu` silu of the
    left half of the columns times the right half."""
    gain: Tensor | None = None
    """[columns]: a norm's factors."""
    shift: Tensor | None = None
    """[columns]: what a norm adds."""
    eps: float = 0.0
    mean: Tensor | None = None
    """float32 [rows], of `layer`; see `with_statistics`."""
    rstd: Tensor | None = None
    """float32 [rows]: the inverse of each row's deviation."""

    def columns(self, x: Tensor) -> int:
        """Return the columns of the result for x."""
        return x.shape[1] // 2 if self.kind == "swiglu" else x.shape[1]


NOTHING = Before()


def with_statistics(before: Before, x: Tensor) -> Before:
    """Return a norm with the means and inverse deviations of the rows of x."""
    if before.kind not in NORMS:
        return before
    if by_kernels(x):
        from gpudeck.accel.primitives.quantize.fused import statistics

        mean, rstd = statistics(x, before.kind == "layer", before.eps)
        return replace(before, mean=mean, rstd=rstd)
    wide = x.float()
    mean = wide.mean(1) if before.kind == "layer" else None
    centred = wide if mean is None else wide - mean[:, None]
    return replace(before, mean=mean, rstd=torch.rsqrt(centred.square().mean(1) + before.eps))


def apply(before: Before, x: Tensor) -> Tensor:
    """Compute the result in torch; float32 unless there is nothing to compute."""
    if before.kind == "none":
        return x
    wide = x.float()
    if before.kind == "gelu":
        return functional.gelu(wide, approximate="tanh")
    if before.kind == "swiglu":
        gate, up = wide.chunk(2, 1)
        return functional.silu(gate) * up
    out = _norm(before, wide)
    assert before.gain is not None
    out = out * before.gain.float()
    return out if before.shift is None else out + before.shift.float()


def gradients(before: Before, dout: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, of the gain and of the shift; empty where there is none."""
    nothing = x.new_empty(0)
    if before.kind in ACTIVATIONS:
        return _of_activation(before, dout, x), nothing, nothing
    gain, shift = before.gain, before.shift
    assert gain is not None and before.rstd is not None
    if by_kernels(x):
        rstd, size, own = before.rstd[:, None], [x.shape[1]], gain.to(x.dtype)
        if before.kind == "rms":
            dx, dgain = torch.ops.aten._fused_rms_norm_backward(
                dout, x, size, rstd, own, [True, True]
            )
            return dx, dgain.to(gain.dtype), nothing
        assert before.mean is not None
        added = None if shift is None else shift.to(x.dtype)
        dx, dgain, dshift = torch.ops.aten.native_layer_norm_backward(
            dout, x, size, before.mean[:, None], rstd, own, added, [True, True, shift is not None]
        )
        return dx, dgain.to(gain.dtype), nothing if shift is None else dshift.to(gain.dtype)
    wide, out = dout.float(), _norm(before, x.float())
    scaled = wide * gain.float()
    inner = scaled - out * (scaled * out).mean(1, keepdim=True)
    if before.kind == "layer":
        inner = inner - scaled.mean(1, keepdim=True)
    dx = (inner * before.rstd[:, None]).to(x.dtype)
    dshift = nothing if shift is None else wide.sum(0).to(shift.dtype)
    return dx, (wide * out).sum(0).to(gain.dtype), dshift


def _norm(before: Before, x: Tensor) -> Tensor:
    """Return the rows of x with the mean 0 (or as it is) and the deviation 1."""
    assert before.rstd is not None
    centred = x if before.mean is None else x - before.mean[:, None]
    return centred * before.rstd[:, None]


def _of_activation(before: Before, dout: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x."""
    if by_kernels(x):
        from gpudeck.accel.primitives.quantize.fused import activation_gradient

        return activation_gradient(before, dout, x)
    wide, given = dout.float(), x.float()
    if before.kind == "gelu":
        out: Tensor = torch.ops.aten.gelu_backward(wide, given, approximate="tanh")
        return out.to(x.dtype)
    gate, up = given.chunk(2, 1)
    dgate = torch.ops.aten.silu_backward(wide * up, gate)
    return torch.cat((dgate, wide * functional.silu(gate)), 1).to(x.dtype)
