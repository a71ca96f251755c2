"""The shapes that the user's programs compute: how often, how fast, and what was gained."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from gpudeck.accel.attention.records import Shape
from gpudeck.accel.lessons.records import (
    Measured,
    Used,
    decode_learned,
    decode_used,
)
from gpudeck.accel.primitives.gemm import records as products
from gpudeck.accel.runtime.state_files import learned_file, used_file
from gpudeck.app.format.values import significant
from gpudeck.app.language.texts import tr, tr_decimal, tr_noop, tr_whole

UNMEASURED = tr_noop("not measured yet")
_DIRECTIONS = (tr_noop("forward"), tr_noop("backward"))


@dataclass(frozen=True)
class UsedShape:
    """One row: a shape in one direction."""

    short: str
    """The shape in numbers."""
    shape: str
    """The shape in words."""
    direction: str
    """"forward" or "backward"."""
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
            return tr(UNMEASURED)
        gain = (
            tr_decimal(f", {self.gain:.2f}×") if self.gain is not None and self.gain > 1.005 else ""
        )
        return f"{significant(self.tflops)} TFLOP/s{gain}"

    @property
    def tooltip(self) -> str:
        """Return everything in words."""
        calls = tr_whole(self.calls)
        if self.direction == "forward":
            calls = tr("{n} forward passes of {shape}.", n=calls, shape=self.shape)
        else:
            calls = tr("{n} backward passes of {shape}.", n=calls, shape=self.shape)
        if not self.backend:
            when = tr("It is measured while a GPU is idle, or when a program computes it again.")
        elif self.gain is not None and self.gain > 1.005:
            when = tr(
                "{backend} was fastest on {date}, {ratio} times as fast as the backend that had"
                " been predicted.",
                backend=self.backend,
                date=self.measured,
                ratio=tr_decimal(f"{self.gain:.2f}"),
            )
        else:
            when = tr("{backend} was fastest on {date}.", backend=self.backend, date=self.measured)
        return f"{calls} {when}"


AnyUsed = Used[Shape | products.Shape]


def used_shapes(used: Iterable[AnyUsed], measured: Iterable[Measured]) -> tuple[UsedShape, ...]:
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


def _row(used: AnyUsed, direction: str, calls: int, m: Measured | None) -> UsedShape:
    if m is None:
        return UsedShape(_short(used), used.text, direction, calls, "", 0.0, None, "")
    tflops = m.flops / m.microseconds[m.fastest] / 1e6
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(m.at))
    found = (calls, m.fastest, tflops, m.gain, at)
    return UsedShape(_short(used), used.text, direction, *found)


def _short(used: AnyUsed) -> str:
    """Return the sizes and what else a shape asks for."""
    s = used.shape
    if isinstance(s, products.Shape):
        return used.text
    heads = f"{s.heads}" if s.heads == s.kv_heads else f"{s.heads}/{s.kv_heads}"
    seq = f"{s.seq_q}"
    if s.seq_q != s.seq_k:
        seq = tr("{heads} over {kv_heads}", heads=s.seq_q, kv_heads=s.seq_k)
    wishes = [tr("causal")] if s.right == 0 and s.left is None else []
    wishes += [tr("window")] if s.left is not None or s.right not in (None, 0) else []
    wishes += ["softcap"] if s.softcap else []
    wishes += {"none": [], "bool": [tr("mask")], "float": [tr("bias")]}[s.bias]
    wishes += [tr("ragged")] if s.ragged else []
    values = {"batch": s.batch, "heads": heads, "seq": seq, "size": s.head_dim}
    return ", ".join([tr("{batch} × {heads} heads × {seq} × {size}", **values), *wishes])


KINDS: dict[str, type[Shape | products.Shape]] = {"attention": Shape, "gemm": products.Shape}
"""The operations that count shapes, which are also the names of their workloads."""


class UsedShapes:
    """Read the rows of one operation from the state folder when its files have changed."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self.rows: tuple[UsedShape, ...] = ()
        self.problem = ""
        """Why they cannot be read."""
        self._seen: tuple[float, ...] | None = None

    def refresh(self) -> bool:
        """Read what has changed, and return whether there is anything to show."""
        files = (used_file(self._operation), learned_file(self._operation))
        now = tuple(file.stat().st_mtime if file.exists() else 0.0 for file in files)
        if now == self._seen:
            return bool(self.rows or self.problem)
        self._seen = now
        try:
            used, learned = (file.read_bytes() if file.exists() else b"" for file in files)
            counted = decode_used(used, KINDS[self._operation])
            self.rows, self.problem = used_shapes(counted, decode_learned(learned)), ""
        except (OSError, ValueError) as e:
            self.rows, self.problem = (
                (),
                tr("The shapes that your programs used cannot be read: {why}", why=e),
            )
        return bool(self.rows or self.problem)
