"""Place the thresholds of alerts on the charts, and turn a place into a setting. Free of Qt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudeck.app.format.values import GIB
from gpudeck.app.language.texts import tr
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot
from gpudeck.scheduler.verbs.control import Configure

_SETTINGS = {"temp": "alert_temperature", "mem_used": "alert_memory"}
"""The setting of the alert about each field."""
_WHOLE = {"temp": "temp_limit", "mem_used": "mem_total"}


@dataclass(frozen=True)
class ChartThreshold:
    """One alert on a chart."""

    field: str
    level: float | None
    """Where the alert is raised, in the chart's unit; None while it is off."""
    whole: float
    """The slow-down temperature, or the whole memory, in the chart's unit."""


def threshold(field: str, snapshot: Snapshot, devices: Iterable[str]) -> ChartThreshold | None:
    """Return the alert's threshold for these devices; None for a field without an alert.

    Of devices that differ, the one with the highest limit counts, as for the dashed line.
    """
    if field not in _SETTINGS:
        return None
    chosen = set(devices)
    known = [_whole(field, s) for s in snapshot.devices if s.device.id in chosen]
    wholes = [whole for whole in known if whole is not None]
    if not wholes:
        return None
    whole, setting = max(wholes), getattr(snapshot.settings, _SETTINGS[field])
    if setting == "off":
        return ChartThreshold(field, None, whole)
    level = whole - setting if field == "temp" else whole * setting / 100
    return ChartThreshold(field, level, whole)


def _whole(field: str, state: DeviceState) -> float | None:
    if state.reading is None or (state.device.kind == "cpu" and field == "temp"):
        return None  # a processor tells no slow-down temperature
    value = state.reading.values.get(_WHOLE[field])
    return value if value is None or field == "temp" else value / GIB


def moved(shown: ChartThreshold, level: float) -> Configure:
    """Return the request that moves the alert to a level; off above the whole."""
    name = _SETTINGS[shown.field]
    if level > shown.whole:
        return Configure({name: "off"})
    if shown.field == "temp":
        return Configure({name: float(round(shown.whole - level))})
    return Configure({name: float(round(100 * max(level, 0.0) / shown.whole))})


def stepped(shown: ChartThreshold, steps: int) -> Configure:
    """Return the request that moves the alert by whole °C or percent; from off to the highest."""
    step = 1.0 if shown.field == "temp" else shown.whole / 100
    if shown.level is None:
        return moved(shown, shown.whole - step)
    level = shown.level + steps * step
    # half a step of tolerance: the level was computed from a rounded setting
    return moved(shown, level if level < shown.whole - step / 2 else shown.whole + step)


def describe(shown: ChartThreshold, level: float) -> str:
    """Return what an alert at this level means, as shown while it is dragged."""
    if level > shown.whole:
        return tr("No alert")
    if shown.field == "temp":
        return tr("Alert at {level} °C", level=f"{level:.0f}")
    return tr("Alert at {level} %", level=f"{100 * level / shown.whole:.0f}")
