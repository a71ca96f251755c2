"""Count products, and measure them at calls whose shapes come back; see `gpudeck.accel.lessons`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache, partial

import torch

from gpudeck.accel.lessons import measuring, usage
from gpudeck.accel.primitives.gemm.backends import BACKENDS
from gpudeck.accel.primitives.gemm.dispatch import LEARNED, GemmChoice, choose, contenders
from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.gemm.problem import Problem
from gpudeck.accel.primitives.gemm.records import Shape

TIE = 1.005
"""The lead that takes the place of the predicted backend: products of one shape vary less than
attention."""
_IN_CACHE = 2.0
"""Products that move less than this multiple of the last-level cache are measured without it."""


def _describe(p: Problem) -> usage.Described[Shape]:
    given = {name: getattr(p, name) for name in Shape.__struct_fields__}
    named = {
        name: str(of).removeprefix("torch.")
        for name, of in given.items()
        if isinstance(of, torch.dtype)
    }
    return usage.Described(p.device, p.spot, str(p), Shape(**{**given, **named}))


USAGE = usage.Usage("gemm", Shape, _describe)


def choose_learning(p: Problem, operands: Callable[[], Operands]) -> GemmChoice:
    """Return the choice of `auto` for a call, which may be measured now on its operands."""
    choice = choose(p)
    if (
        p.device.type not in usage.DEVICES
        or torch.compiler.is_compiling()
        or p.deterministic
        or p.flops == 0
    ):
        return choice
    use = USAGE.at(_spot(p), p)
    USAGE.count_call(use)
    known = choice.basis == "measured here"  # tables hold another card, perhaps of other clocks
    names = usage.rivals(use, "forward", p.device, known, LEARNED, partial(contenders, p))
    if not names:
        return choice
    try:
        measure(operands(), choice, names)
    except torch.OutOfMemoryError:
        warnings.warn(f"gemm is not measured at {p}: no memory of the GPU is left", stacklevel=2)
    return choose(p)


def measure(x: Operands, choice: GemmChoice, names: tuple[str, ...]) -> None:
    """Time the named backends in turn, record the result, and let `auto` go by it.

    Raises:
        RuntimeError: if all of them fail.
    """
    p = x.problem
    subject = measuring.Subject(
        p.device, "forward", p.spot, str(p), p.flops, choice.backend, TIE
    )  # fmt: skip
    cold = p.moved < _IN_CACHE * _cache(p.device)
    measuring.measure(
        LEARNED, subject, lambda name: lambda: BACKENDS[name].run(x), names, cold=cold
    )


@lru_cache(maxsize=4096)
def _spot(p: Problem) -> str:
    return f"{p.device} {p.spot}"


@lru_cache(maxsize=16)
def _cache(device: torch.device) -> int:
    """Return the bytes of a GPU's last-level cache, 0 for a CPU's."""
    if device.type != "cuda":
        return 0
    return torch.cuda.get_device_properties(device).L2_cache_size
