"""Filter, order, limit and add up rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Rows, Value, number

_COMBINE: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "max": max,
    "min": min,
}


def shaped(query: Query, found: Rows) -> Rows:
    """Return the rows filtered, ordered and limited, with their aggregate and winner."""
    return aggregated(query, narrowed(query, found))


def narrowed(query: Query, found: Rows) -> Rows:
    """Return the rows that the query's bounds keep."""
    rows = found.rows
    names = [column.name.partition(".")[0] for column in found.columns]
    for where in query.where:
        place = names.index(where.measure)
        rows = tuple(row for row in rows if _within(row.values[place], where.above, where.below))
    return msgspec.structs.replace(found, rows=rows)


def _within(value: Value, above: float | None, below: float | None) -> bool:
    if not isinstance(value, int | float):
        return False
    return (above is None or value > above) and (below is None or value < below)


def aggregated(query: Query, found: Rows) -> Rows:
    """Return the rows in their order and limit, with the aggregate of the first column."""
    known = [(row, row.values[0]) for row in found.rows if row.values and finite(row.values[0])]
    numbers = [float(value) for _, value in known if isinstance(value, int | float)]
    total: Value = None
    best = ""
    if query.aggregate == "count":
        total = len(found.rows) + found.left_out
    elif query.aggregate in _COMBINE and numbers:
        total = _COMBINE[query.aggregate](numbers)
    if query.aggregate in ("max", "min") and numbers:
        best = next(row.key for row, value in known if value == total)
    rows = found.rows
    if query.order or query.extreme or query.aggregate in ("max", "min"):
        down = query.order == "down" or (not query.order and query.aggregate != "min")
        ranked = sorted(known, key=lambda pair: number(pair[1]), reverse=down)
        rest = [row for row in found.rows if not finite(row.values[0] if row.values else None)]
        rows = (*(row for row, _ in ranked), *rest)
    kept = rows[: query.limit] if query.limit else rows
    return msgspec.structs.replace(
        found, rows=kept, total=total, best=best, left_out=found.left_out + len(rows) - len(kept)
    )


def combined(how: str, values: Sequence[Value]) -> Value:
    """Return the sum, mean or highest of the values that are known; None without any."""
    known = [float(value) for value in values if isinstance(value, int | float) and finite(value)]
    return _COMBINE[how](known) if known else None


def finite(value: Value) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
