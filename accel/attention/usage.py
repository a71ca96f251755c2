"""Describe the shapes of attention that programs compute; see `gpudeck.accel.lessons.usage`."""

from __future__ import annotations

from gpudeck.accel.attention.problem import Problem, dtype_name
from gpudeck.accel.attention.records import Shape
from gpudeck.accel.attention.spot import spot
from gpudeck.accel.lessons.usage import Described, Usage


def _described(p: Problem) -> Described[Shape]:
    given = {name: getattr(p, name) for name in Shape.__struct_fields__ if name != "dtype"}
    shape = Shape(**given, dtype=dtype_name(p.dtype))
    return Described(p.device, spot(p), str(p).removesuffix(f" on {p.device}"), shape)


USAGE = Usage("attention", Shape, _described)
