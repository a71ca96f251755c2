"""Describe the products that programs compute; see `gpudeck.accel.lessons.usage`."""

from __future__ import annotations

import torch

from gpudeck.accel.lessons.usage import Described, Usage
from gpudeck.accel.primitives.gemm.problem import Problem
from gpudeck.accel.primitives.gemm.records import Shape


def _described(p: Problem) -> Described[Shape]:
    given = {name: getattr(p, name) for name in Shape.__struct_fields__}
    named = {
        name: str(of).removeprefix("torch.")
        for name, of in given.items()
        if isinstance(of, torch.dtype)
    }
    return Described(p.device, p.spot, str(p), Shape(**{**given, **named}))


USAGE = Usage("gemm", Shape, _described)
