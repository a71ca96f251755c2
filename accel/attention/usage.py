"""Describe the shapes of attention that programs compute; see `accel.lessons.usage`."""

from __future__ import annotations

from accel.attention.problem import Problem, dtype_name
from accel.attention.records import Shape
from accel.attention.spot import spot
from accel.lessons.usage import Described, Usage


def _described(p: Problem) -> Described[Shape]:
    given = {name: getattr(p, name) for name in Shape.__struct_fields__ if name != "dtype"}
    shape = Shape(**given, dtype=dtype_name(p.dtype))
    return Described(p.device, spot(p), str(p).removesuffix(f" on {p.device}"), shape)


USAGE = Usage("attention", Shape, _described)
