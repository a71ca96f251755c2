"""Describe the products that a user's programs computed; the module needs no torch."""

from __future__ import annotations

from typing import Literal

import msgspec


class Shape(msgspec.Struct, frozen=True):
    """The first problem that was met at a spot; the fields are those of `Problem`."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str
    scaling: Literal["none", "outer", "block"]
    steps: tuple[int, int]
    bias: bool
    activation: str
    a_along: bool
    b_along: bool
    boxes: bool
    tile: int | None
