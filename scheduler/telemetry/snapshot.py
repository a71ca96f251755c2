"""The state of everything at one moment: immutable, and all a view needs."""

from __future__ import annotations

import msgspec

from scheduler.devices.model import Device, Reading
from scheduler.jobs import Job
from scheduler.settings import Settings


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    since: float


class Busy(msgspec.Struct, frozen=True, tag="busy"):
    reason: str


class DeviceState(msgspec.Struct, frozen=True):
    """A device, its newest reading, and whether it is idle."""

    device: Device
    reading: Reading | None
    """None before the first reading, and while the probe does not answer."""
    use: Idle | Busy
    holder: int | None = None
    """Id of the job that holds the device."""


class Snapshot(msgspec.Struct, frozen=True):
    seq: int
    """Counts up by one with every snapshot of this daemon."""
    time: float
    devices: tuple[DeviceState, ...]
    jobs: tuple[Job, ...]
    """All jobs that wait or run, and those that ended last, newest first."""
    settings: Settings
    source: str
    """Where the readings come from: nvml, cpu, or replay FILE."""
    notices: tuple[str, ...] = ()
    """What the user should know: the probe is being replaced, the disk is full, ..."""
    paused: bool = False
    """The queue starts nothing new."""


class Columns(msgspec.Struct, frozen=True):
    """One device's past: `columns[field][i]` belongs to `times[i]`; None where there was no value."""

    times: list[float]
    columns: dict[str, list[float | None]]
