"""The state of everything at one moment: immutable, and all a view needs."""

from __future__ import annotations

import msgspec

from scheduler.protocol.devices import Device, Reading
from scheduler.protocol.jobs import Job
from scheduler.protocol.settings import Settings

STARTING = "starting"
"""The source of a snapshot until its probe has spoken; its devices are those of the source before, where there was one."""


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
    holders: tuple[int, ...] = ()
    """Ids of the jobs that hold the device: one, or several that share it."""
    leased: bool = False
    """The assistant has it, until anybody else needs it."""


class Alert(msgspec.Struct, frozen=True):
    """Something that a person should look at: raised by a rule, cleared once its cause is gone."""

    id: int
    rule: str
    """Of `scheduler.telemetry.rules`: too hot, memory nearly full, ..."""
    device: str
    """Id of the device it is about; empty where it is about a job alone."""
    job: int | None
    text: str
    """What is the matter, in one line."""
    since: float
    """When its cause began, seconds since the epoch."""
    raised: float
    cleared: float | None = None
    acknowledged: bool = False
    """Somebody has seen it."""


class Snapshot(msgspec.Struct, frozen=True):
    seq: int
    """Counts up by one with every snapshot of this daemon."""
    time: float
    devices: tuple[DeviceState, ...]
    jobs: tuple[Job, ...]
    """The jobs that run, those that wait and are next, and those that ended last; newest first."""
    settings: Settings
    source: str
    """Where the readings come from: nvml, cpu, or replay FILE; or STARTING."""
    notices: tuple[str, ...] = ()
    """What the user should know: the probe is being replaced, the disk is full, ..."""
    paused: bool = False
    """The queue starts nothing new."""
    alerts: tuple[Alert, ...] = ()
    """Those whose cause is still there, oldest first."""
    waiting: int = 0
    """How many jobs wait; `jobs` may hold fewer."""


class Columns(msgspec.Struct, frozen=True):
    """One device's past: `columns[field][i]` belongs to `times[i]`; None where there was no value."""

    times: list[float]
    columns: dict[str, list[float | None]]
    """Where a row stands for several readings: their mean."""
    low: dict[str, list[float | None]] = {}
    """The lowest of them."""
    high: dict[str, list[float | None]] = {}
    """The highest."""


def label(device: Device) -> str:
    """What people call the device: "GPU 0", or "CPU"."""
    return "CPU" if device.kind == "cpu" else f"GPU {device.index}"


def called(device: Device) -> str:
    """As `label`, and REPLAY before it where nothing else says that it is of a recording: "REPLAY GPU 0"."""
    return f"REPLAY {label(device)}" if device.kind == "replay" else label(device)
