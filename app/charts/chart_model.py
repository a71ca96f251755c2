"""Describe a chart apart from its curves: title, current values, limit and range."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck.app.format.values import GIB, device_label, format_field
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.scheduler.protocol.absence import Unavailable
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.protocol.fields import FIELDS, HEADLINE, UNCERTAINTY
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot

LIMITS = {"mem_used": "mem_total", "temp": "temp_limit", "power": "power_limit"}
"""The field that bounds another one, where the device reports it."""


class CurrentValue(msgspec.Struct, frozen=True):
    """Hold the newest value of one curve."""

    device: str
    label: str
    text: str
    reason: str | None = None
    """Why there is no value; None if there is one."""


class ChartModel(msgspec.Struct, frozen=True):
    """Describe a chart without its curves. Values are in the chart's unit."""

    field: str
    title: str
    unit: str
    """Follows the values, with their uncertainty where the devices state one."""
    values: tuple[CurrentValue, ...]
    limit: float | None
    floor: float
    ceiling: float | None
    """The top of the axis while no value is higher; None to follow the values."""
    tooltip: str
    absent: str | None
    """Why no device has a value; None if one has."""


def chart_models(snapshot: Snapshot, fields: Sequence[str] = HEADLINE) -> tuple[ChartModel, ...]:
    """Return the chart of each field."""
    return tuple(_chart(field, snapshot.devices) for field in fields)


def title(field: str) -> str:
    """Return the title of a field's chart."""
    return tr("Memory") if field == "mem_used" else tr(FIELDS[field].label)


def scale(field: str) -> float:
    """Return the number that converts a reading's value to the chart's unit by division."""
    return GIB if FIELDS[field].unit == "B" else 1.0


def _chart(field: str, devices: tuple[DeviceState, ...]) -> ChartModel:
    values = tuple(_value(field, state) for state in devices)
    limit = _limit(field, devices)
    unit = "GiB" if FIELDS[field].unit == "B" else FIELDS[field].unit
    shown_unit = "" if unit == FIELDS[field].label else unit
    ceiling = None if limit is None else limit * 1.04
    absent = None if devices else tr("no device yet")
    reasons = [value.reason for value in values if value.reason is not None]
    if devices and len(reasons) == len(values):
        absent = "; ".join(dict.fromkeys(reasons))
    return ChartModel(
        field=field,
        title=title(field),
        unit=" ".join(filter(None, (shown_unit, _uncertainty(field, devices)))),
        values=values,
        limit=limit,
        floor=0.0,
        ceiling=100.0 if field == "util" else ceiling,
        tooltip=_tooltip(field, devices),
        absent=absent,
    )


def _value(field: str, state: DeviceState) -> CurrentValue:
    reading: float | NA = NA(Unavailable("unread"))
    if state.reading is not None:
        reading = state.reading.get(field)
    shown = format_field(field, reading)
    return CurrentValue(state.device.id, device_label(state.device), shown.text, shown.reason)


def _uncertainty(field: str, devices: tuple[DeviceState, ...]) -> str:
    """Return how far the values may be off, the largest of all devices: ±14 %."""
    error = UNCERTAINTY.get(field, "")
    readings = [state.reading for state in devices if state.reading]
    known = [reading.values[error] for reading in readings if error in reading.values]
    return f"±{max(known):.0f} %" if known else ""


def _limit(field: str, devices: tuple[DeviceState, ...]) -> float | None:
    """Return the highest limit of the devices, since one line stands for all of them."""
    readings = [state.reading for state in devices if state.reading]
    known = [
        reading.values[LIMITS[field]]
        for reading in readings
        if field in LIMITS and LIMITS[field] in reading.values
    ]
    return max(known) / scale(field) if known else None


def _tooltip(field: str, devices: tuple[DeviceState, ...]) -> str:
    readings = [state.reading for state in devices if state.reading]
    methods = {reading.methods[field] for reading in readings if field in reading.methods}
    lines = [tr(FIELDS[field].meaning), *sorted(map(tr_text, methods))]
    if field in LIMITS:
        limit = tr(FIELDS[LIMITS[field]].label)
        lines.append(tr("Dashed line: {limit}", limit=limit))
    return "\n".join(lines)
