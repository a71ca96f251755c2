"""Compute errors of answers, and bounds of medians that hold whatever the distribution is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.search.verdict import Span

DOUBT = 5e-4
"""The probability that a median lies beyond one of the bounds of its Span."""
SLACK = {torch.float32: 8.0, torch.bfloat16: 2.0, torch.float16: 2.0}
"""How many times the error of the honest computation a candidate may have. Sums in another order
differ by a few times in float32; of 16 bits, rounding the result is most of the error. A lower
precision differs by hundreds of times, or by four times (FP8 in place of bfloat16)."""
_ALLOWED = {torch.float32: 16.0, torch.bfloat16: 1.0, torch.float16: 1.0}
"""The error that is always allowed, in units of the dtype's precision."""
_ROW = 16
"""Rows that are shorter are compared together: a single element near 0 may have any relative
error."""


def error(got: Tensor, wanted: Tensor) -> float:
    """Return the largest relative error of a row, ||got - wanted|| / ||wanted||.

    A row is what lies along the last dimension. A row of `wanted` that is 0 counts relative to the
    largest row.

    Args:
        got: the answer, in any floating dtype; finite.
        wanted: the answer in float64.
    """
    if wanted.numel() == 0:
        return 0.0
    rows = wanted.shape[-1] if wanted.dim() > 1 and wanted.shape[-1] >= _ROW else wanted.numel()
    difference = (got.double() - wanted).reshape(-1, rows).norm(dim=1)
    norms = wanted.reshape(-1, rows).norm(dim=1)
    largest = float(norms.max())
    if largest == 0.0:
        return float(difference.max())
    norms = torch.where(norms > 0, norms, torch.full_like(norms, largest))
    return float((difference / norms).max())


def bound(honest: float, dtype: torch.dtype) -> float:
    """Return the error that a candidate may have beside an honest computation in `dtype`."""
    return max(SLACK[dtype] * honest, _ALLOWED[dtype] * torch.finfo(dtype).eps)


class Comparison(NamedTuple):
    """Hold the errors of an answer and of an honest one."""

    error: float
    """Infinite if the answer has values that are not finite."""
    honest: float
    bound: float

    @property
    def is_right(self) -> bool:
        """Return whether the error is allowed."""
        return self.error <= self.bound


def compare(reference: Callable[..., Tensor], inputs: Sequence[Tensor], got: Tensor) -> Comparison:
    """Compare an answer with the reference in float64, and with it in the inputs' precision."""
    wanted = reference(*(x.double() for x in inputs))
    honest = error(reference(*inputs), wanted)
    found = error(got, wanted) if bool(torch.isfinite(got).all()) else math.inf
    return Comparison(found, honest, bound(honest, got.dtype))


def median_span(values: Sequence[float]) -> Span:
    """Return the median, and two of the values between which the true median lies.

    Source: order statistics as bounds of a quantile; the number of values below the median is
    binomial. With too few values for the confidence the bounds are infinite.
    """
    ordered, n = sorted(values), len(values)
    below, reached = -1, 0.0
    while below + 1 < n / 2:
        reached += math.comb(n, below + 1) / 2.0**n
        if reached > DOUBT:
            break
        below += 1
    middle = statistics.median(ordered)
    if below < 0:
        return Span(middle, -math.inf, math.inf)
    return Span(middle, ordered[below], ordered[n - 1 - below])


def least_rounds() -> int:
    """Return how many values give finite bounds."""
    return math.ceil(-math.log2(DOUBT))
