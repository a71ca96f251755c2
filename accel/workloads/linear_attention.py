"""Measure linear attention.

Run `python -P -m gpudeck.accel.workloads.linear_attention --kind=gdn ...`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpudeck.accel.result import Cell, Check, not_finite
from gpudeck.accel.workloads.harness import main, require
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.task import Task
from gpudeck.language.text import phrase

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gpudeck.accel.runtime.capability import ComputeDevice

CHECKED = 128
"""The tokens, of the first head, over which errors are measured."""
_PRODUCTS = {"values": 4.0, "corrections": 6.0, "both": 8.0}
"""Operations for each token and element of the state: of what is written, erased and read."""


def prepare(values: Values, device: ComputeDevice) -> Task:
    """Compute the forward pass from a state of zeros."""
    import torch

    from gpudeck.accel.primitives.linear_attention.api import explain_linear, linear_attention
    from gpudeck.accel.primitives.linear_attention.kinds import KINDS

    kind, dtype = values.text("kind"), getattr(torch, values.text("dtype"))
    batch, tokens, heads, size = (
        values.integer(name) for name in ("batch", "tokens", "heads", "head_dim")
    )
    elements = float(batch * tokens * heads * size)
    require(device, 12 * elements * dtype.itemsize)
    given = _drawn(kind, (batch, tokens, heads, size), dtype, device.torch_device)
    asked: dict[str, Any] = {"kind": kind, "backend": values.text("backend"), **_rest(given)}
    choice = explain_linear(given["q"], given["k"], given["v"], **asked)

    def call() -> Tensor:
        return linear_attention(given["q"], given["k"], given["v"], **asked).out

    flops = _PRODUCTS[KINDS[kind].rule.writes] * elements * size
    bytes_ = sum(float(t.nbytes) for t in given.values()) + elements * dtype.itemsize
    cell = Cell(
        batch, heads, heads, tokens, size, causal=True, dtype=values.text("dtype"),
        direction="forward", contender=values.text("backend"), flops=flops, moved=bytes_,
        operation="linear_attention",
        sizes=phrase(
            "{kind}, batch {n}, {tokens} tokens, {heads} heads of {size}",
            kind=kind, n=batch, tokens=tokens, heads=heads, size=size,
        ),
        form=kind,
    )  # fmt: skip
    return Task(
        choice.backend, choice.reason, call, lambda: compare(call(), kind, given), flops, cell=cell
    )


def compare(out: Tensor, kind: str, given: dict[str, Tensor]) -> tuple[Check, ...]:
    """Check the first tokens of the first head against the recurrence in float64.

    The bound is twice the error of the recurrence in the inputs' own dtype, and 1e-4.
    """
    import torch

    from gpudeck.accel.primitives.linear_attention.api import operands
    from gpudeck.accel.primitives.linear_attention.reference import recurrence

    part = {name: x[:1, :CHECKED, :1] for name, x in given.items()}
    decay, beta, a, b = (part.get(name) for name in ("decay", "beta", "a", "b"))
    problem = operands(part["q"], part["k"], part["v"], kind, decay, beta, a, b, None, None, None)
    exact = recurrence(problem.to(torch.float64))[0]
    plain = recurrence(problem.to(out.dtype))[0]
    got = out[:1, :CHECKED, :1].double()
    if broken := int((~torch.isfinite(out)).sum()):
        return (not_finite(broken / out.numel()),)
    size, error, allowed = (float(t.norm()) for t in (exact, got - exact, plain.double() - exact))
    return (Check(phrase("relative error"), error / size, 2 * allowed / size + 1e-4),)


def _rest(given: dict[str, Tensor]) -> dict[str, Any]:
    return {name: x for name, x in given.items() if name not in ("q", "k", "v")}


def _drawn(
    kind: str, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Draw inputs as they are in models: keys of length 1, decays of a few percent a token."""
    import torch
    from torch.nn import functional

    from gpudeck.accel.primitives.linear_attention.kinds import KINDS

    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, device=device)

    found = {"q": drawn(*shape), "k": functional.normalize(drawn(*shape), dim=-1)}
    found["v"] = drawn(*shape)
    if KINDS[kind].decay == "head":
        found["decay"] = -functional.softplus(drawn(*shape[:3]) - 3)
    elif kind == "rwkv7":
        found["decay"] = -0.606531 * drawn(*shape).sigmoid()
    elif KINDS[kind].decay == "channel":
        found["decay"] = -functional.softplus(drawn(*shape) - 3)
    if "beta" in KINDS[kind].needs:
        found["beta"] = drawn(*shape[:3]).sigmoid()
    if kind == "rwkv7":
        erased = functional.normalize(drawn(*shape), dim=-1)
        found |= {"a": -erased, "b": erased * drawn(*shape).sigmoid()}
    return {name: x if name == "decay" else x.to(dtype) for name, x in found.items()}


if __name__ == "__main__":
    sys.exit(main("linear_attention", prepare))
