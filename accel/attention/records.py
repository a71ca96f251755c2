"""Describe the shapes of attention that a user's programs computed; the module needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from accel.lessons.records import FORMAT, decoded
from accel.runtime.state_folder import state_folder


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


class Used(msgspec.Struct, frozen=True):
    """Tell how often programs computed attention at a spot of a GPU."""

    gpu: str
    uuid: str
    spot: str
    text: str
    """The shape in words."""
    shape: Shape
    forward: int
    """Calls."""
    backward: int
    at: float
    """Seconds since the epoch, of the last call that was counted."""


class _Counted(msgspec.Struct):
    format: int
    used: list[Used]


def used_file() -> Path:
    """Return the path of what programs used, in the state folder."""
    return state_folder() / "attention-used.json"


def decode_used(contents: bytes) -> list[Used]:
    """Return the shapes that a file holds; an empty one holds none.

    Raises:
        ValueError: if it is not such a file.
    """
    return decoded(contents, _Counted).used if contents else []


def encode_used(used: list[Used]) -> bytes:
    """Return the contents of a file."""
    return msgspec.json.encode(_Counted(FORMAT, used))
