"""Where and when a job would start, in words."""

from __future__ import annotations

from app.format.values import clock
from scheduler.protocol.jobs import Forecast


def foretold(forecast: Forecast, labels: dict[str, str], now: float) -> str:
    """`labels`: what the devices are called (see `app.jobs.rows.device_labels`)."""
    where = (
        " on " + " and ".join(labels.get(d, d) for d in forecast.devices)
        if forecast.devices
        else ""
    )
    if not forecast.reason:
        return f"it would start at once{where}"
    if forecast.at is None and forecast.reason.startswith("waits for "):
        return (
            f"it would wait for {forecast.reason.removeprefix('waits for ')}; nobody knows how long"
        )
    if forecast.at is None:
        return f"it would wait, nobody knows how long: {forecast.reason}"
    return f"it would start about {clock(forecast.at, now)}{where}: {forecast.reason}"
