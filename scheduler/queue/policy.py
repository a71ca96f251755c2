"""What starts next, on which device, and why the others wait. Pure: values in, a plan out.

The jobs are looked at in their turn: the higher priority first; within one, as they came or were moved. Each starts where it fits
(see `placement`). The first that cannot start, among those that ask for the same type of GPU, holds as many devices as it needs:
the jobs after it get only what it leaves, so that a job for many GPUs or much memory is not starved by small ones. A job that could
not start were the machine empty holds nothing. Jobs that need no device start when a processor is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.devices.model import Device
from scheduler.jobs import Group, Job, Queued, Spec
from scheduler.queue.expected import End
from scheduler.queue.placement import Sight, Spot, choose, claim, spots
from scheduler.queue.reasons import KINDS, why


class Start(NamedTuple):
    job: Job
    devices: tuple[str, ...]


class Plan(NamedTuple):
    starts: list[Start]
    reasons: dict[int, str]
    """For each job that waits on: why."""


class Around(NamedTuple):
    """What else decides: the devices as they were read, and what is known of the jobs."""

    sight: Sight = Sight()
    ends: Mapping[int, End] = {}
    """When running jobs are expected to end."""
    now: float = 0.0
    """Seconds since the epoch."""
    kept: Mapping[int, str] = {}
    """Jobs that are not to start whatever is free, and why. They hold nothing."""
    groups: Mapping[str, Group] = {}


def plan(active: Sequence[Job], devices: Sequence[Device], paused: bool, slots: int, around: Around = Around()) -> Plan:  # noqa: B008
    """`active`: jobs that wait or run, in their turn (see `jobs.turn`). `slots`: how many jobs without a device may run at once."""
    going = [job for job in active if not isinstance(job.state, Queued)]
    slot = _Slots(sum(not job.spec.gpus for job in going), slots)
    groups = Counter(job.spec.group for job in going)
    floor = _Floor(going, devices, around)
    kept = around.kept
    starts: list[Start] = []
    reasons: dict[int, str] = {}
    for job in active:  # there may be ten thousand: what is done for each counts
        if not isinstance(job.state, Queued):
            continue
        spec = job.spec
        if paused:
            reasons[job.id] = "the queue is paused"
        elif kept and job.id in kept:
            reasons[job.id] = kept[job.id]
        elif spec.hold:
            reasons[job.id] = f"is held; to let it go: gpudeck resume {job.id}"
        elif spec.group and (full := _full(around.groups.get(spec.group), groups)):
            reasons[job.id] = full
        elif isinstance(found := floor.place(job) if spec.gpus else slot.take(), str):
            reasons[job.id] = found
        else:
            groups[spec.group] += 1
            starts.append(Start(job, found))
    return Plan(starts, reasons)


class _Slots:
    """The processors, for jobs that need no device."""

    def __init__(self, running: int, slots: int) -> None:
        self._running, self._slots = running, slots
        self._full = f"needs a processor; {max(running, slots)} jobs run on {slots} already"

    def take(self) -> tuple[str, ...] | str:
        """No device, or why it waits."""
        if self._running >= self._slots:
            return self._full
        self._running += 1
        return ()


class _Floor:
    """The devices during one pass. Room on them only shrinks: what could not be placed need not be tried again."""

    def __init__(self, going: Sequence[Job], devices: Sequence[Device], around: Around) -> None:
        self._spots = spots(going, devices, around.sight)
        self._devices, self._around = devices, around
        self._refused: dict[tuple[object, ...], str] = {}
        self._first: dict[str, Job] = {}
        """For each type of GPU: the first job that could not start."""

    def place(self, job: Job) -> tuple[str, ...] | str:
        """The devices it starts on, or why it waits."""
        spec = job.spec
        need = (spec.gpus, spec.memory, spec.gpu_type, spec.kind)
        if (known := self._refused.get(need)) is not None:
            return known
        if (elsewhere := self._other_kind(spec)) is not None:
            self._refused[need] = elsewhere
            return elsewhere
        if (found := choose(spec, self._spots)) is not None:
            for spot in found:
                spot.give(job)
            return tuple(spot.device.id for spot in found)
        reason = self._why(job)
        self._refused[need] = reason
        if self._possible(spec) and spec.gpu_type not in self._first:
            self._first[spec.gpu_type] = job
            claim(job, self._spots)
            self._refused[need] = _behind(job)
        return reason

    def _possible(self, spec: Spec) -> bool:
        """Whether it could start were the machine empty."""
        return sum(spot.suits(spec) for spot in self._spots) >= spec.gpus

    def _why(self, job: Job) -> str:
        """In words; that another is before it where it would fit but for that one, and among jobs that do not share."""
        spec = job.spec
        ahead = self._first.get(spec.gpu_type) or next((s.claim for s in self._spots if s.claim and s.suits(spec)), None)
        if ahead is not None and self._possible(spec) and (not spec.memory or choose(spec, self._spots, claims=False)):
            return _behind(ahead)
        return why(job, self._spots, self._around.ends, self._around.now) if self._devices else "no device can be read at present"

    def _other_kind(self, spec: Spec) -> str | None:
        """GPUs that are gone for a moment: the job must not run on the CPU meanwhile."""
        kind = _kind(self._spots)
        if kind and spec.kind not in ("", kind):
            return f"was submitted for {KINDS[spec.kind]}; this machine shows {KINDS[kind]} now"
        return None


def _full(group: Group | None, running: Mapping[str, int]) -> str:
    """Why a group starts nothing; empty where it may."""
    if group is None:
        return ""
    if group.paused:
        return f"group {group.name} is paused"
    if group.limit and running[group.name] >= group.limit:
        return f"group {group.name} runs {running[group.name]} at once already, its limit"
    return ""


def _behind(job: Job) -> str:
    return f"job {job.id} is before it"


def _kind(places: Sequence[Spot]) -> str:
    return places[0].device.kind if places else ""
