"""Turn a proof into what its picture shows. Free of Qt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from accel.inject.prove import Proof, Trial
from app.format.values import memory

LEAST, MOST = 1e-9, 1.0
"""The range of the axis of errors."""
MOST_SHOWN = 8


class ErrorMark(NamedTuple):
    """Show the errors of one comparison on a logarithmic axis, 0 to 1."""

    label: str
    before: float
    after: float
    passed: bool
    words: str


class Bar(NamedTuple):
    """Show one quantity before and after, as shares of the larger one."""

    label: str
    before: float
    after: float
    words: str


def place(error: float) -> float:
    """Return where an error stands on the axis."""
    shown = min(max(error, LEAST), MOST)
    return math.log10(shown / LEAST) / math.log10(MOST / LEAST)


def error_marks(proofs: Sequence[Proof]) -> list[ErrorMark]:
    """Return the comparisons with the largest errors, the failed ones first."""
    trials = [t for p in proofs for t in p.trials if t.linked or not t.passed]
    worst = sorted(trials, key=lambda t: (t.passed, -t.error_after))[:MOST_SHOWN]
    return [
        ErrorMark(
            f"{t.dtype}  {t.inputs}", place(t.error_before), place(t.error_after), t.passed,
            f"{t.error_before:.1e} before, {t.error_after:.1e} after"
            + ("" if t.passed else ": too large"),
        )
        for t in worst
    ]  # fmt: skip


def bars(proofs: Sequence[Proof]) -> list[Bar]:
    """Return time and memory of the largest comparison."""
    trials = [t for p in proofs for t in p.trials if t.linked]
    if not trials:
        return []
    largest = max(trials, key=lambda t: (t.kept_before, t.ms_before))
    return [_time(largest), _memory(largest)]


def milliseconds(ms: float) -> str:
    """Return three digits of a time, or all before the point."""
    return f"{ms:,.0f} ms" if ms >= 1000 else f"{ms:.3g} ms"


def _time(t: Trial) -> Bar:
    words = f"{milliseconds(t.ms_before)} before, {milliseconds(t.ms_after)} after"
    if t.ms_after > 0:
        words += f" ({t.ms_before / t.ms_after:.2g} times as fast)"
    return _bar(f"Time for {t.inputs}", t.ms_before, t.ms_after, words)


def _memory(t: Trial) -> Bar:
    words = f"{memory(t.kept_before)} before, {memory(t.kept_after)} after"
    return _bar("Kept for the backward pass", t.kept_before, t.kept_after, words)


def _bar(label: str, before: float, after: float, words: str) -> Bar:
    most = max(before, after) or 1.0
    return Bar(label, before / most, after / most, words)
