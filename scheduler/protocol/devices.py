"""Describe devices and their readings. Absence is a value: a field without a value has a cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.absence import Absence, Unavailable, explain
from gpudeck.scheduler.protocol.errors import UserError

ASSISTANT_MARK = "GPUDECK_ASSISTANT"
"""A variable in the environment of the assistant's process, which identifies it among others."""


class NA(msgspec.Struct, frozen=True):
    """Stand for a value that is not available, and say why."""

    cause: Absence

    @property
    def reason(self) -> Message:
        """Return the cause as a text for people."""
        return explain(self.cause)


class Process(msgspec.Struct, frozen=True):
    """Describe a process that uses a device."""

    pid: int
    name: str
    user: str = ""
    memory: float | None = None
    """Bytes of the device's memory; None if the driver does not report it."""
    job: int | None = None
    """The id of the job that it belongs to."""
    assistant: bool = False
    """True for our assistant, which leaves when anybody else needs the device."""
    start: float = 0.0
    """Its start, in seconds since the epoch; 0.0 if it is not visible from here."""
    ticks: int = 0
    """Its start in ticks since boot. Together with the pid it identifies a process, as pids are
    reused."""
    command: str = ""
    """Its command line. This field and those that follow are set in a Detail only."""
    container: str = ""
    """The short id or name of its container; empty if it is in none, or not visible."""
    kind: Literal["compute", "graphics", "both", "cpu"] = "compute"
    """How it uses the device; `cpu` for a process of the machine, which uses no GPU."""
    sm: float | None = None
    """Its percentage of the multiprocessors in the last two seconds; None if it is not reported."""
    cpu: float | None = None
    """Its percentage of one CPU core since the last reading; None before the second one."""
    notebook: str = ""
    """The name of the Jupyter notebook whose kernel it is; empty for any other process."""

    @property
    def foreign(self) -> bool:
        """Return True if it is neither a job of ours nor our assistant."""
        return self.job is None and not self.assistant


REPLAYED = "REPLAY "
"""What the names of recorded devices begin with."""


def card_name(name: str) -> str:
    """Return the name of a device as its driver gave it, also where it is recorded."""
    return name.removeprefix(REPLAYED)


def find_process(processes: Iterable[Process], pid: int, ticks: int) -> Process | None:
    """Return the process with this pid and start, in ticks since boot; None where it has ended."""
    return next((p for p in processes if ticks and (p.pid, p.ticks) == (pid, ticks)), None)


class Instance(msgspec.Struct, frozen=True):
    """Describe a MIG instance: a part of a GPU with its own memory and multiprocessors."""

    uuid: str
    name: str
    gpu_instance: int | None = None
    """Its number on the GPU, which processes refer to."""
    sms: int | None = None
    memory: float | None = None
    """The size of its memory in bytes."""


class Device(msgspec.Struct, frozen=True):
    """Describe one device."""

    id: str
    """The GPU's UUID, or `cpu`; the same after a reboot."""
    index: int
    name: str
    kind: Literal["nvidia", "amd", "intel", "cpu", "replay"]
    note: Message = ""
    """Text shown beside the device, e.g. "CPU: no NVIDIA GPU found" or "REPLAY of
    h100.trace.gz"."""
    facts: Mapping[str, Message] = {}
    """Constant properties: driver, VBIOS, number of SMs."""
    mig: bool = False
    """True in MIG mode: programs can use single instances, but never the whole GPU."""
    instances: tuple[Instance, ...] = ()
    """The MIG instances it is divided into."""
    silent: str | None = None
    """The driver's error if the device does not answer; None if it does."""
    host: str = ""
    """The name of the other machine that it belongs to; empty for this one."""
    instance: str = ""
    """What NVIDIA's tools call a MIG instance, such as "0:1" for the second one of GPU 0; empty for
    a whole device."""

    @property
    def number(self) -> str:
        """Return what people type for it: "0", or "0:1"."""
        return self.instance or f"{self.index}"


