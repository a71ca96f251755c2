"""How often the devices are read: fast while somebody looks or a job waits or runs, slowly otherwise, and not at all where that lets
a laptop's GPU sleep. Pure.
"""

from __future__ import annotations

from scheduler.protocol.settings import Settings

CALM_HZ = 0.5
"""Readings a second while nobody looks."""
LINGER_S = 10.0
"""Somebody who asked for something so recently still looks."""
ASLEEP = 0.0
"""No readings: the GPU is not held open."""
SLEEP_NOTICE = (
    "the GPUs are not read, so that they can sleep: nobody looks and no job for a GPU waits or runs. "
    "A window, a command or such a job wakes them (setting: laptop_sleep)"
)


def pace(settings: Settings, watched: bool, may_sleep: bool) -> float:
    """Readings a second; ASLEEP: none. `watched`: somebody looks, or a job for a GPU waits or runs."""
    if watched:
        return settings.telemetry_hz
    return ASLEEP if may_sleep else min(settings.telemetry_hz, CALM_HZ)
