"""Choose what the charts with the thresholds of alerts show. Free of Qt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gpudeck.app.charts.history import History
from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.thresholds import ChartThreshold, threshold
from gpudeck.app.format.values import GIB, NOT_AVAILABLE, device_label, format_field
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.scheduler.protocol.snapshot import Alert, DeviceState, Snapshot

CHARTED = {"temp": tr_noop("Temperature"), "mem_used": tr_noop("Memory")}
"""The fields with a threshold, and their titles."""
_RULES = {"temp": "too hot", "mem_used": "memory nearly full"}
"""The rules that watch them."""
SPAN = (600.0, 240)
"""Seconds that are shown, and their bins."""
_MOST = 2
"""The most devices with a line of their own: the chosen one, and that with the highest value."""
_SPACE_ABOVE = 1.06
"""The share of the highest possible value that is shown, so that a line there can be seen."""


@dataclass(frozen=True, eq=False)
class ThresholdContents:
    """What one chart shows."""

    value: str
    """The present value of the device that stands out, and its name."""
    lines: tuple[Floats, ...]
    """The values of the devices, [bins] each, in °C or percent, that of `device` last."""
    top: float
    """The value at the upper edge."""
    threshold: ChartThreshold | None
    reason: str = ""
    """Why there is no threshold, or nothing to show."""
    device: str = ""
    """The device that stands out."""


def threshold_contents(
    field: str, snapshot: Snapshot, history: History, chosen: str = ""
) -> ThresholdContents:
    """Return the chart of a field, of the devices with the highest values.

    Args:
        chosen: the id of the device that stands out, if it has a value; else the highest one does.
    """
    ranked = sorted(
        (s for s in snapshot.devices if s.reading is not None and field in s.reading.values),
        key=lambda state: (state.device.id == chosen, _value(state, field)),
    )[-_MOST:]
    if not ranked:
        return ThresholdContents(NOT_AVAILABLE, (), 1.0, None, tr("No device reports it."))
    highest = ranked[-1]
    lines = tuple(history.recent(s.device.id, field, *SPAN) / _unit(s, field) for s in ranked)
    known = threshold(field, snapshot, [s.device.id for s in snapshot.devices])
    if known is not None and field == "mem_used":
        level = None if known.level is None else 100 * known.level / known.whole
        known = replace(known, level=level, whole=100.0)
    peak = max((float(np.nanmax(line)) for line in lines if not np.isnan(line).all()), default=1.0)
    value = format_field(field, _value(highest, field))
    text = str(value)
    if field == "mem_used" and _unit(highest, field) != GIB:
        text = f"{_value(highest, field) / _unit(highest, field):.0f} % · {text}"
    if len(snapshot.devices) > 1:
        text += f" · {device_label(highest.device)}"
    whole = known.whole if known is not None else peak
    no_limit = tr("This device reports no limit, so no alert can be set.")
    reason = "" if known is not None else no_limit
    return ThresholdContents(
        text, lines, max(whole, peak) * _SPACE_ABOVE or 1.0, known, reason, highest.device.id
    )


def active_spans(
    field: str, device: str, alerts: Iterable[Alert], now: float
) -> list[tuple[float, float]]:
    """Return when alerts of a device were active: disjoint shares of the time that is shown."""
    start, length = now - SPAN[0], SPAN[0]
    mine = sorted(
        (max((a.since - start) / length, 0.0), (min(a.cleared or now, now) - start) / length)
        for a in alerts
        if a.rule == _RULES[field]
        and a.device == device
        and (a.cleared is None or a.cleared > start)
    )
    found: list[tuple[float, float]] = []
    for begin, end in mine:
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _unit(state: DeviceState, field: str) -> float:
    """Return what a value is divided by: memory is shown in percent where its size is known."""
    if field != "mem_used":
        return 1.0
    assert state.reading is not None, "only devices with a reading are ranked"
    total = state.reading.values.get("mem_total", 0.0)
    return total / 100 if total else GIB


def _value(state: DeviceState, field: str) -> float:
    assert state.reading is not None, "only devices with a reading are ranked"
    return state.reading.values[field]
