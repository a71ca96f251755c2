"""Arrange the cells of a Result as a heat map of head sizes and sequence lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudeck.accel.result import Cell
from gpudeck.accel.workloads.catalog import FP8
from gpudeck.app.format.values import precise
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.workloads import cells as c


@dataclass(frozen=True)
class HeatCell:
    """One cell of the map."""

    text: str
    """The value; empty if nothing was measured."""
    small: str
    """A second line in small letters."""
    share: float | None
    """The depth of the colour, 0 to 1; None if nothing was measured."""
    failed: bool
    tooltip: str


@dataclass(frozen=True)
class HeatMap:
    """The whole map."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[HeatCell | None, ...], ...]
    """[rows][columns]; None for a shape that is not part of the grid."""
    unit: str
    highest: str | None
    """The value of the deepest colour; None if there is no value."""
    of_tokens: bool = True
    """Whether columns are lengths of sequences; else they are other sizes."""


@dataclass(frozen=True)
class HeatQuantity:
    """A quantity that the map can show."""

    name: str
    unit: str
    of: Callable[[Cell], float | None]
    hint: str | None = None
    """The advice for a Result without such values; without one the quantity is not offered."""


def _spread(cell: Cell) -> float | None:
    t = cell.timing
    return 100 * (t.p95 - t.p5) / t.median if t.count and t.p5 else None


def _error(cell: Cell) -> float | None:
    """Return the largest error of all checks or trials in percent of its limit."""
    if cell.trials is not None:
        return 100 * cell.trials.worst
    shares = [check.error / check.bound for check in cell.checks if check.bound]
    return 100 * max(shares) if shares else None


QUANTITIES = (
    HeatQuantity(
        tr_noop("TFLOP/s"),
        "TFLOP/s",
        lambda x: x.tflops or None,
        tr_noop("Nothing was measured; see Details."),
    ),
    HeatQuantity(
        tr_noop("J per TFLOP"),
        "J per TFLOP",
        lambda x: x.sensors.joules_per_tflop,
        tr_noop(
            "No power was measured. On a GPU, run Attention with 2 seconds or more, or Compare "
            "with Power."
        ),
    ),
    HeatQuantity(tr_noop("Median time"), "ms", lambda x: x.timing.median or None),
    HeatQuantity(tr_noop("Spread"), tr_noop("% of the median, P5 to P95"), _spread),
    HeatQuantity(tr_noop("Clock"), "MHz", lambda x: x.sensors.sm_mhz),
    HeatQuantity(tr_noop("Worst error"), tr_noop("% of the limit"), _error),
    HeatQuantity(
        tr_noop("Relative error"), tr_noop("% of the exact result"), lambda x: 100 * x.error or None
    ),
)


def quantities(cells: Sequence[Cell]) -> tuple[HeatQuantity, ...]:
    """Return the quantities to offer; errors come first if there were trials."""
    found = [q for q in QUANTITIES if q.hint or any(q.of(cell) is not None for cell in cells)]
    if any(cell.trials for cell in cells):
        found.sort(key=lambda q: q.of is not _error)
    return tuple(found)


def heat_map(
    cells: Sequence[Cell], contender: str, direction: str, quantity: HeatQuantity
) -> HeatMap:
    """Return the map of one contender.

    The colours run from 0 to the highest value of any contender, so they can be compared.
    """
    found = [quantity.of(cell) for cell in cells if cell.direction == direction]
    values = [value for value in found if value is not None]
    highest = max(values, default=0.0)
    shown = {(c.row_of(x), x.seq): x for x in c.chosen_cells(cells, contender, direction)}
    rows, columns = c.grid_rows(cells), c.lengths(cells)
    return HeatMap(
        tuple(map(c.row_label, rows)),
        tuple(map(str, columns)),
        tuple(
            tuple(_cell(shown.get((row, seq)), quantity, highest, contender) for seq in columns)
            for row in rows
        ),
        tr(quantity.unit),
        precise(highest) if values else None,
        c.of_tokens(cells),
    )


def _cell(
    cell: Cell | None, quantity: HeatQuantity, highest: float, contender: str
) -> HeatCell | None:
    if cell is None:
        return None
    value, wrong, tooltip = quantity.of(cell), c.failed(cell), c.describe(cell)
    if value is None:
        return HeatCell("", tr("failed") if wrong else "–", None, wrong, tooltip)
    small = cell.backend if contender in (c.FASTEST, "auto") else ""
    if contender in FP8 and quantity is QUANTITIES[0] and cell.error:
        small = tr("error {error}", error=c.error(cell))
    share = value / highest if highest else 0.0
    return HeatCell(precise(value), tr("failed") if wrong else small, share, wrong, tooltip)
