"""Find out since when there are readings of a device."""

from __future__ import annotations

from gpudeck.assistant.query.shape import finite
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.snapshot import Snapshot

KEPT_S = 31 * 86400.0
"""Readings are not kept for longer."""
NEAR_S = 60.0
"""A time that begins this long before the first reading is covered by readings."""
POINTS = 500
"""Buckets of a history. Each has its lowest, mean and highest value, so no peak is lost."""


def recorded_since(daemon: Client, snapshot: Snapshot) -> float | None:
    """Return when the readings of the first device begin, to the second; None without any."""
    if not snapshot.devices:
        return None
    first = snapshot.devices[0].device.id
    return first_reading(daemon, first, "util", snapshot.time - KEPT_S, snapshot.time)


def first_reading(
    daemon: Client, device: str, field: str, since: float, until: float
) -> float | None:
    """Return when a field of a device was first read within a time, to the second; None: never.

    Args:
        since, until: Seconds since the epoch.
    """
    first = None
    while until - since > 1.0:
        found = daemon.history(device, (field,), since, until, POINTS)
        known = zip(found.times, found.columns.get(field, ()), strict=False)
        at = next((time for time, value in known if finite(value)), None)
        if at is None:
            break
        width = (until - since) / POINTS
        since, until, first = at - width, at + width, at
    return first


def begun_late(daemon: Client, device: str, field: str, since: float, until: float) -> float | None:
    """Return when the readings of a time begin, where they do not cover its beginning."""
    first = first_reading(daemon, device, field, since, until)
    return first if first is not None and first > since + NEAR_S else None
