"""The units of settings' values, as they are shown and as requests may give them."""

from __future__ import annotations

from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.scheduler.protocol.setting_table import abouts

UNITS = {name: about.unit for name, about in abouts().items()}
BELOW_SLOWDOWN = frozenset({"alert_temperature"})
"""Given in °C below the temperature at which a GPU slows itself down."""


def in_setting_unit(setting: str, value: float, unit: str) -> float | None:
    """Return a value in the unit of a setting; None if its unit is of another kind."""
    wanted = UNITS.get(setting, "")
    if not unit or unit == wanted:
        return value
    if not kind_of(unit) or kind_of(unit) != kind_of(wanted):
        return None
    return convert(value, unit, wanted)


def shown(setting: str, value: str) -> str:
    """Return a value with its unit, if it is a number."""
    unit = UNITS.get(setting, "")
    number = value.replace(".", "", 1).isdigit()
    return f"{value} {unit}" if unit and number else value
