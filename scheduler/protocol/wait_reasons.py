"""The reasons why a job waits, as values; `wait_texts` has their texts.

No value refers back to what holds it, so that the garbage collector need not track them
(`gc=False`): a full queue holds many.
"""

from __future__ import annotations

import msgspec

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.busy_causes import BusyCause
from gpudeck.scheduler.protocol.devices import Process


class _Value(msgspec.Struct, frozen=True, gc=False, tag=str.lower):
    """Represent a value that is tagged with the lower-case name of its class."""


class End(msgspec.Struct, frozen=True, gc=False):
    """Describe when a running job is expected to end, in seconds since the epoch."""

    at: float
    latest: bool = False
    """True for a job with a time limit that reports no progress: `at` is when its limit is up."""


class Needs(msgspec.Struct, frozen=True, gc=False):
    """Describe the devices that a job needs."""

    gpus: int
    memory: int = 0
    """Bytes on each device; 0 for a device that it does not share."""
    gpu_type: str = ""
    cpu: bool = False
    """True where the CPU of a machine without a GPU stands in for one."""


class NotConsidered(_Value, frozen=True):
    """The queue has not made a plan since the job was submitted."""


class StartsNow(_Value, frozen=True):
    """Nothing keeps the job from starting in the next moment."""


class QueuePaused(_Value, frozen=True):
    """The user paused the queue."""


class Held(_Value, frozen=True):
    """The user put the job on hold."""

    job: int


class HeldByAdmin(_Value, frozen=True):
    """An administrator of a shared daemon put the job on hold."""


class EnvironmentMissing(_Value, frozen=True):
    """The environment that the job was submitted with is missing or damaged in the store."""


class SpecDamaged(_Value, frozen=True):
    """The command, name or options of the job were changed or damaged in the store."""


class AfterJobs(_Value, frozen=True):
    """The job runs after others that have not ended."""

    jobs: tuple[int, ...]
    name: str = ""
    """Name of the job, where it is only one."""
    end: End | None = None


class DependencyFailed(_Value, frozen=True):
    """The job can never run, because a job that had to succeed first did not."""

    job: int
    status: str
    """How that job ended: failed, cancelled or lost."""


class NotBefore(_Value, frozen=True):
    """The user asked for the job not to start before this time."""

    at: float


class RetryLater(_Value, frozen=True):
    """An attempt failed, and the next one starts after a delay."""

    attempt: int
    at: float


class StartFailed(_Value, frozen=True):
    """The last start of the job failed for a reason outside the job."""

    problem: Message


class FolderUnreadable(_Value, frozen=True):
    """The folder of the job cannot be read or written, so that nothing is known of it for now."""

    since: float
    problem: Message


class JustTaken(_Value, frozen=True):
    """Another user's queue took the device in the moment the job was to start there."""

    device: str


class GroupPaused(_Value, frozen=True):
    """The user paused the job's group."""

    group: str


class GroupFull(_Value, frozen=True):
    """The job's group runs as many jobs as its limit allows."""

    group: str
    running: int
    limit: int = 0
    """0 in stores that did not keep it."""


class UserGpus(_Value, frozen=True):
    """The user's jobs hold as many GPUs as they may."""

    held: int
    limit: int


class UserHours(_Value, frozen=True):
    """The user's jobs have used the GPU-hours of a week."""

    hours: float
    limit: float


class NoProcessor(_Value, frozen=True):
    """The job needs no device, and as many such jobs run as there are processors."""

    running: int
    processors: int


class ClusterUnavailable(_Value, frozen=True):
    """The cluster, or its agent, does not answer."""

    cluster: str
    since: float
    problem: Message


class ClusterMissing(_Value, frozen=True):
    """The cluster of the job is not in the settings any more."""

    cluster: str


class ClusterFull(_Value, frozen=True):
    """The cluster was already given as many jobs as it gets at once."""

    cluster: str
    jobs: int


class Behind(_Value, frozen=True):
    """The devices that the job needs are reserved for another one that comes first."""

    job: int


class BehindUser(_Value, frozen=True):
    """The devices that the job needs are for another user's, who used fewer GPU-hours lately."""

    job: int
    used: float
    """GPU-hours of the user of the job that waits."""
    less: float
    """GPU-hours of the other user."""


class Preempts(_Value, frozen=True):
    """Running jobs of a lower priority are suspended for the job."""

    jobs: tuple[int, ...]
    seconds: float
    """What that takes at most, with their return."""


class TakesTurn(_Value, frozen=True):
    """Running jobs of the same priority leave their devices to the job once their turn is over."""

    jobs: tuple[int, ...]
    at: float
    """When, in seconds since the epoch."""


class NoDevices(_Value, frozen=True):
    """No device can be read."""


class ReplayShown(_Value, frozen=True):
    """The only device is a recording, which runs no jobs."""


