"""Select and describe the cells of a Result for the charts that show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpudeck.accel.result import Cell
from gpudeck.accel.workloads.catalog import FP8
from gpudeck.app.format.results import describe_sensors
from gpudeck.app.format.values import precise
from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_noop, tr_text

FASTEST = tr_noop("fastest")
"""The choice that stands for the fastest contender of each shape, apart from `auto` and FP8."""

_PASSES = {
    "forward": tr_noop("forward"),
    "backward": tr_noop("backward"),
    "both": tr_noop("forward and backward"),
}


class GridRow(NamedTuple):
    """Describe the shapes that differ in nothing but a length."""

    head_dim: int
    causal: bool
    form: str = ""
    """What tells problems of other operations than attention apart, or nothing."""


def contenders(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the contenders in order, after FASTEST if there are several."""
    found = tuple(dict.fromkeys(c.contender for c in cells))
    return (FASTEST, *found) if len(found) > 1 else found


def directions(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the directions in the order of measurement."""
    return tuple(dict.fromkeys(c.direction for c in cells))


def grid_rows(cells: Iterable[Cell]) -> tuple[GridRow, ...]:
    """Return the rows of the grid in the order of measurement."""
    return tuple(dict.fromkeys(map(row_of, cells)))


def row_of(cell: Cell) -> GridRow:
    """Return the row of the grid that a cell stands in."""
    return GridRow(cell.head_dim, cell.causal, cell.form)


def lengths(cells: Iterable[Cell]) -> tuple[int, ...]:
    """Return the sequence lengths, shortest first."""
    return tuple(sorted({c.seq for c in cells}))


def of_tokens(cells: Iterable[Cell]) -> bool:
    """Return whether these lengths are tokens in a sequence; else they are other sizes."""
    return all(cell.operation.endswith("attention") for cell in cells)


def row_label(row: GridRow) -> str:
    """Return the label of a row of the grid."""
    if row.form:
        return f"{row.form}, d {row.head_dim}" if row.head_dim else row.form
    if not row.head_dim:
        return tr("every size")
    return tr("d {size}, causal", size=row.head_dim) if row.causal else f"d {row.head_dim}"


def chosen_cells(cells: Sequence[Cell], contender: str, direction: str) -> tuple[Cell, ...]:
    """Return the cells of one contender, or of the fastest ones, in one direction."""
    found = [c for c in cells if c.direction == direction]
    if contender != FASTEST:
        return tuple(c for c in found if c.contender == contender)
    shapes: dict[tuple[GridRow, int], list[Cell]] = {}
    for cell in found:
        shapes.setdefault((row_of(cell), cell.seq), []).append(cell)
    return tuple(best(group) or group[0] for group in shapes.values())


def best(cells: Iterable[Cell]) -> Cell | None:
    """Return the fastest cell whose results were right, apart from `auto` and FP8."""
    apart = ("auto", *FP8)
    right = [c for c in cells if c.tflops and c.passed and c.contender not in apart]
    return max(right, key=lambda c: c.tflops, default=None)


def failed(cell: Cell) -> bool:
    """Report if the cell was computed, but with a wrong result."""
    return bool(cell.backend) and not cell.passed


def name(cell: Cell) -> str:
    """Return the contender, and the backend that ran if it has another name."""
    if cell.backend and cell.backend != cell.contender:
        return f"{cell.contender} ({cell.backend})"
    return cell.contender


def error(cell: Cell) -> str:
    """Return the relative error in percent."""
    return tr_decimal(f"{100 * cell.error:.2g} %")


def problem(cell: Cell) -> str:
    """Describe the shape: `batch 1, heads 16 over 4, sequence 4096, head size 128, ...`."""
    if cell.sizes:
        return f"{tr_text(cell.sizes)}, {cell.dtype}, {tr(_PASSES[cell.direction])}"
    heads = f"{cell.heads}"
    if cell.heads != cell.kv_heads:
        heads = tr("{heads} over {kv_heads}", heads=heads, kv_heads=cell.kv_heads)
    sizes = tr(
        "batch {batch}, heads {heads}, sequence {seq}, head size {size}",
        batch=cell.batch,
        heads=heads,
        seq=cell.seq,
        size=cell.head_dim,
    )
    mask = [tr("causal")] if cell.causal else []
    return ", ".join([sizes, cell.dtype, *mask, tr(_PASSES[cell.direction])])


def describe(cell: Cell) -> str:
    """Describe everything that is known of a cell in a few lines."""
    lines = [tr("{caption}: {value}", caption=name(cell), value=problem(cell))]
    t = cell.timing
    if t.count:
        median = tr_count(
            "median {time} ms ({spread}; {n} call)",
            "median {time} ms ({spread}; {n} calls)",
            t.count,
            time=precise(t.median),
            spread=f"P5 {precise(t.p5)}, P95 {precise(t.p95)}, P99 {precise(t.p99)}",
        )
        lines.append(f"{precise(cell.tflops)} TFLOP/s, {median}")
    if measured := describe_sensors(cell.sensors):
        lines.append(measured)
    if cell.contender in FP8 and cell.error:
        lines.append(tr("relative error {error}", error=error(cell)))
    for check in cell.checks:
        if not check.passed:
            lines.append(
                tr(
                    "{check}: error {error}, more than the allowed {limit}",
                    check=tr_text(check.name),
                    error=f"{check.error:.2e}",
                    limit=f"{check.bound:.2e}",
                )
            )
        elif cell.sizes:
            lines.append(
                tr(
                    "{check} {error} of {limit} allowed",
                    check=tr_text(check.name),
                    error=f"{check.error:.2e}",
                    limit=f"{check.bound:.2e}",
                )
            )
    if cell.trials is not None:
        r = cell.trials
        lines.append(
            tr_count(
                "{n} trial, {failed} failed; error as a share of the limit: {shares}, worst {worst}"
                " (seed {seed})",
                "{n} trials, {failed} failed; error as a share of the limit: {shares}, worst"
                " {worst} (seed {seed})",
                r.count,
                failed=r.failed,
                shares=tr_decimal(f"P50 {r.p50:.2f}, P95 {r.p95:.2f}, P99 {r.p99:.2f}"),
                worst=tr_decimal(f"{r.worst:.3g}"),
                seed=r.worst_seed,
            )
        )
    if cell.note:
        lines.append(tr_text(cell.note))
    return "\n".join(lines)
