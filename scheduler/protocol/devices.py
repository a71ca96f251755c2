"""What a device is and what one reading of it says. Absence is a value: a field that cannot be read says why."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from scheduler.protocol.errors import UserError

ASSISTANT_MARK = "GPUDECK_ASSISTANT"
"""In the environment of the assistant's process, so that a device's list of processes can tell it from others."""


class NA(msgspec.Struct, frozen=True):
    """Not available, and why."""

    reason: str


class Process(msgspec.Struct, frozen=True):
    """A process that uses a device."""

    pid: int
    name: str
    user: str = ""
    memory: float | None = None
    """Bytes of the device's memory; None where the driver does not tell."""
    job: int | None = None
    """Id of the job of ours it belongs to."""
    assistant: bool = False
    """Whether it is our assistant, which makes room for anybody else."""
    start: float = 0.0
    """When it started, in seconds since the epoch; 0.0 where it cannot be seen from here."""
    ticks: int = 0
    """The same in ticks since the machine's boot: with the pid it names one process, whatever becomes of pids and clocks."""
    command: str = ""
    """Its command line; told in a Detail alone, as all that follows."""
    container: str = ""
    """Short id or name of the container it runs in; empty where it is in none, or that cannot be seen."""
    kind: Literal["compute", "graphics", "both"] = "compute"
    sm: float | None = None
    """Percent of the multiprocessors that it used in the last two seconds; None where the driver does not tell."""
    instance: int | None = None
    """The GPU instance of MIG it is on."""
    part: str = ""
    """The name of that instance."""

    @property
    def foreign(self) -> bool:
        """Whether it is neither a job of ours nor our assistant."""
        return self.job is None and not self.assistant


class Instance(msgspec.Struct, frozen=True):
    """A MIG instance: a part of a GPU with memory and multiprocessors of its own."""

    uuid: str
    name: str
    gpu_instance: int | None = None
    """Its number on the GPU, as processes name it."""
    sms: int | None = None
    memory: float | None = None
    """Bytes."""


class Device(msgspec.Struct, frozen=True):
    """One device, as long as it is there."""

    id: str
    """Stable over reboots: the GPU's UUID, or `cpu`."""
    index: int
    name: str
    kind: Literal["nvidia", "cpu", "replay"]
    note: str = ""
    """Said wherever the device is shown, e.g. "CPU: no NVIDIA GPU found" or "REPLAY of h100.trace.gz"."""
    facts: dict[str, str] = {}
    """What does not change: driver, VBIOS, SM count, maximum clocks."""
    mig: bool = False
    """In MIG mode: programs can use its instances, and never all of it."""
    instances: tuple[Instance, ...] = ()
    """The MIG instances it is divided into."""
    silent: str = ""
    """Why it does not answer: it is there, or was, and there are no readings of it. Empty where it does."""


class Reading(msgspec.Struct, frozen=True):
    """All that was read of one device at one moment. Names and units of the fields: `scheduler.protocol.fields`."""

    device: str
    time: float
    """Seconds since the epoch."""
    values: dict[str, float]
    absent: dict[str, str] = {}
    """For each field that has no value: why."""
    methods: dict[str, str] = {}
    """For derived fields: how the figure came about."""
    texts: dict[str, str] = {}
    """Fields that are words: throttle reasons, what the last Xid means."""
    processes: tuple[Process, ...] = ()
    """Those that compute."""
    since: dict[str, float] = {}
    """Since when each throttle reason in force was seen without a break, by its name."""
    otherwise: str = "not reported by this device"
    """Why a field that is neither in `values` nor in `absent` has no value."""
    drawing: tuple[str, ...] = ()
    """Names of the programs that draw on it."""

    def get(self, field: str) -> float | NA:
        """The field's value, or why there is none."""
        if (value := self.values.get(field)) is not None:
            return value
        return NA(self.absent.get(field, self.otherwise))


class Part(msgspec.Struct, frozen=True):
    """A part of a device: a link, a MIG instance, a core, a disk. Its values have the names and units of fields."""

    kind: Literal["link", "instance", "core", "disk", "network", "sensor"]
    name: str
    values: dict[str, float]
    absent: dict[str, str] = {}
    texts: dict[str, str] = {}


class Detail(msgspec.Struct, frozen=True):
    """What is read of a device only while somebody wants to see it."""

    device: str
    time: float
    """Seconds since the epoch."""
    parts: tuple[Part, ...] = ()
    processes: tuple[Process, ...] = ()
    """All of them, with command line, container and share."""


class Source(Protocol):
    """Where readings come from: hardware, or a recorded trace. Used by the probe process alone."""

    def devices(self) -> list[Device]:
        """The devices there are now. Asked again whenever `read` says that they changed."""
        ...

    def read(self, now: float) -> list[Reading]:
        """One reading of every device. Raises DevicesChanged where the set of devices is no longer the one that was told."""
        ...

    def glance(self, now: float) -> list[Reading]:
        """Only memory and processes of every device, cheap and at any moment: who is on it. Raises what `read` raises."""
        ...

    def tick(self) -> None:
        """Called several times between two readings, for sources that average over the interval."""
        ...

    def details(self, now: float) -> list[Detail]:
        """What costs too much to be read all the time. Raises DevicesChanged as `read` does."""
        ...

    def close(self) -> None: ...


class DevicesChanged(Exception):
    """The source must be opened anew: a GPU came, went, or the driver was reloaded."""


class NoGpu(UserError):
    """This machine has no NVIDIA GPU, as far as its driver can tell."""
