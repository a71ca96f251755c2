"""Describe the state of everything at one moment: immutable, and all that a view needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gpudeck.language.rendering import json_in_english
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol import absence, busy_causes, wait_texts
from gpudeck.scheduler.protocol.busy_causes import BusyCause
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.wait_reasons import ClusterUnavailable

STARTING: Message = phrase("starting")
"""The source of a snapshot before the first message of its probe; its devices are the old ones."""

SLEEP_NOTICE = phrase(
    "the GPUs are not read so that they can sleep: nobody is watching, and no job for a GPU waits "
    "or runs. A window, a command or such a job wakes them (setting: {name})",
    name="laptop_sleep",
)


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """Describe a device that the assistant may use."""

    since: float
    """Seconds since the epoch."""


class Busy(msgspec.Struct, frozen=True, tag="busy"):
    """Describe a device that the assistant may not use, and why."""

    cause: BusyCause

    @property
    def reason(self) -> Message:
        """Return the cause as a text for people."""
        return busy_causes.explain(self.cause)


class DeviceState(msgspec.Struct, frozen=True):
    """Combine a device with its newest reading and its use."""

    device: Device
    reading: Reading | None
    """None before the first reading, and while the probe does not answer."""
    use: Idle | Busy
    holders: tuple[int, ...] = ()
    """Ids of the jobs that hold the device: one, or several that share it."""
    leased: bool = False
    """True while the assistant has a lease on it."""


class Alert(msgspec.Struct, frozen=True):
    """Point out a problem: raised by a rule, cleared once its cause is gone."""

    id: int
    rule: str
    """Of `gpudeck.scheduler.telemetry.alert_rules`: too hot, memory nearly full, ..."""
    device: str
    """Id of the device it is about; empty where it is about a job alone."""
    job: int | None
    text: Message
    """The problem, in one line."""
    since: float
    """When its cause began, seconds since the epoch."""
    raised: float
    cleared: float | None = None
    acknowledged: bool = False
    """True once somebody has acknowledged it."""
    peak: float | None = None
    """The highest level that the rule compared while the alert was raised."""
    cleared_text: Message = ""
    """The text once it is cleared; empty where it stays the same."""
    process: int | None = None
    """The pid of the program that it is about, which can be suspended; None for any other alert."""
    clearing: bool = False
    """True while its cause is over, and it is not cleared yet."""


class HostState(msgspec.Struct, frozen=True):
    """Describe another machine, whose devices are read over ssh."""

    name: str
    address: str
    """What is given to ssh."""
    since: float
    """When it was reached, or when it could no longer be reached, in seconds since the epoch."""
    problem: Message | None = None
    """Why it cannot be reached; None while it can."""
    devices: tuple[DeviceState, ...] = ()
    """Its devices as they are, or as they were when it could last be reached."""
    how: str = ""
    """What its devices are read with, such as NVML."""
    deck: str = ""
    """The socket of the GPU Deck there; empty where none was found."""


class Snapshot(msgspec.Struct, frozen=True):
    """Hold the state of the daemon at one moment."""

    seq: int
    """Counts up by one with every snapshot of this daemon."""
    time: float
    devices: tuple[DeviceState, ...]
    jobs: tuple[Job, ...]
    """The jobs that run, those that wait and are next, and those that ended last; newest first."""
    settings: Settings
    source: Message
    """Where the readings come from: nvml, cpu, or replay FILE; or STARTING."""
    notices: tuple[Message, ...] = ()
    """Problems that the user should know: the disk is full, the probe is being replaced, ..."""
    paused: bool = False
    """True while the queue starts nothing new."""
    alerts: tuple[Alert, ...] = ()
    """Those whose cause is still there, oldest first."""
    waiting: int = 0
    """The number of jobs that wait; `jobs` may hold fewer."""
    unavailable: dict[str, ClusterUnavailable] = {}
    """The clusters that can start nothing now, and why."""
    hosts: tuple[HostState, ...] = ()
    """Other machines, by name."""
    unlimited: Message = ""
    """Why the host memory and CPUs of jobs cannot be limited; empty where they can."""

    @property
    def recording(self) -> str:
        """Return the name of the file that is replayed; empty where the devices are real."""
        values = {} if isinstance(self.source, str) else dict(self.source.values)
        return str(values.get("file", ""))

    @property
    def is_recorded(self) -> bool:
        """Return whether the devices are those of a recording."""
        return any(state.device.kind == "replay" for state in self.devices)


def everywhere(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the devices of other machines after those of this one."""
    if not snapshot.hosts:
        return snapshot
    others = (state for host in snapshot.hosts for state in host.devices)
    return msgspec.structs.replace(snapshot, devices=(*snapshot.devices, *others))


NOT_SHOWN = "(set)"
"""Stands for a setting that may be a secret, and is not empty."""


def printable(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as values for JSON, with each cause as the sentence that people read.

    The address of the webhook may be a secret, and is left out.
    """
    encoded = json_in_english(msgspec.json.encode(snapshot))  # results are Raw
    values: dict[str, Any] = msgspec.json.decode(encoded)
    _explain(snapshot.devices, values["devices"])
    for host, printed in zip(snapshot.hosts, values["hosts"], strict=True):
        _explain(host.devices, printed["devices"])
    if snapshot.settings.webhook:
        values["settings"]["webhook"] = NOT_SHOWN
    for name, reason in snapshot.unavailable.items():
        values["unavailable"][name] = wait_texts.render(reason, snapshot.time)
    return values


def _explain(states: Sequence[DeviceState], printed: list[dict[str, Any]]) -> None:
    """Write the causes of the devices as sentences."""
    for state, values in zip(states, printed, strict=True):
        values["device"]["silent"] = state.device.silent or ""
        if isinstance(state.use, Busy):
            values["use"] = {"type": "busy", "reason": str(state.use.reason)}
        if state.reading is not None:
            values["reading"]["absent"] = state.reading.explained()
            values["reading"]["otherwise"] = str(absence.explain(state.reading.otherwise))


class Columns(msgspec.Struct, frozen=True):
    """Hold one device's history: `columns[field][i]` belongs to `times[i]`; None: no value."""

    times: list[float]
    columns: dict[str, list[float | None]]
    """The mean, where a row stands for several readings."""
    low: dict[str, list[float | None]] = {}
    """The lowest of these readings."""
    high: dict[str, list[float | None]] = {}
    """The highest of them."""


def label(device: Device) -> str:
    """Return the short name of a device: "GPU 0", "CPU", or "lab1 GPU 0" on another machine."""
    name = "CPU" if device.kind == "cpu" else f"GPU {device.number}"
    return f"{device.host} {name}" if device.host else name


def full_label(device: Device) -> str:
    """Return the label, with REPLAY before it for a recording: "REPLAY GPU 0"."""
    return f"REPLAY {label(device)}" if device.kind == "replay" else label(device)
