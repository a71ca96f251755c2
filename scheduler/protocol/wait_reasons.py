"""The reasons why a job waits, as values, and the one function that renders them as a sentence.

No value refers back to what holds it, so that the garbage collector need not track them
(`gc=False`): a full queue holds many.
"""

from __future__ import annotations

import time
from typing import assert_never

import msgspec

from gpudeck.language.numbers import amount, clock
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.units import numbered


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

    problem: str


class FolderUnreadable(_Value, frozen=True):
    """The folder of the job cannot be read or written, so that nothing is known of it for now."""

    since: float
    problem: str


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


class NoProcessor(_Value, frozen=True):
    """The job needs no device, and as many such jobs run as there are processors."""

    running: int
    processors: int


class ClusterUnavailable(_Value, frozen=True):
    """The cluster, or its agent, does not answer."""

    cluster: str
    since: float
    problem: str


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
    holder: str
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


Unsatisfiable = TooFewGpus | TooFewOfType | TooLittleMemory | AllDrained
"""Reasons that remain however many other jobs end."""

WaitReason = (
    NotConsidered | StartsNow | QueuePaused | Held | HeldByAdmin | EnvironmentMissing
    | SpecDamaged | AfterJobs | DependencyFailed | NotBefore | RetryLater | StartFailed
    | FolderUnreadable | JustTaken | GroupPaused | GroupFull | NoProcessor | ClusterUnavailable
    | ClusterMissing | ClusterFull | Behind | BehindUser | NoDevices | ReplayShown | OtherDevices
    | Unsatisfiable | NoRoom
)  # fmt: skip

_ENDED = {"failed": "failed", "cancelled": "was cancelled", "lost": "was lost"}
_KINDS = {
    "nvidia": "NVIDIA GPUs",
    "amd": "AMD GPUs",
    "intel": "Intel GPUs",
    "cpu": "the CPU",
}


def render(reason: WaitReason, now: float) -> str:  # noqa: PLR0912 - one line a reason
    """Return the sentence that tells a person why a job waits.

    Args:
        now: seconds since the epoch, by which times of day are chosen or dates are added.
    """
    match reason:
        case NotConsidered():
            return "not considered yet"
        case StartsNow():
            return "starts now"
        case QueuePaused():
            return "the queue is paused"
        case Held(job):
            return f"is on hold; to release it: gpudeck resume {job}"
        case HeldByAdmin():
            return "is on hold; an administrator did that, and only administrators release it"
        case EnvironmentMissing():
            return (
                "is on hold: its environment is lost or damaged in the store. "
                "Submit the job again, and cancel this one"
            )
        case SpecDamaged():
            return (
                "is on hold: its command or options were changed or damaged in the store. "
                "Submit the job again, and cancel this one"
            )
        case AfterJobs((job,), name, end):
            return f"waits for job {job} ({name})" + (f", {_when(end, now)}" if end else "")
        case AfterJobs(jobs):
            return f"waits for {numbered(jobs)}"
        case DependencyFailed(job, status):
            return f"job {job}, which had to succeed first, {_ENDED[status]}"
        case NotBefore(at):
            return f"does not start before {clock(at, now)}"
        case RetryLater(attempt, at):
            at_clock = time.strftime("%H:%M:%S", time.localtime(at))
            return f"attempt {attempt} failed; the next one starts at {at_clock}"
        case StartFailed(problem):
            return problem
        case FolderUnreadable(since, problem):
            return f"its folder has been unreadable since {clock(since, now)}: {problem}"
        case JustTaken(device):
            return f"{device} was just taken by another user's queue; it is tried again soon"
        case GroupPaused(group):
            return f"group {group} is paused"
        case GroupFull(group, running, limit):
            return f"group {group} is at its limit ({running} of {limit or running} running)"
        case NoProcessor(running, processors):
            return f"needs a CPU slot; {running} of {processors} are in use"
        case ClusterUnavailable(cluster, since, problem):
            return f"{cluster} has not answered since {clock(since, now)}: {problem}"
        case ClusterMissing(cluster):
            return f"{cluster} is not in the settings"
        case ClusterFull(cluster, jobs):
            return f"{cluster} already has {jobs} jobs from this queue"
        case Behind(job):
            return f"job {job} is ahead of it"
        case BehindUser(job, used, less):
            return (
                f"job {job} is ahead of it, as its user has had {less:g} GPU-hours lately, and the "
                f"user of this one {used:g} (fair share)"
            )
        case NoDevices():
            return "no device can be read at present"
        case ReplayShown():
            return (
                "a recording is shown (REPLAY), which runs no GPU jobs. "
                "To use this machine's devices: gpudeck daemon start --source auto"
            )
        case OtherDevices(wanted, shown):
            return f"was submitted for {_KINDS[wanted]}; this machine shows {_KINDS[shown]} now"
        case TooFewGpus(gpus, present, cpu):
            found = "no NVIDIA GPU: its CPU counts as 1" if cpu else str(present)
            return f"needs {_gpus(gpus)}; this machine has {found}"
        case TooFewOfType(gpus, gpu_type, present, names):
            return (
                f"needs {_gpus(gpus)} of the type {gpu_type!r}; this machine has {present} "
                f"(its GPUs: {', '.join(names)})"
            )
        case TooLittleMemory(needs, largest):
            return f"{_needs(needs)}; the largest has {amount(largest)}"
        case AllDrained(needs, devices, mig):
            drained = "drained or divided by MIG" if mig else "drained"
            return f"{_needs(needs)}; {drained}: {', '.join(devices)}"
        case NoRoom(needs, blockers, free, more):
            parts = [_blocker(blocker, now) for blocker in blockers]
            parts += [f"{more} more have less"] if more else []
            head = _needs(needs) if free is None else f"{_needs(needs)}; {free} free"
            separator = "; " if free is None else ": "
            return head + (separator + ", ".join(parts) if parts else "")
        case _:
            assert_never(reason)


