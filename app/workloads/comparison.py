"""Contenders side by side: for one head size and mask a group of bars a sequence length, and how near `auto` comes to the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accel.result import Cell
from app.workloads import cells as c

AUTO = "auto"


@dataclass(frozen=True)
class Bar:
    contender: str
    tflops: float
    """0: nothing was measured."""
    low: float
    high: float
    """TFLOP/s at P95 and P5 of the times; equal to `tflops` where the spread is not known."""
    failed: bool
    tooltip: str


@dataclass(frozen=True)
class Group:
    label: str
    bars: tuple[Bar, ...]
    ratio: str
    """`auto` against the best single backend, e.g. "0.99"; empty where one of them is missing."""
    behind: bool
    """Whether `auto` is slower than TARGET of the best."""


@dataclass(frozen=True)
class Comparison:
    contenders: tuple[str, ...]
    groups: tuple[Group, ...]
    highest: float
    """TFLOP/s."""
    summary: str


TARGET = 0.98
"""What `auto` is to reach of the best single backend, in every shape."""


def contest(cells: Sequence[Cell], row: c.Row, direction: str) -> Comparison:
    """The chart of one row of the grid; `summary` tells of all its rows and directions."""
    here = [x for x in cells if (x.head_dim, x.causal) == row and x.direction == direction]
    groups = tuple(_group(seq, [x for x in here if x.seq == seq]) for seq in c.lengths(here))
    found = tuple(dict.fromkeys(x.contender for x in cells))
    highest = max((bar.high for group in groups for bar in group.bars), default=0.0)
    return Comparison(found, groups, highest, _summary(cells))


def ratios(cells: Sequence[Cell]) -> list[tuple[float, Cell]]:
    """`auto` against the best single backend, of each problem where both were measured."""
    problems: dict[str, list[Cell]] = {}
    for cell in cells:
        problems.setdefault(c.problem(cell), []).append(cell)
    found = []
    for group in problems.values():
        auto, other = (
            next((x for x in group if x.contender == AUTO and x.tflops), None),
            c.best(group),
        )
        if auto is not None and other is not None:
            found.append((auto.tflops / other.tflops, auto))
    return found


def _group(seq: int, cells: list[Cell]) -> Group:
    ratio = next((r for r, _ in ratios(cells)), None)
    return Group(
        str(seq),
        tuple(map(_bar, cells)),
        "" if ratio is None else f"{ratio:.2f}",
        ratio is not None and ratio < TARGET,
    )


def _bar(cell: Cell) -> Bar:
    t = cell.timing
    low, high = (
        cell.tflops * t.median / at if t.count and at else cell.tflops for at in (t.p95, t.p5)
    )
    return Bar(
        cell.contender, cell.tflops, low, high, bool(cell.backend) and not cell.passed, c.told(cell)
    )


def _summary(cells: Sequence[Cell]) -> str:
    found = ratios(cells)
    if not found:
        return ""
    mean = math.exp(sum(math.log(r) for r, _ in found) / len(found))
    worst, cell = min(found, key=lambda pair: pair[0])
    behind = sum(r < TARGET for r, _ in found)
    return (
        f"auto against the best single backend, {len(found)} shapes: geometric mean {mean:.3f}, {behind} below {TARGET}, "
        f"lowest {worst:.3f} ({c.row_label((cell.head_dim, cell.causal))}, {cell.seq}, {cell.direction})"
    )
