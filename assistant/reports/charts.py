"""Make charts of the devices' readings: one for each field, with a curve for each device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpudeck.assistant.facts.devices import source_name, subject
from gpudeck.assistant.reports.cells import Cells
from gpudeck.assistant.reports.report import Chart, Curve, Values
from gpudeck.language.numbers import GIB
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.snapshot import Columns, DeviceState, full_label

_LIMITS = {"mem_used": "mem_total", "power": "power_limit"}
"""The field that sets the end of the axis, if the device reports it."""
_DIGITS = 4
MOST_TOLD = 4
"""The most devices whose values stand below a chart; the table has those of more."""


def by_field(
    field: str,
    states: Sequence[DeviceState],
    histories: Mapping[str, Columns],
    since: float,
    until: float,
    cells: Cells,
) -> Chart:
    """Return one chart with a curve for each device."""
    drawn = [
        (s, line)
        for s in states
        if (line := _line(s, field, histories.get(s.device.id))) is not None
    ]
    unit = "GiB" if FIELDS[field].unit == "B" else FIELDS[field].unit
    sources = cells.words.listed(
        [
            cells.message(phrase("{source} readings, history", source=each))
            for each in dict.fromkeys(source_name(s.device) for s in states)
        ]
    )
    told = states if len(states) <= MOST_TOLD else [s for s in states if _absent(s, field, cells)]
    note = "  \n".join(_said(s, field, cells) for s in told)
    return Chart(
        cells.words.text(FIELDS[field].label),
        unit,
        since,
        until,
        tuple(line for _, line in drawn),
        sources,
        _top(field, states),
        note,
    )


def _absent(state: DeviceState, field: str, cells: Cells) -> bool:
    return cells.missing(f"{subject(state.device)}.{field}.mean") is not None


def _said(state: DeviceState, field: str, cells: Cells) -> str:
    """Return what the facts say about a device's curve."""
    name = f"{subject(state.device)}.{field}"
    if (why := cells.missing(f"{name}.mean")) is not None:
        why = cells.missing(name) or why
        return cells.words.text(
            "{device}: no data ({why})", device=full_label(state.device), why=why
        )
    return cells.words.text(
        "{device}: mean {mean}, highest {highest}",
        device=full_label(state.device),
        mean=cells.said(f"{name}.mean"),
        highest=cells.said(f"{name}.max"),
    ) + cells.uncertainty(f"{name}.mean")


def _line(state: DeviceState, field: str, history: Columns | None) -> Curve | None:
    """Return the curve of a device; None if nothing was read."""
    if history is None or all(v is None for v in history.columns.get(field, ())):
        return None
    scale = GIB if FIELDS[field].unit == "B" else 1.0
    mean, low, high = (
        _values(part.get(field, ()), scale) for part in (history.columns, history.low, history.high)
    )
    return Curve(
        full_label(state.device),
        tuple(round(t, 3) for t in history.times),
        mean,
        low or mean,
        high or mean,
    )


def _values(column: Sequence[float | None], scale: float) -> Values:
    """Return rounded values: a chart shows no more digits, and a report is sent as text."""
    return tuple(
        None if v is None or not math.isfinite(v) else float(f"{v / scale:.{_DIGITS}g}")
        for v in column
    )


def _top(field: str, states: Sequence[DeviceState]) -> float | None:
    if FIELDS[field].unit == "%":
        return 100.0
    readings = [
        s.reading.get(_LIMITS[field]) for s in states if s.reading is not None and field in _LIMITS
    ]
    known = [value for value in readings if not isinstance(value, NA) and math.isfinite(value)]
    return max(known) / (GIB if FIELDS[field].unit == "B" else 1.0) if known else None
