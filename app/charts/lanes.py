"""Place the curves of many devices one above the other, each in a lane of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpudeck.app.charts.chart_source import ChartContents, Curve
from gpudeck.app.charts.past_curves import Band

FROM = 4
"""From this number of devices on their curves cannot be told apart in one another's way."""
_SHARE = 0.84
"""Share of a lane's height that its highest value fills."""


def floors(devices: Sequence[str]) -> dict[str, float]:
    """Return the lower end of each device's lane; the first device has the topmost one."""
    return {device: float(len(devices) - 1 - at) for at, device in enumerate(devices)}


def lane_levels(devices: Sequence[str], value: float, floor: float, top: float) -> list[float]:
    """Return where a value lies in each device's lane; nothing if the lanes do not reach it.

    Args:
        floor: The value at the lower edge of a lane.
        top: The value that fills a lane.
    """
    if not floor < value <= top + (1 / _SHARE - 1) * (top - floor):
        return []
    return [low + _SHARE * (value - floor) / (top - floor) for low in floors(devices).values()]


def in_lanes(
    contents: ChartContents, devices: Sequence[str], floor: float, top: float
) -> ChartContents:
    """Return the same curves in lanes of height 1.

    Args:
        floor: The value at the lower edge of a lane.
        top: The value that fills a lane.
    """
    size = _SHARE / (top - floor) if top > floor else 0.0
    low = {device: at - size * floor for device, at in floors(devices).items()}

    def line(device: str, curve: Curve) -> Curve:
        return curve[0], low[device] + size * curve[1]

    def band(device: str, made: Band) -> Band:
        parts = (low[device] + size * part for part in (made.low, made.mean, made.high))
        return Band(made.times, *parts)

    return replace(
        contents,
        lines={d: line(d, curve) for d, curve in contents.lines.items()},
        ghosts={d: line(d, curve) for d, curve in contents.ghosts.items()},
        bands={d: band(d, made) for d, made in contents.bands.items()},
    )
