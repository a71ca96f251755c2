"""Convert quantities between units. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Column, Row, Rows, Value
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

FACTORS: dict[str, dict[str, float]] = {
    "size": {
        "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    },
    "energy": {"J": 1, "kJ": 1e3, "MJ": 1e6, "Wh": 3600, "kWh": 3.6e6},
    "power": {"W": 1, "kW": 1e3, "mW": 1e-3},
    "time": {"s": 1, "min": 60, "h": 3600, "d": 86400},
    "clock": {"MHz": 1, "GHz": 1e3},
    "rate": {"GFLOP/s": 1e-3, "TFLOP/s": 1, "PFLOP/s": 1e3},
}  # fmt: skip
_TEMPERATURES = ("°C", "°F", "K")


def kind_of(unit: str) -> str:
    """Return the kind of a unit, such as `size`; empty for an unknown one."""
    if unit in _TEMPERATURES:
        return "temperature"
    return next((kind for kind, units in FACTORS.items() if unit in units), "")


def convert(amount: float, unit: str, to: str) -> float:
    """Return an amount in another unit. Raises UserError if the units do not fit."""
    kind = kind_of(unit)
    if not kind or kind != kind_of(to):
        raise UserError(
            phrase("{unit} cannot be converted to {other}", unit=unit or "?", other=to or "?")
        )
    if kind == "temperature":
        celsius = {"°C": amount, "°F": (amount - 32) / 1.8, "K": amount - 273.15}[unit]
        return {"°C": celsius, "°F": 1.8 * celsius + 32, "K": celsius + 273.15}[to]
    return amount * FACTORS[kind][unit] / FACTORS[kind][to]


def converted(found: Rows, to: str) -> Rows:
    """Return rows of one measure in another unit. Raises UserError if the units do not fit."""
    units = [column.unit for column in found.columns]
    columns = tuple(msgspec.structs.replace(column, unit=to) for column in found.columns)
    rows = tuple(
        msgspec.structs.replace(row, values=tuple(map(_in_unit(to), row.values, units)))
        for row in found.rows
    )
    total = _in_unit(to)(found.total, units[0]) if units else found.total
    return msgspec.structs.replace(found, columns=columns, rows=rows, total=total)


def _in_unit(to: str) -> Callable[[Value, str], Value]:
    def changed(value: Value, unit: str) -> Value:
        return convert(value, unit, to) if isinstance(value, int | float) else value

    return changed


def conversion(query: Query, now: float) -> Rows:
    """Return the query's amount in its unit and in the other one."""
    value = convert(query.amount, query.unit, query.to)
    columns = (Column(query.unit), Column(query.to))
    row = Row("conversion", "conversion", (query.amount, value))
    return Rows("conversion", columns, (row,), phrase("arithmetic"), now)
