"""Measure a linear layer in FP8.

Run `python -P -m gpudeck.accel.workloads.precision --rows=16384 ...`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudeck.accel.result import Cell, Check, not_finite
from gpudeck.accel.workloads.harness import main, require
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.task import Task
from gpudeck.language.text import join_texts, phrase

if TYPE_CHECKING:
    from torch import Tensor

    from gpudeck.accel.runtime.capability import ComputeDevice

BOUND = 0.06
"""Of the relative error: rounding a factor to E4M3 changes it by up to 1/16, and by less in sum."""
CHECKED = 64
"""The rows of the result that are checked."""


def prepare(values: Values, device: ComputeDevice) -> Task:
    """Compute a layer and its gradients, the rounding of all operands included."""
    import torch
    from torch import nn

    from gpudeck.accel.precision.conversion import convert
    from gpudeck.accel.precision.history import update_scales
    from gpudeck.accel.primitives.gemm.dispatch import EMULATED
    from gpudeck.accel.primitives.quantize.fp8 import native

    rows, inputs, outputs = (values.integer(name) for name in ("rows", "inputs", "outputs"))
    recipe = values.text("recipe")
    dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
    require(device, 4.0 * dtype.itemsize * (rows * (inputs + outputs) + inputs * outputs))
    plain = nn.Linear(inputs, outputs, bias=False, device=device.torch_device, dtype=dtype)
    model = nn.Sequential(plain)
    if recipe != "plain":
        convert(model, recipe)  # type: ignore[arg-type]
    x = torch.randn(rows, inputs, dtype=dtype, device=device.torch_device, requires_grad=True)
    dout = torch.randn(rows, outputs, dtype=dtype, device=device.torch_device)

    def call() -> tuple[Tensor, ...]:
        with torch.enable_grad():
            out = model(x)
            return (out.detach(), *torch.autograd.grad(out, [x, plain.weight], dout))

    call()
    update_scales(model)
    name = "bfloat16" if recipe == "plain" else "fp8"
    if recipe == "plain" and dtype == torch.float32:
        name = "float32"
    reason = phrase("not converted")
    if recipe != "plain":
        reason = phrase("recipe {name}", name=recipe)
        if not native(plain.weight.device):
            reason = join_texts((reason, EMULATED))
    weight = plain.weight.detach()
    # each of x, the weight, the result and their gradients once
    moved = 2.0 * dtype.itemsize * (rows * (inputs + outputs) + inputs * outputs)
    cell = Cell(
        1, 1, 1, inputs, 0, causal=False, dtype=name, direction="both", contender=recipe,
        flops=6.0 * rows * inputs * outputs, moved=moved, operation="precision",
        sizes=phrase(
            "{n} rows, {inputs} to {outputs} features", n=rows, inputs=inputs, outputs=outputs
        ),
    )  # fmt: skip
    return Task(
        name, reason, call, lambda: compare(call(), x.detach(), weight, dout), cell.flops, cell=cell
    )


def compare(
    found: tuple[Tensor, ...], x: Tensor, weight: Tensor, dout: Tensor
) -> tuple[Check, ...]:
    """Check rows of the output and of both gradients against the float64 products."""
    import torch

    if broken := sum(int((~torch.isfinite(t)).sum()) for t in found):
        share = broken / sum(t.numel() for t in found)
        return (not_finite(share),)
    out, dx, dw = (t[:CHECKED].double() for t in found)
    exact = (
        x[:CHECKED].double() @ weight.double().t(),
        dout[:CHECKED].double() @ weight.double(),
        dout[:, :CHECKED].double().t() @ x.double(),
    )
    return tuple(
        Check(
            phrase("relative error of {name}", name=name),
            float((got - right).norm() / right.norm()),
            BOUND,
        )
        for name, got, right in zip(("out", "dx", "dw"), (out, dx, dw), exact, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main("precision", prepare))
