"""Describe the shapes of attention that a user's programs computed; the module needs no torch."""

from __future__ import annotations

from typing import Literal

import msgspec


class Shape(msgspec.Struct, frozen=True):
    """The first problem that was met at a spot, so that it can be posed again."""

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    dtype: str
    left: int | None
    right: int | None
    softcap: float
    bias: Literal["none", "bool", "float"]
    bias_grad: bool
    ragged: bool
