"""Make the functions that a candidate is timed beside; they run in processes of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from gpudeck.accel.search.verdict import Source
from gpudeck.accel.search.worker import load


def compiled(place: str, entry: str, mode: str) -> Callable[..., Tensor]:
    """Return what torch.compile makes of a function."""
    importlib.import_module("torch._inductor.compile_fx")  # now, while other processes start too
    function = load(Source(place, entry))
    made: Callable[..., Tensor] = torch.compile(function, mode=mode, dynamic=False)
    return made


def copies(place: str, entry: str) -> Callable[..., Tensor]:
    """Return a function that computes in its first call only: windows then hold copies alone."""
    function = load(Source(place, entry))
    kept: list[Tensor] = []

    def call(*inputs: Tensor) -> Tensor:
        if not kept:
            kept.append(function(*inputs))
        return kept[0]

    return call
