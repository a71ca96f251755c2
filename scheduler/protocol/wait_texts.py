"""The texts of the reasons why a job waits: `explain` in full, `headline` as the line of a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, assert_never

from gpudeck.language.rendering import render as words_of
from gpudeck.language.text import Bytes, Message, Moment, Number, Text, joined, moment, phrase
from gpudeck.scheduler.protocol import busy_causes
from gpudeck.scheduler.protocol.units import list_jobs
from gpudeck.scheduler.protocol.wait_reasons import (
    AfterJobs,
    AllDrained,
    Behind,
    BehindUser,
    Blocker,
    Booked,
    ClusterFull,
    ClusterMissing,
    ClusterUnavailable,
    DependencyFailed,
    DeviceReason,
    Drained,
    End,
    EnvironmentMissing,
    FolderUnreadable,
    GroupFull,
    GroupPaused,
    Held,
    HeldBy,
    HeldByAdmin,
    HeldByOthers,
    Holder,
    JustTaken,
    LockHolder,
    MemoryFree,
    MemoryHeldByOthers,
    MemoryUnknown,
    Needs,
    NoDevices,
    NoProcessor,
    NoReading,
    NoRoom,
    NotBefore,
    NotConsidered,
    NotIdle,
    OtherDevices,
    Preempts,
    QueuePaused,
    QueueReason,
    ReplayShown,
    RetryLater,
    SharedBy,
    SpecDamaged,
    StartFailed,
    StartsNow,
    TakesTurn,
    TooFewGpus,
    TooFewOfType,
    TooLittleMemory,
    Unseen,
    UsedBy,
    UserGpus,
    UserHours,
    WaitReason,
)

_KINDS = {
    "nvidia": phrase("NVIDIA GPUs"),
    "amd": phrase("AMD GPUs"),
    "intel": phrase("Intel GPUs"),
    "cpu": phrase("the CPU"),
}


def render(reason: WaitReason, now: float) -> str:
    """Return in English why a job waits.

    Args:
        now: As in `explain`.
    """
    return words_of(explain(reason, now))


def explain(reason: WaitReason, now: float) -> Message:  # noqa: PLR0912 - one line a reason
    """Return the text that tells a person why a job waits.

    Args:
        now: seconds since the epoch, by which times of day are chosen or dates are added.
    """
    if isinstance(reason, QueueReason):
        return _explain_queue(reason, now)
    if isinstance(reason, DeviceReason):
        return _explain_devices(reason, now)
    match reason:
        case NotConsidered():
            return phrase("not considered yet")
        case StartsNow():
            return phrase("starts now")
        case QueuePaused():
            return phrase("the queue is paused")
        case Held(job):
            return phrase("is on hold; to release it: {command}", command=f"gpudeck resume {job}")
        case HeldByAdmin():
            return phrase(
                "is on hold; an administrator did that, and only administrators release it"
            )
        case EnvironmentMissing():
            return phrase(
                "is on hold: its environment is lost or damaged in the store. "
                "Submit the job again, and cancel this one"
            )
        case SpecDamaged():
            return phrase(
                "is on hold: its command or options were changed or damaged in the store. "
                "Submit the job again, and cancel this one"
            )
        case AfterJobs((job,), name, None):
            return phrase("waits for job {job} ({name})", job=job, name=name)
        case AfterJobs((job,), name, End() as end):
            when = _when(end, now)
            return phrase("waits for job {job} ({name}), {when}", job=job, name=name, when=when)
        case AfterJobs(jobs):
            return phrase("waits for {jobs}", jobs=list_jobs(jobs))
        case DependencyFailed(job, "failed"):
            return phrase("job {job}, which had to succeed first, failed", job=job)
        case DependencyFailed(job, "cancelled"):
            return phrase("job {job}, which had to succeed first, was cancelled", job=job)
        case DependencyFailed(job):
            return phrase("job {job}, which had to succeed first, was lost", job=job)
        case NotBefore(at):
            return phrase("does not start before {time}", time=moment(at, now))
        case RetryLater(attempt, at):
            return phrase(
                "attempt {n} failed; the next one starts at {time}",
                n=attempt,
                time=Moment(at, "seconds"),
            )
        case StartFailed(problem):
            return problem
        case FolderUnreadable(since, problem):
            return phrase(
                "its folder has been unreadable since {time}: {problem}",
                time=moment(since, now),
                problem=problem,
            )
        case JustTaken(device):
            return phrase(
                "{device} was just taken by another user's queue; it is tried again soon",
                device=device,
            )
        case _:
            assert_never(reason)


def _explain_queue(reason: QueueReason, now: float) -> Message:
    match reason:
        case GroupPaused(group):
            return phrase("group {group} is paused", group=group)
        case GroupFull(group, running, limit):
            return phrase(
                "group {group} is at its limit ({n} of {limit} running)",
                group=group,
                n=running,
                limit=limit or running,
            )
        case UserGpus(held, limit):
            return phrase(
                "its user's limit of GPUs is reached ({n} of {limit} held)", n=held, limit=limit
            )
        case UserHours(hours, limit):
            return phrase(
                "its user's limit of GPU-hours is reached ({used} of {limit} in seven days)",
                used=Number(hours, ".1f"),
                limit=Number(limit),
            )
        case NoProcessor(running, processors):
            return phrase(
                "needs a CPU slot; {n} of {limit} are in use", n=running, limit=processors
            )
        case ClusterUnavailable(cluster, since, problem):
            return phrase(
                "{cluster} has not answered since {time}: {problem}",
                cluster=cluster,
                time=moment(since, now),
                problem=problem,
            )
        case ClusterMissing(cluster):
            return phrase("{cluster} is not in the settings", cluster=cluster)
        case ClusterFull(cluster, jobs):
            return phrase("{cluster} already has {n} jobs from this queue", cluster=cluster, n=jobs)
        case Behind(job):
            return phrase("job {job} is ahead of it", job=job)
        case BehindUser(job, used, less):
            return phrase(
                "job {job} is ahead of it, as its user has had {less} GPU-hours lately, and the "
                "user of this one {used} (fair share)",
                job=job,
                less=less,
                used=used,
            )
        case _:
            assert_never(reason)


def _explain_devices(reason: DeviceReason, now: float) -> Message:  # noqa: PLR0912 - as above
    match reason:
        case Preempts(jobs):
            return phrase("takes the GPU of {jobs}, suspended for it", jobs=list_jobs(jobs))
        case TakesTurn(jobs, at):
            return phrase(
                "takes the GPU of {jobs} at {time}, when their turn is over",
                jobs=list_jobs(jobs),
                time=moment(at, now),
            )
        case NoDevices():
            return phrase("no device can be read at present")
        case ReplayShown():
            return phrase(
                "a recording is shown (REPLAY), which runs no GPU jobs. "
                "To use this machine's devices: {command}",
                command="gpudeck daemon start --source auto",
            )
        case OtherDevices(wanted, shown):
            return phrase(
                "was submitted for {kind}; this machine shows {shown} now",
                kind=_KINDS[wanted],
                shown=_KINDS[shown],
            )
        case TooFewGpus(gpus, present, cpu):
            found = phrase("no NVIDIA GPU: its CPU counts as 1") if cpu else present
            return phrase("{sub}; this machine has {rest}", sub=_needs(Needs(gpus)), rest=found)
        case TooFewOfType(gpus, gpu_type, present, names):
            return phrase(
                "{sub}; this machine has {n} (its GPUs: {devices})",
                sub=_needs(Needs(gpus, gpu_type=gpu_type)),
                n=present,
                devices=joined(names),
            )
        case TooLittleMemory(needs, largest):
            sub = _needs(needs)
            return phrase("{sub}; the largest has {amount}", sub=sub, amount=Bytes(largest))
        case AllDrained(needs, devices, mig):
            sub, drained = _needs(needs), joined(devices)
            if mig:
                return phrase("{sub}; drained or divided by MIG: {rest}", sub=sub, rest=drained)
            return phrase("{sub}; drained: {rest}", sub=sub, rest=drained)
        case NoRoom(needs, blockers, free, more):
            return _no_room(_needs(needs), [_blocker(b, now) for b in blockers], free, more)
        case NotIdle(((_, cause),), True):
            why = busy_causes.explain(cause)
            return phrase("runs while the CPU is idle; {why}", why=why)
        case NotIdle(devices):
            busy = [
                phrase("{device}: {why}", device=name, why=busy_causes.explain(cause))
                for name, cause in devices
            ]
            return phrase("runs while GPUs are idle; {why}", why=joined(busy, "; "))
        case _:
            assert_never(reason)


def _no_room(needs: Text, blockers: list[Text], free: int | None, more: int) -> Text:
    parts = joined(blockers + ([phrase("{n} more have less", n=more)] if more else []))
    if free is None:
        return phrase("{sub}; {rest}", sub=needs, rest=parts) if blockers or more else needs
    if blockers or more:
        return phrase("{sub}; {n} free: {rest}", sub=needs, n=free, rest=parts)
    return phrase("{sub}; {n} free", sub=needs, n=free)


def headline(reason: WaitReason, now: float) -> Text:  # noqa: PLR0912 - one line a reason
    """Return the reason as the line of a list.

    Args:
        now: As in `explain`.
    """
    match reason:
        case StartsNow():
            return phrase("Starting now")
        case Held(job):
            return phrase("On hold; to release it: {command}", command=f"gpudeck resume {job}")
        case HeldByAdmin():
            return phrase("On hold; an administrator did that, and only administrators release it")
        case EnvironmentMissing():
            return phrase(
                "On hold: its environment is lost or damaged in the store. Submit the job again,"
                " and cancel this one"
            )
        case SpecDamaged():
            return phrase(
                "On hold: its command or options were changed or damaged in the store. Submit the"
                " job again, and cancel this one"
            )
        case AfterJobs((job,), name, None):
            return phrase("Waiting for job {job} ({name})", job=job, name=name)
        case AfterJobs((job,), name, End() as end):
            when = _when(end, now)
            return phrase("Waiting for job {job} ({name}), {when}", job=job, name=name, when=when)
        case AfterJobs(jobs):
            return phrase("Waiting for {jobs}", jobs=list_jobs(jobs))
        case DependencyFailed(job, "failed"):
            return phrase("Can't run: job {job} failed", job=job)
        case DependencyFailed(job, "cancelled"):
            return phrase("Can't run: job {job} was cancelled", job=job)
        case DependencyFailed(job):
            return phrase("Can't run: job {job} was lost", job=job)
        case NotBefore(at):
            return phrase("Waiting until {time}", time=moment(at, now))
        case GroupFull(group, running, limit):
            return phrase(
                "Waiting for group {group} ({n} of {limit} running)",
                group=group,
                n=running,
                limit=limit or running,
            )
        case UserGpus(held, limit):
            return phrase(
                "Waiting for the user's limit ({n} of {limit} GPUs held)", n=held, limit=limit
            )
        case UserHours(hours, limit):
            return phrase(
                "Waiting for the user's limit ({used} of {limit} GPU-hours in seven days)",
                used=Number(hours, ".1f"),
                limit=Number(limit),
            )
        case NoProcessor(running, processors):
            return phrase(
                "Waiting for a CPU slot ({n} of {limit} in use)", n=running, limit=processors
            )
        case NoRoom(_, blockers) if (found := _next_end(blockers)) is not None:
            return found.headline(now)
    return phrase("Waiting: {why}", why=explain(reason, now))


class _NextEnd(NamedTuple):
    """Name the job whose end frees a device first."""

    name: str
    device: str
    end: End | None

    def headline(self, now: float) -> Text:
        if self.end is None:
            return phrase("Waits for {name} on {device}", name=self.name, device=self.device)
        at = moment(self.end.at, now)
        if self.end.latest:
            return phrase("Waits for {name}, free by {time} at the latest", name=self.name, time=at)
        return phrase("Waits for {name}, free about {time}", name=self.name, time=at)


def _next_end(blockers: Sequence[Blocker]) -> _NextEnd | None:
    """Return the job whose end frees a device first; None where jobs are not all that holds it."""
    held = [b for b in blockers if isinstance(b, HeldBy)]
    if not held:
        return None
    first = min(held, key=lambda b: math.inf if b.end is None else b.end.at)
    return _NextEnd(first.name or f"job {first.job}", first.device, first.end)


def _blocker(blocker: Blocker, now: float) -> Text:  # noqa: PLR0912 - one line a blocker
    match blocker:
        case Drained(device, True):
            return phrase("{device} is divided by MIG", device=device)
        case Drained(device):
            return phrase("{device} is drained", device=device)
        case Booked(device, holder, begin, end) if begin > now:
            return phrase(
                "{device} is reserved for {holder} from {begin} until {end}",
                device=device,
                holder=holder,
                begin=moment(begin, now),
                end=moment(end, now),
            )
        case Booked(device, holder, _, end):
            return phrase(
                "{device} is reserved for {holder} until {end}",
                device=device,
                holder=holder,
                end=moment(end, now),
            )
        case HeldBy(device, job, name, end):
            if end is None:
                return phrase(
                    "{device} is held by job {job} ({name})", device=device, job=job, name=name
                )
            return phrase(
                "{device} is held by job {job} ({name}) until {when}",
                device=device,
                job=job,
                name=name,
                when=_when(end, now),
            )
        case SharedBy(device, jobs):
            return phrase("{device} is shared by {jobs}", device=device, jobs=list_jobs(jobs))
        case UsedBy(device):
            return phrase("{device} is used by {process}", device=device, process=_process(blocker))
        case HeldByOthers(device, 0.0, found):
            return phrase(
                "{device} is held by another user's queue{holder}",
                device=device,
                holder=_holder(found),
            )
        case HeldByOthers(device, reserved, found):
            return phrase(
                "{amount} of {device} are held by another user's queue{holder}",
                amount=Bytes(reserved),
                device=device,
                holder=_holder(found),
            )
        case MemoryHeldByOthers(device, free, reserved, found):
            return phrase(
                "{device} has {amount} free; another user's queue holds {size}{holder}",
                device=device,
                amount=Bytes(free),
                size=Bytes(reserved),
                holder=_holder(found),
            )
        case NoReading(device):
            return phrase("{device} has no current reading", device=device)
        case MemoryUnknown(device):
            return phrase("the memory of {device} cannot be read", device=device)
        case MemoryFree():
            return _memory_free(blocker, now)
        case _:
            assert_never(blocker)


def _memory_free(blocker: MemoryFree, now: float) -> Text:
    free, user = Bytes(blocker.free), blocker.user
    if blocker.until is not None and blocker.end is not None:
        return phrase(
            "{device} has {amount} free until job {job} ends, {when}",
            device=blocker.device,
            amount=free,
            job=blocker.until,
            when=_when(blocker.end, now),
        )
    if blocker.until is not None:
        return phrase(
            "{device} has {amount} free until job {job} ends",
            device=blocker.device,
            amount=free,
            job=blocker.until,
        )
    if user is not None and user.process.memory:
        return phrase(
            "{device} has {amount} free; {process} uses {size}",
            device=blocker.device,
            amount=free,
            process=_process(user),
            size=Bytes(user.process.memory),
        )
    return phrase("{device} has {amount} free", device=blocker.device, amount=free)


def _holder(holder: Holder | None) -> Message:
    match holder:
        case LockHolder(pid, user):
            return phrase(" (pid {n} of {user})", n=pid, user=user)
        case Unseen():
            return phrase(" (its process cannot be seen from here)")
    return ""


def _process(user: UsedBy) -> Text:
    """Return the processes as pid 4711 (python, of ada) and 2 more."""
    process = user.process
    owner = phrase("of {user}", user=process.user) if process.user else ""
    who = joined(filter(None, (process.name, owner)))
    first = phrase("pid {n} ({name})", n=process.pid, name=who)
    if not user.others:
        return first
    return phrase("{process} and {more} more", process=first, more=user.others)


def _needs(needs: Needs) -> Text:
    """Return what a job needs, as "needs 2 GPUs" or "needs 40 GiB on one GPU"."""
    memory, gpus = Bytes(needs.memory), needs.gpus
    if needs.cpu and needs.memory:
        return phrase("needs {amount} of memory", amount=memory)
    if needs.cpu:
        return phrase("needs the CPU")
    if needs.memory and gpus == 1:
        text = phrase("needs {amount} on one GPU", amount=memory)
    elif needs.memory:
        text = phrase("needs {amount} on each of {n} GPUs", amount=memory, n=gpus)
    else:
        text = phrase("needs 1 GPU") if gpus == 1 else phrase("needs {n} GPUs", n=gpus)
    if not needs.gpu_type:
        return text
    return phrase("{needs} of the type {kind}", needs=text, kind=repr(needs.gpu_type))


def _when(end: End, now: float) -> Text:
    """Return the end as "about 14:32", or "14:32 at the latest"."""
    at = moment(end.at, now)
    return (
        phrase("{time} at the latest", time=at) if end.latest else phrase("about {time}", time=at)
    )
