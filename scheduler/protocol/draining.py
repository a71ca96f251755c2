"""Which GPUs get no new jobs: the setting `drained` lists them by UUID or index."""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.settings import Settings, listed


def is_drained(settings: Settings, device: Device) -> bool:
    """Return whether no new jobs start on a device."""
    return not listed(settings.drained).isdisjoint(_names(device))


def drained(settings: Settings, devices: Iterable[Device], drain: bool) -> str:
    """Return the setting after these devices were drained, or taken back."""
    found = set(listed(settings.drained))
    for device in devices:
        found -= _names(device)
        found |= {device.id} if drain else set()
    return ", ".join(sorted(found))


def _names(device: Device) -> set[str]:
    return {device.id, device.number}
