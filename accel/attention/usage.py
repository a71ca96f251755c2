"""Count which shapes programs compute, so that GPU Deck can measure them while a GPU is idle.

Only shapes and numbers of calls are kept, for each GPU, in one file of all processes of a user.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from accel.attention.problem import Problem, dtype_name
from accel.attention.records import Shape, Used, decode_used, encode_used, used_file
from accel.attention.spot import spot
from accel.lessons.mode import learning
from accel.lessons.store import gpu
from accel.runtime import shared_file

EVERY_S = 30.0
"""The least time between two writes of a process, which writes once more at its end."""
MOST = 1024
"""The most shapes that are kept; those not used for the longest time are dropped first."""


class Count(Protocol):
    """What a process counts at a spot; see `accel.attention.lessons.Use`."""

    problem: Problem
    calls: int
    backward: int
    noted: tuple[int, int]


def read() -> list[Used]:
    """Return what was counted; nothing if the file is damaged, which the next write replaces.

    Raises:
        OSError: if the file cannot be read.
    """
    return _held(shared_file.read(used_file()))


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
        held = {(u.uuid, u.spot): u for u in _held(contents)}
        for u in new:
            old = held.pop((u.uuid, u.spot), None)
            held[u.uuid, u.spot] = msgspec.structs.replace(
                u,
                forward=u.forward + (old.forward if old else 0),
                backward=u.backward + (old.backward if old else 0),
            )
        return encode_used(list(held.values())[-MOST:])

    shared_file.change(used_file(), merged)
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
    if learning() != "off":
        with contextlib.suppress(OSError):
            note(counts)


def _used(c: Count, now: float) -> Used:
    own = gpu(c.problem.device)
    forward, backward = c.calls - c.noted[0], c.backward - c.noted[1]
    text = str(c.problem).removesuffix(f" on {c.problem.device}")
    return Used(
        own.name, own.uuid, spot(c.problem), text, _shape(c.problem), forward, backward, now
    )


def _shape(p: Problem) -> Shape:
    given = {name: getattr(p, name) for name in Shape.__struct_fields__ if name != "dtype"}
    return Shape(**given, dtype=dtype_name(p.dtype))


def _held(contents: bytes) -> list[Used]:
    try:
        return decode_used(contents)
    except ValueError:
        return []
