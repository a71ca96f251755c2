"""The cells of a Result as its views share them: which there are, which is the fastest, and what each says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accel.result import Cell, Sensors
from app.format.values import plural, precise

FASTEST = "fastest"
"""The choice of a contender that stands for the best of each shape, `auto` aside."""

Row = tuple[int, bool]
"""Head size, and whether causal."""


def contenders(cells: Iterable[Cell]) -> tuple[str, ...]:
    """As they were asked for, in order; led by FASTEST where there are several."""
    found = tuple(dict.fromkeys(c.contender for c in cells))
    return (FASTEST, *found) if len(found) > 1 else found


def directions(cells: Iterable[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(c.direction for c in cells))


def rows(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """In the order they were measured."""
    return tuple(dict.fromkeys((c.head_dim, c.causal) for c in cells))


def lengths(cells: Iterable[Cell]) -> tuple[int, ...]:
    """The sequence lengths, short before long."""
    return tuple(sorted({c.seq for c in cells}))


def row_label(row: Row) -> str:
    return f"d {row[0]}{', causal' if row[1] else ''}"


def chosen(cells: Sequence[Cell], contender: str, direction: str) -> tuple[Cell, ...]:
    """The cells of one contender in one direction."""
    found = [c for c in cells if c.direction == direction]
    if contender != FASTEST:
        return tuple(c for c in found if c.contender == contender)
    shapes: dict[tuple[int, bool, int], list[Cell]] = {}
    for cell in found:
        shapes.setdefault((cell.head_dim, cell.causal, cell.seq), []).append(cell)
    return tuple(best(group) or group[0] for group in shapes.values())


def best(cells: Iterable[Cell]) -> Cell | None:
    """The fastest whose answers were right, `auto` aside; None where nothing was measured."""
    able = [c for c in cells if c.tflops and c.passed and c.contender != "auto"]
    return max(able, key=lambda c: c.tflops, default=None)


def name(cell: Cell) -> str:
    """The contender, and what ran where that does not say it."""
    return (
        f"{cell.contender} ({cell.backend})"
        if cell.backend and cell.backend != cell.contender
        else cell.contender
    )


def problem(cell: Cell) -> str:
    """`batch 1, heads 16 over 4, sequence 4096, head size 128, bfloat16, causal, forward`."""
    heads = f"{cell.heads}" if cell.heads == cell.kv_heads else f"{cell.heads} over {cell.kv_heads}"
    mask = ", causal" if cell.causal else ""
    return f"batch {cell.batch}, heads {heads}, sequence {cell.seq}, head size {cell.head_dim}, {cell.dtype}{mask}, {cell.direction}"


def told(cell: Cell) -> str:
    """All that is known of a cell, in a few lines."""
    lines = [f"{name(cell)}: {problem(cell)}"]
    t = cell.timing
    if t.count:
        spread = f"P5 {precise(t.p5)}, P95 {precise(t.p95)}, P99 {precise(t.p99)}"
        lines.append(
            f"{precise(cell.tflops)} TFLOP/s, median {precise(t.median)} ms ({spread}; {plural(t.count, 'call')})"
        )
    if measured := sensors(cell.sensors):
        lines.append(measured)
    lines += [
        f"{c.name}: error {c.error:.2e}, {'within' if c.passed else 'OVER'} {c.bound:.2e}"
        for c in cell.checks
        if not c.passed
    ]
    if cell.trials is not None:
        r = cell.trials
        lines.append(
            f"{plural(r.count, 'trial')}, {r.failed} failed; error as a share of what is allowed: P50 {r.p50:.2f}, P95 {r.p95:.2f}, "
            f"P99 {r.p99:.2f}, worst {r.worst:.3g} (seed {r.worst_seed})"
        )
    if cell.note:
        lines.append(cell.note)
    return "\n".join(lines)


def sensors(s: Sensors) -> str:
    """`1755 MHz, 640 W, 61 °C, 0.98 J per TFLOP`; what was not read is left out."""
    parts = [
        (s.sm_mhz, ".0f", "MHz"),
        (s.watts, ".0f", "W"),
        (s.celsius, ".0f", "°C"),
        (s.joules_per_tflop, ".3g", "J per TFLOP"),
    ]
    return ", ".join(f"{value:{form}} {unit}" for value, form, unit in parts if value is not None)
