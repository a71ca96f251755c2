"""Count which shapes programs compute, so that GPU Deck can measure them while a GPU is idle.

Only shapes and numbers of calls are kept, for each GPU, in one file of all processes of a user.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from accel.attention import learned
from accel.attention.problem import Bias, Problem, dtype_name
from accel.attention.spot import spot
from accel.runtime import shared_file
from accel.runtime.state_folder import state_folder

EVERY_S = 30.0
"""The least time between two writes of a process, which writes once more at its end."""
FORMAT = 1
MOST = 1024
"""The most shapes that are kept; those not used for the longest time are dropped first."""


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
    bias: Bias
    bias_grad: bool
    ragged: bool

    @classmethod
    def of(cls, p: Problem) -> Shape:
        """Return the shape of a problem."""
        given = {name: getattr(p, name) for name in cls.__struct_fields__ if name != "dtype"}
        return cls(**given, dtype=dtype_name(p.dtype))


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


class Count(Protocol):
    """What a process counts at a spot; see `accel.attention.lessons.Use`."""

    problem: Problem
    calls: int
    backward: int
    noted: tuple[int, int]


class _File(msgspec.Struct):
    format: int
    used: list[Used]


def file() -> Path:
    """Return the path of the file, in the state folder."""
    return state_folder() / "attention-used.json"


def read() -> list[Used]:
    """Return what was counted; nothing if the file is damaged, which the next write replaces.

    Raises:
        OSError: if the file cannot be read.
    """
    return _decoded(shared_file.read(file()))


def note(counts: Iterable[Count]) -> None:
    """Add what was counted since the last time to the file.

    Raises:
        OSError: if it cannot be written.
    """
    now = time.time()
    new = [_used(c, now) for c in counts if (c.calls, c.backward) != c.noted]
    if not new:
        return

    def merged(contents: bytes) -> bytes:
        held = {(u.uuid, u.spot): u for u in _decoded(contents)}
        for u in new:
            old = held.pop((u.uuid, u.spot), None)
            held[u.uuid, u.spot] = msgspec.structs.replace(
                u,
                forward=u.forward + (old.forward if old else 0),
                backward=u.backward + (old.backward if old else 0),
            )
        return msgspec.json.encode(_File(FORMAT, list(held.values())[-MOST:]))

    shared_file.change(file(), merged)
    for c in counts:
        c.noted = (c.calls, c.backward)


class Notes:
    """Write the counts of this process now and then, and at its end."""

    def __init__(self) -> None:
        self._last: float | None = None

    def write_if_due(self, counts: Iterable[Count]) -> None:
        """Write if the last time is long ago. A file that cannot be written is left alone: the
        counts serve the user's convenience only."""
        now = time.monotonic()
        if self._last is None:
            atexit.register(_write, counts)
            self._last = now
        elif now - self._last >= EVERY_S:
            self._last = now
            _write(counts)


def _write(counts: Iterable[Count]) -> None:
    if learned.mode() != "off":
        with contextlib.suppress(OSError):
            note(counts)


def _used(c: Count, now: float) -> Used:
    gpu = learned.gpu(c.problem.device)
    forward, backward = c.calls - c.noted[0], c.backward - c.noted[1]
    text = str(c.problem).removesuffix(f" on {c.problem.device}")
    return Used(
        gpu.name, gpu.uuid, spot(c.problem), text, Shape.of(c.problem), forward, backward, now
    )


def _decoded(contents: bytes) -> list[Used]:
    if not contents:
        return []
    try:
        held = msgspec.json.decode(contents, type=_File)
    except msgspec.DecodeError:
        return []
    return held.used if held.format == FORMAT else []