RATE_OF_TYPES = {"fp16": 1.0, "bf16": 1.0, "fp8": 2.0, "tf32": 0.5}
"""The FLOPs of a data type for each that the counters of a GPU tell, which cannot tell types apart
(`gpudeck.scheduler.devices.nvidia.gpm`)."""


class Reading(msgspec.Struct, frozen=True):
    """Hold everything that was read from one device at one moment.

    The names and units of the fields are in `gpudeck.scheduler.protocol.fields`.
    """

    device: str
    time: float
    """When it was read, in seconds since the epoch."""
    values: dict[str, float]
    absent: Mapping[str, Absence] = {}
    """The cause of each field that has no value."""
    methods: dict[str, Message] = {}
    """How derived fields were computed."""
    texts: dict[str, str] = {}
    """Fields that are text: throttle reasons, the meaning of the last Xid."""
    processes: tuple[Process, ...] = ()
    """The processes that compute on it."""
    since: dict[str, float] = {}
    """The start of each throttle reason in force, by its name."""
    otherwise: Absence = Unavailable("unreported")
    """The cause of every field that is neither in `values` nor in `absent`."""
    drawing: tuple[str, ...] = ()
    """The names of the programs that draw on it."""
    asleep: float | None = None
    """When the device was found asleep, in seconds since the epoch; None while it is awake."""
    precision: str = ""
    """The data type that its jobs state, for which TFLOP/s are told; empty: they state none."""

    def get(self, field: str) -> float | NA:
        """Return the field's value, or NA with the cause."""
        if (value := self.values.get(field)) is not None:
            return value
        return NA(self.absent.get(field, self.otherwise))

    def explained(self) -> dict[str, str]:
        """Return the fields in `absent`, each with a sentence in English that says why."""
        return {field: str(explain(cause)) for field, cause in self.absent.items()}


class Part(msgspec.Struct, frozen=True):
    """Describe a part of a device, such as a link or a core, by fields like those of a reading."""

    kind: Literal["link", "instance", "core", "disk", "network", "sensor"]
    name: str
    values: dict[str, float]
    absent: Mapping[str, Absence] = {}
    texts: dict[str, str] = {}


class Detail(msgspec.Struct, frozen=True):
    """Hold the data of a device that is read on request only."""

    device: str
    time: float
    """When it was read, in seconds since the epoch."""
    parts: tuple[Part, ...] = ()
    processes: tuple[Process, ...] = ()
    """All its processes, each with command line, container and share of the multiprocessors."""
    cpu_processes: tuple[Process, ...] = ()
    """The processes of the machine, of a device that is the CPU. They are apart from `processes`,
    as none of them uses a GPU."""


class Source:
    """Provide readings of hardware, or of a recorded trace. Only the probe process uses it."""

    def devices(self) -> list[Device]:
        """Return the devices that exist now. It is called again after DevicesChanged."""
        raise NotImplementedError

    def read(self, now: float) -> list[Reading]:
        """Return one reading of every device.

        Raises:
            DevicesChanged: The devices are no longer those that `devices` returned.
        """
        raise NotImplementedError

    def occupancy(self, now: float) -> list[Reading]:
        """Return the memory and processes of every device. This is cheap, and allowed at any
        moment.

        Raises:
            DevicesChanged: The devices are no longer those that `devices` returned.
        """
        return []

    def wake(self, wanted: bool) -> None:
        """Wake devices that sleep, as a job needs one, or let them sleep again."""

    def sample(self) -> None:
        """Take a sample. It is called several times between two readings, which report means."""

    def details(self, now: float) -> list[Detail]:
        """Return the details that are too expensive to read all the time.

        Raises:
            DevicesChanged: The devices are no longer those that `devices` returned.
        """
        return []

    def close(self) -> None:
        """Release the hardware or the file."""


class DevicesChanged(Exception):
    """Signal that the source must be reopened: a GPU came or went, or the driver was reloaded."""


class NoGpu(UserError):
    """Signal that this machine has no NVIDIA GPU, or no driver that finds it."""
