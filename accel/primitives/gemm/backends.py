"""List the implementations of products by name: what each can compute, and how it is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import util

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm import cublas, plain
from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.gemm.problem import FP8, Problem
from gpudeck.accel.primitives.gemm.reference import reference
from gpudeck.language.text import Text, phrase

_OWN_TILES = phrase("has tile sizes of its own")


@dataclass(frozen=True)
class Backend:
    """Name an implementation."""

    name: str
    refusal: Callable[[Problem], Text | None]
    """Returns why it cannot compute a problem, as the end of a sentence that begins with "it"."""
    run: Callable[[Operands], Tensor]
    """Returns [batch, m, n] in the problem's out_dtype."""
    automatic: bool = True
    """Whether `auto` may choose it."""


def _ours(module: str, name: str) -> Backend:
    """Return a backend whose module needs Triton; it is imported when it is asked for."""
    path = f"gpudeck.accel.primitives.gemm.{module}"

    def refusal(p: Problem) -> Text | None:
        if util.find_spec("triton") is None:
            return phrase("needs the package triton")
        if p.tile is not None and name != "triton":
            return _OWN_TILES
        why: Text | None = importlib.import_module(path).refusal(p)
        return why

    def run(x: Operands) -> Tensor:
        out: Tensor = getattr(importlib.import_module(path), module)(x)
        return out

    return Backend(name, refusal, run)


def _library(p: Problem) -> Text | None:
    return _OWN_TILES if p.tile is not None else cublas.refusal(p)


def _in_torch(x: Operands) -> Tensor:
    """Compute in the operands' type; FP8 is emulated in float32."""
    dtype = torch.float32 if x.problem.dtype in FP8 else x.problem.dtype
    return plain.product(x, dtype).to(x.problem.out_dtype)


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("cublas", _library, cublas.cublas),
        _ours("hopper", "hopper"),
        _ours("portable", "triton"),
        Backend("torch", lambda _: None, _in_torch),
        Backend("reference", lambda _: None, lambda x: reference(x).to(x.problem.out_dtype), False),
    )
}
