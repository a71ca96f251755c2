"""The attention shapes of the user's programs: how often, how fast, and what was gained."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from accel.attention.records import (
    Measured,
    Used,
    decode_learned,
    decode_used,
    learned_file,
    used_file,
)
from app.format.values import significant

UNMEASURED = "not measured yet"
_DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class UsedShape:
    """One row: a shape in one direction."""

    short: str
    """The shape in numbers."""
    shape: str
    """The shape in words."""
    direction: str
    calls: int
    backend: str
    """The fastest backend; empty if nothing was measured."""
    tflops: float
    """Its speed; 0 if nothing was measured."""
    gain: float | None
    """How many times as fast it is as the backend that was predicted."""
    measured: str
    """When it was measured, in local time."""

    @property
    def speed(self) -> str:
        """Return the speed and the gain as text."""
        if not self.backend:
            return UNMEASURED
        gain = f", {self.gain:.2f}×" if self.gain is not None and self.gain > 1.005 else ""
        return f"{significant(self.tflops)} TFLOP/s{gain}"

    @property
    def tooltip(self) -> str:
        """Return everything in words."""
        calls = f"{self.calls:,} {self.direction} passes of {self.shape}"
        if not self.backend:
            return (
                f"{calls}. It is measured while a GPU is idle, or when a program computes it again."
            )
        told = f"{calls}. {self.backend} was fastest on {self.measured}"
        if self.gain is not None and self.gain > 1.005:
            told += f", {self.gain:.2f} times as fast as the backend that had been predicted"
        return told + "."


def used_shapes(used: Iterable[Used], measured: Iterable[Measured]) -> tuple[UsedShape, ...]:
    """Return a row for each shape and direction, the most frequent first."""
    newest: dict[tuple[str, str, str], Measured] = {
        (m.gpu, m.spot, m.direction): m for m in sorted(measured, key=lambda m: m.at)
    }
    rows = [
        _row(u, direction, calls, newest.get((u.gpu, u.spot, direction)))
        for u in used
        for direction, calls in zip(_DIRECTIONS, (u.forward, u.backward), strict=True)
        if calls
    ]
    return tuple(sorted(rows, key=lambda row: -row.calls))


def _row(used: Used, direction: str, calls: int, m: Measured | None) -> UsedShape:
    if m is None:
        return UsedShape(_short(used), used.text, direction, calls, "", 0.0, None, "")
    tflops = m.flops / m.microseconds[m.fastest] / 1e6
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(m.at))
    found = (calls, m.fastest, tflops, m.gain, at)
    return UsedShape(_short(used), used.text, direction, *found)


def _short(used: Used) -> str:
    """Return batch, heads, lengths and head size, and what else the shape asks for."""
    s = used.shape
    heads = f"{s.heads}" if s.heads == s.kv_heads else f"{s.heads}/{s.kv_heads}"
    seq = f"{s.seq_q}" if s.seq_q == s.seq_k else f"{s.seq_q} over {s.seq_k}"
    wishes = ["causal"] if s.right == 0 and s.left is None else []
    wishes += ["window"] if s.left is not None or s.right not in (None, 0) else []
    wishes += ["softcap"] if s.softcap else []
    wishes += {"none": [], "bool": ["mask"], "float": ["bias"]}[s.bias]
    wishes += ["ragged"] if s.ragged else []
    return ", ".join([f"{s.batch} × {heads} heads × {seq} × {s.head_dim}", *wishes])


class UsedShapes:
    """Read the rows from the state folder when its files have changed."""

    def __init__(self) -> None:
        self.rows: tuple[UsedShape, ...] = ()
        self.problem = ""
        """Why they cannot be read."""
        self._seen: tuple[float, ...] | None = None

    def refresh(self) -> bool:
        """Return True if the rows are others now."""
        files = (used_file(), learned_file())
        now = tuple(file.stat().st_mtime if file.exists() else 0.0 for file in files)
        if now == self._seen:
            return False
        self._seen = now
        try:
            used, learned = (file.read_bytes() if file.exists() else b"" for file in files)
            self.rows, self.problem = used_shapes(decode_used(used), decode_learned(learned)), ""
        except (OSError, ValueError) as e:
            self.rows, self.problem = (), f"The shapes that your programs used cannot be read: {e}"
        return True
