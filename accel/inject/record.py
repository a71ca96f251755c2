"""Count what ran at each place of the program where attention was linked."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor

from gpudeck.accel.inject.finding import Shape

_LINKED, _LINKED_CAUSAL = "linked", "linked as causal attention"
_LIBRARIES = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
"""The folders of code that is not the program's own."""
_COUNTS: dict[tuple[str, int], Counter[str]] = {}
_SHAPES: dict[tuple[str, int], Shape] = {}
"""The largest attention that was linked at each place."""


def count_link(q: Tensor, k: Tensor, causal: bool) -> None:
    """Count a linked attention; `q` and `k` are [batch..., heads, sequence, features]."""
    if torch.compiler.is_compiling():
        return
    pairs = zip(q.shape[:-2], k.shape[:-2], strict=True)
    *batch, heads = [1, *(max(a, b) for a, b in pairs)]
    size = Shape(math.prod(batch), heads, q.shape[-2], k.shape[-2], q.shape[-1], causal)
    place = count(_LINKED_CAUSAL if causal else _LINKED)
    if place is not None and _pairs(size) > _pairs(_SHAPES.get(place)):
        _SHAPES[place] = size


def count(what: str) -> tuple[str, int] | None:
    """Count `what` at the line of the program that is running, and return its file and line.

    Compiled code is not counted.
    """
    if torch.compiler.is_compiling():
        return None
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    place = frame.f_code.co_filename, frame.f_lineno
    _COUNTS.setdefault(place, Counter())[what] += 1
    return place


def _pairs(shape: Shape | None) -> int:
    return shape.batch * shape.heads * shape.queries * shape.keys if shape else 0


def find_largest(lines: Collection[int]) -> Shape | None:
    """Return the size of the largest attention that was linked on these lines of any file."""
    found = [shape for (_, line), shape in _SHAPES.items() if line in lines]
    return max(found, key=_pairs, default=None)


def report() -> list[dict[str, str | int]]:
    """Return what ran where, and how often: `linked`, or `computed as written` and why.

    What was linked has its largest `shape`, in words.
    """
    rows: list[dict[str, str | int]] = []
    for place, counts in sorted(_COUNTS.items()):
        for what, calls in sorted(counts.items()):
            rows.append({"file": place[0], "line": place[1], "what": what, "calls": calls})
            if what in (_LINKED, _LINKED_CAUSAL) and place in _SHAPES:
                rows[-1]["shape"] = str(_SHAPES[place].text)
    return rows


def clear() -> None:
    """Forget all counts."""
    _COUNTS.clear()
    _SHAPES.clear()
