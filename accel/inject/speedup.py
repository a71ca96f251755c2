"""Predict how many times as fast linked attention is, from measurements of both on one GPU.

The tables in `accel/inject/measured` hold attention written by hand, the same lines linked, and
torch's fused function, measured side by side. They have the columns of
`gpudeck.accel.attention.table`, whose rule for shapes between the measured ones applies. The module
needs no torch.

Source: `python -m tests.benchmarks.attention_by_hand`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from gpudeck.accel.attention import table
from gpudeck.accel.inject.finding import Shape, Speedup

GPU = "NVIDIA H200"
"""The GPU that predictions are made for."""
Before = Literal["by hand", "sdpa"]
_LINKED = {"by hand": "linked", "sdpa": "sdpa linked"}
LEAST = {"by hand": 2**24, "sdpa": 2**28}
"""The numbers of scores up to which a GPU computes attention as written."""
_BACKWARD = 2.5
"""The products of the backward pass, by those of the forward pass."""


def predicted(shape: Shape, before: Before) -> Speedup | None:
    """Return the speed-up of linking in bfloat16.

    None if nothing like the shape was measured, or if it is so small that it stays as it is.

    Args:
        before: how the attention is written.
    """
    if shape.batch * shape.heads * shape.queries * shape.keys <= LEAST[before]:
        return None
    forward = _rates("forward", shape, before)
    backward = _rates("backward", shape, before)
    if forward is None or backward is None:
        return None
    (old, new), (old_back, new_back) = forward, backward
    training = (1 / old + _BACKWARD / old_back) / (1 / new + _BACKWARD / new_back)
    return Speedup(GPU, shape, round(new / old, 3), round(training, 3))


def _rates(direction: str, shape: Shape, before: Before) -> tuple[float, float] | None:
    """Return the TFLOP/s before and after linking."""
    rows = table.select(_measured(), GPU, direction, "bfloat16", shape.head_size, shape.causal)
    at = table.place(shape.batch * shape.heads, shape.queries, shape.keys)
    rates = table.expect(rows, at)
    if not {before, _LINKED[before]} <= rates.keys():
        return None
    return rates[before], rates[_LINKED[before]]


@lru_cache(maxsize=1)
def _measured() -> tuple[table.Row, ...]:
    folder = Path(__file__).parent / "measured"
    return tuple(row for file in sorted(folder.glob("*.csv")) for row in table.read(file))
