"""Turn a proof into what its picture shows. Free of Qt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpudeck.accel.inject.prove import Proof, Trial
from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr, tr_decimal, tr_whole

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
    short: str
    """The words where space is short."""


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
    return [_error_mark(t) for t in worst]


def _error_mark(t: Trial) -> ErrorMark:
    before, after = f"{t.error_before:.1e}", f"{t.error_after:.1e}"
    words = tr("{before} before, {after} after", before=before, after=after)
    short = f"{before} → {after}"
    if not t.passed:
        words = tr("{errors}: too large", errors=words)
        short = tr("{errors}: too large", errors=short)
    at = (place(t.error_before), place(t.error_after))
    return ErrorMark(f"{t.dtype}  {t.inputs}", *at, t.passed, words, short)


def bars(proofs: Sequence[Proof]) -> list[Bar]:
    """Return time and memory of the largest comparison."""
    trials = [t for p in proofs for t in p.trials if t.linked]
    if not trials:
        return []
    largest = max(trials, key=lambda t: (t.kept_before, t.ms_before))
    return [_time(largest), _memory(largest)]


def milliseconds(ms: float) -> str:
    """Return three digits of a time, or all before the point."""
    return f"{tr_whole(round(ms))} ms" if ms >= 1000 else tr_decimal(f"{ms:.3g} ms")


def _time(t: Trial) -> Bar:
    before, after = milliseconds(t.ms_before), milliseconds(t.ms_after)
    words = tr("{before} before, {after} after", before=before, after=after)
    if t.ms_after > 0:
        ratio = tr_decimal(f"{t.ms_before / t.ms_after:.2g}")
        words += " " + tr("({ratio} times as fast)", ratio=ratio)
    return _bar(tr("Time for {inputs}", inputs=t.inputs), t.ms_before, t.ms_after, words)


def _memory(t: Trial) -> Bar:
    before, after = memory(t.kept_before), memory(t.kept_after)
    words = tr("{before} before, {after} after", before=before, after=after)
    return _bar(tr("Kept for the backward pass"), t.kept_before, t.kept_after, words)


def _bar(label: str, before: float, after: float, words: str) -> Bar:
    most = max(before, after) or 1.0
    return Bar(label, before / most, after / most, words)
