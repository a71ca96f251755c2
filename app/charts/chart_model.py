"""What each chart of the dashboard says beside its curves: title, current values, limit, range."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.format.values import GIB, device_label, format_field
from scheduler.protocol.absence import Unavailable
from scheduler.protocol.devices import NA
from scheduler.protocol.fields import FIELDS, HEADLINE
from scheduler.protocol.snapshot import DeviceState, Snapshot

LIMITS = {"mem_used": "mem_total", "temp": "temp_limit", "power": "power_limit"}
"""The field that bounds another one, where the device tells it."""


class Value(msgspec.Struct, frozen=True):
    device: str
    label: str
    text: str
    reason: str


class Chart(msgspec.Struct, frozen=True):
    field: str
    title: str
    unit: str
    values: tuple[Value, ...]
    limit: float | None
    """In the chart's unit."""
    floor: float
    ceiling: float | None
    """Top of the axis where no value is higher; None: as high as the values need."""
    tooltip: str
    absent: str
    """Why there is no value of any device; empty where there is one."""


def charts(snapshot: Snapshot, fields: Sequence[str] = HEADLINE) -> tuple[Chart, ...]:
    return tuple(_chart(field, snapshot.devices) for field in fields)


def title(field: str) -> str:
    return "Memory" if field == "mem_used" else FIELDS[field].label


def scale(field: str) -> float:
    """What a reading's value is divided by to be in the chart's unit."""
    return GIB if FIELDS[field].unit == "B" else 1.0


def _chart(field: str, devices: tuple[DeviceState, ...]) -> Chart:
    values = tuple(_value(field, state) for state in devices)
    limit = _limit(field, devices)
    unit = "GiB" if FIELDS[field].unit == "B" else FIELDS[field].unit
    ceiling = 100.0 if field == "util" else limit * 1.04 if limit is not None else None
    if devices and all(v.reason for v in values):
        absent = "; ".join(dict.fromkeys(v.reason for v in values))
    else:
        absent = "" if devices else "no device yet"
    return Chart(
        field,
        title(field),
        "" if unit == title(field) else unit,
        values,
        limit,
        0.0,
        ceiling,
        _tooltip(field, devices),
        absent,
    )


def _value(field: str, state: DeviceState) -> Value:
    reading: float | NA = (
        NA(Unavailable("unread")) if state.reading is None else state.reading.get(field)
    )
    shown = format_field(field, reading)
    return Value(state.device.id, device_label(state.device), shown.text, shown.reason)


def _limit(field: str, devices: tuple[DeviceState, ...]) -> float | None:
    """The highest limit of the devices, since one line serves them all."""
    known = [
        s.reading.values[LIMITS[field]]
        for s in devices
        if s.reading and field in LIMITS and LIMITS[field] in s.reading.values
    ]
    return max(known) / scale(field) if known else None


def _tooltip(field: str, devices: tuple[DeviceState, ...]) -> str:
    lines = [FIELDS[field].meaning]
    methods = {
        state.reading.methods[field]
        for state in devices
        if state.reading and field in state.reading.methods
    }
    lines += sorted(methods)
    if field in LIMITS:
        lines.append(f"dashed: {FIELDS[LIMITS[field]].label.lower()}")
    return "\n".join(lines)