def headline(reason: WaitReason, now: float) -> str | None:
    """Return the reason as the line of a list, where it does not begin with "Waiting:".

    Args:
        now: As in `render`.
    """
    match reason:
        case StartsNow():
            return "Starting now"
        case Held() | HeldByAdmin() | EnvironmentMissing() | SpecDamaged():
            return f"On hold{render(reason, now).removeprefix('is on hold')}"
        case AfterJobs():
            return f"Waiting for{render(reason, now).removeprefix('waits for')}"
        case DependencyFailed(job, status):
            return f"Can't run: job {job} {_ENDED[status]}"
        case NotBefore(at):
            return f"Waiting until {clock(at, now)}"
        case GroupFull(group, running, limit):
            return f"Waiting for group {group} ({running} of {limit or running} running)"
        case NoProcessor(running, processors):
            return f"Waiting for a CPU slot ({running} of {processors} in use)"
    return None


def _blocker(blocker: Blocker, now: float) -> str:  # noqa: PLR0912 - one line a blocker
    match blocker:
        case Drained(device, mig):
            return f"{device} is divided by MIG" if mig else f"{device} is drained"
        case Booked(device, holder, begin, end):
            since = f"from {clock(begin, now)} " if begin > now else ""
            return f"{device} is reserved for {holder} {since}until {clock(end, now)}"
        case HeldBy(device, job, name, end):
            until = f" until {_when(end, now)}" if end else ""
            return f"{device} is held by job {job} ({name}){until}"
        case SharedBy(device, jobs):
            return f"{device} is shared by {numbered(jobs)}"
        case UsedBy(device):
            return f"{device} is used by {_process(blocker)}"
        case HeldByOthers(device, reserved, holder):
            part = f"{amount(reserved)} of {device} are" if reserved else f"{device} is"
            return f"{part} held by another user's queue{_holder(holder)}"
        case MemoryHeldByOthers(device, free, reserved, holder):
            return (
                f"{device} has {amount(free)} free; another user's queue holds {amount(reserved)}"
                f"{_holder(holder)}"
            )
        case NoReading(device):
            return f"{device} has no current reading"
        case MemoryUnknown(device):
            return f"the memory of {device} cannot be read"
        case MemoryFree(device, free, until, end, user):
            text = f"{device} has {amount(free)} free"
            if until is not None:
                return f"{text} until job {until} ends" + (f", {_when(end, now)}" if end else "")
            if user is not None and user.process.memory:
                return f"{text}; {_process(user)} uses {amount(user.process.memory)}"
            return text
        case _:
            assert_never(blocker)


def _holder(holder: Holder | None) -> str:
    match holder:
        case LockHolder(pid, user):
            return f" (pid {pid} of {user})"
        case Unseen():
            return " (its process cannot be seen from here)"
    return ""


def _process(user: UsedBy) -> str:
    """Return the processes as pid 4711 (python, of ada) and 2 more."""
    process = user.process
    who = ", ".join(filter(None, (process.name, process.user and f"of {process.user}")))
    return f"pid {process.pid} ({who})" + (f" and {user.others} more" if user.others else "")


def _needs(needs: Needs) -> str:
    """Return what a job needs, as "needs 2 GPUs" or "needs 40 GiB on one GPU"."""
    if needs.cpu:
        return f"needs {amount(needs.memory)} of memory" if needs.memory else "needs the CPU"
    typed = f" of the type {needs.gpu_type!r}" if needs.gpu_type else ""
    if needs.memory:
        where = "one GPU" if needs.gpus == 1 else f"each of {needs.gpus} GPUs"
        return f"needs {amount(needs.memory)} on {where}{typed}"
    return f"needs {_gpus(needs.gpus)}{typed}"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _when(end: End, now: float) -> str:
    """Return the end as "about 14:32", or "14:32 at the latest"."""
    return f"{clock(end.at, now)} at the latest" if end.latest else f"about {clock(end.at, now)}"
