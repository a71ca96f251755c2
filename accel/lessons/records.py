"""Describe what was measured on this machine and what programs used, and decode and encode the
files; see `gpudeck.accel.runtime.state_files`.

The module needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from gpudeck.language.text import Listed, Number, Text, Value, joined, phrase

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
    """The description that problems share for which this measurement counts."""
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
    tie: float = TIE
    """The lead that another backend needs to take the place of the predicted one."""

    @property
    def fastest(self) -> str:
        """Return the fastest backend, or the predicted one if that is as good as level."""
        return min(self.costs, key=self.costs.__getitem__)

    @property
    def costs(self) -> dict[str, float]:
        """Return the microseconds by which backends are compared: those of the predicted one are a
        little less, since so few calls cannot tell a few percent."""
        us = self.microseconds
        return {name: t / self.tie if name == self.predicted else t for name, t in us.items()}

    @property
    def gain(self) -> float | None:
        """Return how many times as fast as the predicted backend the fastest one was."""
        before = self.microseconds.get(self.predicted)
        return None if before is None else before / self.microseconds[self.fastest]

    @property
    def tflops(self) -> dict[str, float]:
        """Return the TFLOP/s of each backend."""
        return {name: self.flops / us / 1e6 for name, us in self.microseconds.items()}

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the key under which a newer measurement replaces this one."""
        return self.uuid, self.software, self.direction, self.spot

    def reason(self, ranked: Sequence[str]) -> Text:
        """Return why the first of some backends was chosen, beside the others."""
        return phrase(
            "measured fastest here on {date} UTC, {figures}",
            date=time.strftime("%Y-%m-%d %H:%M", time.gmtime(self.at)),
            figures=_list_figures(self.microseconds, ranked, ".4g", "us"),
        )


def explain_rates(
    gpus: Sequence[str], rates: Mapping[str, float], ranked: Sequence[str], measured: bool
) -> Text:
    """Return why the first of some backends was chosen, by TFLOP/s that a table holds.

    Args:
        measured: whether at this very shape; else they are predicted from others.
    """
    shown: dict[str, Value] = {
        "devices": Listed(tuple(gpus)), "figures": _list_figures(rates, ranked, ".0f", "TFLOP/s")
    }  # fmt: skip
    if measured:
        return phrase("measured fastest on {devices}, {figures}", **shown)
    return phrase("predicted from measurements on {devices}, {figures}", **shown)


def _list_figures(
    figures: Mapping[str, float], ranked: Sequence[str], form: str, unit: str
) -> Text | Listed:
    """Return the figure of the first backend, then the names and figures of the others."""
    first, *behind = ranked
    others = (joined((name, Number(figures[name], form)), " ") for name in behind)
    return joined((Number(figures[first], form, unit), *others))


_Shape = TypeVar("_Shape")


class Used(msgspec.Struct, Generic[_Shape], frozen=True):
    """Tell how often programs computed an operation at a spot of a GPU."""

    gpu: str
    uuid: str
    spot: str
    text: str
    """The shape in words."""
    shape: _Shape
    """The first problem that was met at the spot, so that it can be posed again."""
    forward: int
    """Calls."""
    backward: int
    at: float
    """Seconds since the epoch, of the last call that was counted."""


class _Learned(msgspec.Struct):
    format: int
    measured: list[Measured]


class _Counted(msgspec.Struct, Generic[_Shape]):
    format: int
    used: list[Used[_Shape]]


def decode_learned(contents: bytes) -> list[Measured]:
    """Return the measurements that a file holds; an empty one holds none.

    Raises:
        ValueError: if it is not such a file.
    """
    return _decode(contents, _Learned).measured if contents else []


def encode_learned(measured: list[Measured]) -> bytes:
    """Return the contents of a file."""
    return msgspec.json.encode(_Learned(FORMAT, measured))


def decode_used(contents: bytes, shape: type[_Shape]) -> list[Used[_Shape]]:
    """Return the shapes that a file holds; an empty one holds none.

    Raises:
        ValueError: if it is not such a file.
    """
    kind = _Counted[shape]  # type: ignore[valid-type]
    return _decode(contents, kind).used if contents else []


def encode_used(used: list[Used[_Shape]]) -> bytes:
    """Return the contents of a file."""
    return msgspec.json.encode(_Counted(FORMAT, used))


_File = TypeVar("_File", bound=msgspec.Struct)


def _decode(contents: bytes, kind: type[_File]) -> _File:
    try:
        held = msgspec.json.decode(contents, type=kind)
    except msgspec.DecodeError as e:  # also for wrong types
        raise ValueError(f"not a file of measurements: {e}") from e
    if (found := getattr(held, "format", None)) != FORMAT:
        raise ValueError(f"the format is {found}, not {FORMAT}")
    return held