class OtherDevices(_Value, frozen=True):
    """The job was submitted for another kind of device than the machine shows now."""

    wanted: str
    shown: str


class TooFewGpus(_Value, frozen=True):
    """The machine does not have as many GPUs as the job needs."""

    gpus: int
    present: int
    cpu: bool


class TooFewOfType(_Value, frozen=True):
    """The machine does not have as many GPUs of the type that the job asks for."""

    gpus: int
    gpu_type: str
    present: int
    names: tuple[str, ...]


class TooLittleMemory(_Value, frozen=True):
    """No device, or too few of them, have as much memory as the job reserves."""

    needs: Needs
    largest: float


class AllDrained(_Value, frozen=True):
    """The devices that the job could use accept no new jobs."""

    needs: Needs
    devices: tuple[str, ...]
    mig: bool


class Drained(_Value, frozen=True):
    """The device accepts no new jobs."""

    device: str
    mig: bool


class Booked(_Value, frozen=True):
    """The device is kept for somebody else for a time, which has begun or begins too soon."""

    device: str
    holder: Message
    begin: float
    end: float


class HeldBy(_Value, frozen=True):
    """A job has the device to itself."""

    device: str
    job: int
    name: str
    end: End | None


class SharedBy(_Value, frozen=True):
    """Jobs share the device, so that no job can have it to itself."""

    device: str
    jobs: tuple[int, ...]


class UsedBy(_Value, frozen=True):
    """Processes that belong to no job use the device."""

    device: str
    process: Process
    """The first of them."""
    others: int
    """How many more there are."""


class LockHolder(_Value, frozen=True):
    """A process holds the lock of a device."""

    pid: int
    user: str


class Unseen(_Value, frozen=True):
    """No process that this user may see holds the lock of a device."""


Holder = LockHolder | Unseen


class HeldByOthers(_Value, frozen=True):
    """The queue of another user holds the device."""

    device: str
    reserved: float = 0.0
    """Bytes that it holds, where it shares the device; 0 for the whole device."""
    holder: Holder | None = None
    """Its process; None while that is not known."""


class MemoryHeldByOthers(_Value, frozen=True):
    """The queue of another user holds so much of the device that too little is free."""

    device: str
    free: float
    reserved: float
    """Bytes that it holds."""
    holder: Holder | None = None
    """Its process; None while that is not known."""


class NoReading(_Value, frozen=True):
    """The device has no current reading, so that nobody knows who uses it."""

    device: str


class MemoryUnknown(_Value, frozen=True):
    """The free memory of the device cannot be read."""

    device: str


class MemoryFree(_Value, frozen=True):
    """The device has this much memory free."""

    device: str
    free: float
    until: int | None = None
    """The job whose end leaves enough memory, where one does."""
    end: End | None = None
    user: UsedBy | None = None
    """The process that uses the memory which is missing, where no job does."""


Blocker = (
    Drained | Booked | HeldBy | SharedBy | UsedBy | HeldByOthers | MemoryHeldByOthers | NoReading
    | MemoryUnknown | MemoryFree
)  # fmt: skip


class NoRoom(_Value, frozen=True):
    """The devices that the job could use are taken."""

    needs: Needs
    devices: tuple[Blocker, ...]
    free: int | None = None
    """How many devices are free; None for a job that shares its devices."""
    more: int = 0
    """How many further devices have less memory free."""


class NotIdle(_Value, frozen=True):
    """The job runs only while devices are idle, and too few of them are."""

    devices: tuple[tuple[str, BusyCause], ...]
    """The devices that are not, and why."""
    cpu: bool = False
    """Whether the only device is the CPU."""


Unsatisfiable = TooFewGpus | TooFewOfType | TooLittleMemory | AllDrained
"""Reasons that remain however many other jobs end."""

QueueReason = (
    GroupPaused | GroupFull | UserGpus | UserHours | NoProcessor | ClusterUnavailable
    | ClusterMissing | ClusterFull | Behind | BehindUser
)  # fmt: skip
"""Reasons that lie in other jobs, or in what may run at once."""
DeviceReason = (
    Preempts | TakesTurn | NoDevices | ReplayShown | OtherDevices | TooFewGpus | TooFewOfType
    | TooLittleMemory | AllDrained | NoRoom | NotIdle
)  # fmt: skip
"""Reasons that lie in the devices."""
WantsDevices = (
    NotConsidered | StartsNow | JustTaken | Behind | BehindUser | Preempts | TakesTurn | NoRoom
)
"""Reasons of a job that starts as soon as the devices are left to it."""
WaitReason = (
    NotConsidered | StartsNow | QueuePaused | Held | HeldByAdmin | EnvironmentMissing
    | SpecDamaged | AfterJobs | DependencyFailed | NotBefore | RetryLater | StartFailed
    | FolderUnreadable | JustTaken | QueueReason | DeviceReason
)  # fmt: skip
