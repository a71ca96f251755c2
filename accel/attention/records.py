"""What is known of the attention of a user's programs: the shapes they used, and what was measured.

The records of two files in the state folder. The module needs no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from accel.runtime.state_folder import state_folder

Direction = Literal["forward", "backward"]
FORMAT = 1
TIE = 1.02
"""Backends whose times differ by less than this factor are level."""


class Measured(msgspec.Struct, frozen=True):
    """Tell how fast each backend was at one shape, in one direction."""

    gpu: str
    uuid: str
    software: str
    """The versions, such as "torch 2.11.0, cudnn 9.19.0, triton 3.6.0, driver 580.159.04"."""
    direction: Direction
    spot: str
    """See `accel.attention.spot`."""
    shape: str
    """The problem that was measured, as text."""
    flops: float
    """The operations of the pass."""
    predicted: str
    """The backend that `auto` had chosen before."""
    microseconds: dict[str, float]
    """The median of each backend's calls."""
    calls: int
    """The number of timed calls, of all backends together."""
    at: float
    """Seconds since the epoch."""

    @property
    def fastest(self) -> str:
        """Return the fastest backend, or the predicted one if that is as good as level."""
        return min(self.costs, key=self.costs.__getitem__)

    @property
    def costs(self) -> dict[str, float]:
        """Return the microseconds by which backends are compared: those of the predicted one are a
        little less, since so few calls cannot tell two percent."""
        us = self.microseconds
        return {name: t / TIE if name == self.predicted else t for name, t in us.items()}

    @property
    def gain(self) -> float | None:
        """Return how many times as fast as the predicted backend the fastest one was."""
        before = self.microseconds.get(self.predicted)
        return None if before is None else before / self.microseconds[self.fastest]

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the key under which a newer measurement replaces this one."""
        return self.uuid, self.software, self.direction, self.spot


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


class _Learned(msgspec.Struct):
    format: int
    measured: list[Measured]


class _Counted(msgspec.Struct):
    format: int
    used: list[Used]


def learned_file() -> Path:
    """Return the path of what was measured, in the state folder."""
    return state_folder() / "attention-learned.json"


def used_file() -> Path:
    """Return the path of what programs used, in the state folder."""
    return state_folder() / "attention-used.json"


def decode_learned(contents: bytes) -> list[Measured]:
    """Return the measurements that a file holds; an empty one holds none.

    Raises:
        ValueError: if it is not such a file.
    """
    return _decoded(contents, _Learned).measured if contents else []


def decode_used(contents: bytes) -> list[Used]:
    """Return the shapes that a file holds; an empty one holds none.

    Raises:
        ValueError: if it is not such a file.
    """
    return _decoded(contents, _Counted).used if contents else []


def encode_learned(measured: list[Measured]) -> bytes:
    """Return the contents of a file."""
    return msgspec.json.encode(_Learned(FORMAT, measured))


def encode_used(used: list[Used]) -> bytes:
    """Return the contents of a file."""
    return msgspec.json.encode(_Counted(FORMAT, used))


_File = TypeVar("_File", _Learned, _Counted)


def _decoded(contents: bytes, kind: type[_File]) -> _File:
    try:
        held = msgspec.json.decode(contents, type=kind)
    except msgspec.DecodeError as e:  # also for wrong types
        raise ValueError(f"not a file of measurements: {e}") from e
    if held.format != FORMAT:
        raise ValueError(f"the format is {held.format}, not {FORMAT}")
    return held
