"""A heat map of a Result's cells: head size and mask downwards, sequence length to the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accel.result import Cell
from app.format.values import precise
from app.workloads import cells as c


@dataclass(frozen=True)
class Tile:
    """One cell. `share` (0 to 1) is how deep its colour is; None: nothing was measured, and `text` is empty."""

    text: str
    small: str
    """A second line, in small letters."""
    share: float | None
    failed: bool
    tooltip: str


@dataclass(frozen=True)
class HeatMap:
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    tiles: tuple[tuple[Tile | None, ...], ...]
    """[rows][columns]; None: not part of the grid."""
    unit: str
    highest: str
    """What the deepest colour stands for; empty where there is no value."""


@dataclass(frozen=True)
class Quantity:
    """Something that a heat map can show."""

    name: str
    unit: str
    of: Callable[[Cell], float | None]
    absent: str = ""
    """What to do where a Result has nothing of it."""


def _spread(cell: Cell) -> float | None:
    t = cell.timing
    return 100 * (t.p95 - t.p5) / t.median if t.count and t.p5 else None


def _error(cell: Cell) -> float | None:
    """Of its checks or its trials, the one nearest to its bound."""
    if cell.trials is not None:
        return 100 * cell.trials.worst
    shares = [check.error / check.bound for check in cell.checks if check.bound]
    return 100 * max(shares) if shares else None


QUANTITIES = (
    Quantity("TFLOP/s", "TFLOP/s", lambda x: x.tflops or None, "Nothing was timed: see Details."),
    Quantity(
        "J per TFLOP",
        "J per TFLOP",
        lambda x: x.sensors.joules_per_tflop,
        "No power was measured. On a GPU: Attention with 2 seconds or more, or Compare with Power.",
    ),
    Quantity("Median time", "ms", lambda x: x.timing.median or None),
    Quantity("Spread", "% of the median, P5 to P95", _spread),
    Quantity("Clock", "MHz", lambda x: x.sensors.sm_mhz),
    Quantity("Worst error", "% of what is allowed", _error),
)


def quantities(cells: Sequence[Cell]) -> tuple[Quantity, ...]:
    """Those that some cell has a value of, and those that say what to do where none has; errors first where trials were made."""
    found = tuple(
        q for q in QUANTITIES if q.absent or any(q.of(cell) is not None for cell in cells)
    )
    return (
        tuple(sorted(found, key=lambda q: q.of is not _error))
        if any(cell.trials for cell in cells)
        else found
    )


def heat(cells: Sequence[Cell], contender: str, direction: str, quantity: Quantity) -> HeatMap:
    """The map of one contender. Colours mean the same for all contenders in a direction: they run from 0 to the highest of any."""
    values = [
        value
        for cell in cells
        if cell.direction == direction and (value := quantity.of(cell)) is not None
    ]
    highest = max(values, default=0.0)
    shown = {(x.head_dim, x.causal, x.seq): x for x in c.chosen(cells, contender, direction)}
    rows, columns = c.rows(cells), c.lengths(cells)
    tiles = tuple(
        tuple(_tile(shown.get((*row, seq)), quantity, highest, contender) for seq in columns)
        for row in rows
    )
    return HeatMap(
        tuple(map(c.row_label, rows)),
        tuple(map(str, columns)),
        tiles,
        quantity.unit,
        precise(highest) if values else "",
    )


def _tile(cell: Cell | None, quantity: Quantity, highest: float, contender: str) -> Tile | None:
    if cell is None:
        return None
    value = quantity.of(cell)
    failed = bool(cell.backend) and not cell.passed
    small = "failed" if failed else cell.backend if contender in (c.FASTEST, "auto") else ""
    if value is None:
        return Tile("", small if failed else "–", None, failed, c.told(cell))
    return Tile(precise(value), small, value / highest if highest else 0.0, failed, c.told(cell))
