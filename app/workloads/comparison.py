"""Compare the contenders with each other, and `auto` with the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudeck.accel.result import Cell, twins
from gpudeck.accel.workloads.catalog import FP8
from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_text
from gpudeck.app.workloads import cells as c

AUTO = "auto"
TARGET = 0.98
"""The share of the best single backend's speed that `auto` should reach in every shape."""


@dataclass(frozen=True)
class ComparisonBar:
    """Describe one contender at one sequence length."""

    contender: str
    tflops: float
    """0 if nothing was measured."""
    low: float
    high: float
    """The TFLOP/s at P95 and P5 of the times; equal to `tflops` if the spread is not known."""
    failed: bool
    tooltip: str


@dataclass(frozen=True)
class ComparisonGroup:
    """Describe all contenders at one sequence length."""

    label: str
    bars: tuple[ComparisonBar, ...]
    ratio: float | None
    """The speed of `auto` as a share of the best single backend's; None if one is missing."""


@dataclass(frozen=True)
class Comparison:
    """Describe all contenders in one row of the grid."""

    contenders: tuple[str, ...]
    groups: tuple[ComparisonGroup, ...]
    highest: float
    """The end of the highest bar, in TFLOP/s."""
    summary: str
    of_tokens: bool = True
    """Whether groups are lengths of sequences; else they are other sizes."""


def compare(cells: Sequence[Cell], row: c.GridRow, direction: str) -> Comparison:
    """Compare one row of the grid; the summary covers all rows and directions."""
    here = [x for x in cells if c.row_of(x) == row and x.direction == direction]
    groups = tuple(_group(seq, [x for x in here if x.seq == seq]) for seq in c.lengths(here))
    found = tuple(dict.fromkeys(x.contender for x in cells))
    highest = max((bar.high for group in groups for bar in group.bars), default=0.0)
    return Comparison(found, groups, highest, _summary(cells), c.of_tokens(cells))


def ratios(cells: Sequence[Cell]) -> list[tuple[float, Cell]]:
    """Return the speed of `auto` divided by the best single backend's, where both were measured."""
    return [(auto.tflops / best.tflops, auto) for auto, best in _beside_best(cells, AUTO)]


def _beside_best(cells: Sequence[Cell], contender: str) -> Iterator[tuple[Cell, Cell]]:
    """Yield a contender's cells and the best single backends', where both were measured."""
    problems: dict[str, list[Cell]] = {}
    for cell in cells:
        problems.setdefault(c.problem(cell), []).append(cell)
    for group in problems.values():
        own = next((x for x in group if x.contender == contender and x.tflops), None)
        best = c.best(group)
        if own is not None and best is not None:
            yield own, best


def _group(seq: int, cells: list[Cell]) -> ComparisonGroup:
    ratio = next((r for r, _ in ratios(cells)), None)
    return ComparisonGroup(str(seq), tuple(map(_bar, cells)), ratio)


def _bar(cell: Cell) -> ComparisonBar:
    t = cell.timing
    low, high = (
        cell.tflops * t.median / at if t.count and at else cell.tflops for at in (t.p95, t.p5)
    )
    return ComparisonBar(cell.contender, cell.tflops, low, high, c.failed(cell), c.describe(cell))


def _summary(cells: Sequence[Cell]) -> str:
    exact = "; ".join(filter(None, [_auto(cells), tr_text(twins(cells) or "")]))
    return "\n".join(filter(None, [exact, *_in_fp8(cells)]))


def _auto(cells: Sequence[Cell]) -> str:
    """Return how `auto` compares with the best backends; empty if one of them is missing."""
    found = ratios(cells)
    if not found:
        return ""
    mean = math.exp(sum(math.log(r) for r, _ in found) / len(found))
    worst, cell = min(found, key=lambda pair: pair[0])
    behind = sum(r < TARGET for r, _ in found)
    where = f"{c.row_label(c.row_of(cell))}, {cell.seq}, {tr(cell.direction)}"
    against = tr(
        "{reached}; at worst {share} % of its speed ({where})",
        reached=_reached(mean, len(found)),
        share=tr_decimal(f"{100 * worst:.1f}"),
        where=where,
    )
    late = tr_count(
        "it is over {percent} % slower in {n} shape",
        "it is over {percent} % slower in {n} shapes",
        behind,
        percent=f"{100 * (1 - TARGET):.0f}",
    )
    return "; ".join([against, late]) if behind else against


def _in_fp8(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield how fast and how exact FP8 is beside the best other backends."""
    for name in FP8:
        pairs = [(x, best) for x, best in _beside_best(cells, name) if x.passed]
        if pairs:
            speed = math.exp(sum(math.log(x.tflops / y.tflops) for x, y in pairs) / len(pairs))
            worst = max((x for x, _ in pairs), key=lambda x: x.error)
            usual = max((y for _, y in pairs), key=lambda y: y.error)
            yield tr_count(
                "{name} has {speed} times the speed of the best backend in {n} shape, and a"
                " relative error of {error} instead of {usual}",
                "{name} has {speed} times the speed of the best backend on average over {n} shapes,"
                " and a relative error of up to {error} instead of {usual}",
                len(pairs),
                name=name,
                speed=tr_decimal(f"{speed:.2f}"),
                error=c.error(worst),
                usual=c.error(usual),
            )


def _reached(mean: float, shapes: int) -> str:
    """Return how `auto` compares with the best backend on average."""
    if mean <= 1:
        return tr_count(
            "auto reaches {share} % of the best backend on average over {n} shape",
            "auto reaches {share} % of the best backend on average over {n} shapes",
            shapes,
            share=tr_decimal(f"{100 * mean:.1f}"),
        )
    if mean * TARGET <= 1:  # it runs one of the backends, so a small lead is noise
        return tr_count(
            "auto is as fast as the best backend on average over {n} shape",
            "auto is as fast as the best backend on average over {n} shapes",
            shapes,
        )
    return tr_count(
        "auto is {share} % faster than the best backend on average over {n} shape",
        "auto is {share} % faster than the best backend on average over {n} shapes",
        shapes,
        share=tr_decimal(f"{100 * (mean - 1):.1f}"),
    )
