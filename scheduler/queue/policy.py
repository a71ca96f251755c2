"""What starts next, on which device, and why the others wait. Pure: values in, a plan out.

The jobs are looked at in their turn: the higher priority first; within one, as they came or were moved. Each starts where it fits
(see `placement`). The first that cannot start, among those that ask for the same type of GPU, holds as many devices as it needs:
the jobs after it get only what it leaves, so that a job for many GPUs or much memory is not starved by small ones. A job that could
not start were the machine empty holds nothing. Jobs that need no device start when a processor is free.

Jobs that need the same stand in a lane (see `line`). Room only shrinks during a pass, so that of a lane nobody starts after the first
who cannot: a pass over ten thousand jobs looks at as many as start, and at one more in each lane. Of a lane that asks for more than any
device has left no device is looked at, and what keeps a job from starting is put into words only for those who ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from scheduler.protocol.devices import Device
from scheduler.protocol.jobs import STARTS, Group, Job, Spec, turn
from scheduler.queue.blockers import KINDS, why
from scheduler.queue.expected_end import End
from scheduler.queue.lanes import Requirements, Turn, requirements
from scheduler.queue.placement import Availability, Spot, choose, claim, spots

REPLAYED = "a REPLAY is shown, which runs no GPU jobs; it starts on this machine's devices: gpudeck daemon start --source auto"
MAX_GIVEN = 100
"""Jobs that a cluster is given at once."""


class Start(NamedTuple):
    job: Job
    devices: tuple[str, ...]


class Refusal(NamedTuple):
    """Why a lane waits. Empty words: there is no room, which `_Floor.words` tells more of."""

    first: int
    """Id of the first of its jobs that cannot start."""
    own: str
    """Why that one waits."""
    rest: str
    """Why those after it wait."""


class Conditions(NamedTuple):
    """What else decides: the devices as they were read, and what is known of the jobs."""

    sight: Availability = Availability()
    ends: Mapping[int, End] = {}
    """When running jobs are expected to end."""
    now: float = 0.0
    """Seconds since the epoch."""
    groups: Mapping[str, Group] = {}
    clusters: Mapping[str, str] = {}
    """For each cluster why nothing can be started there now; empty where it can."""


JobsByLane = Mapping[Requirements, Iterable[Job]]
"""For each need its jobs that wait and may start, in their turn."""


def plan(
    going: Sequence[Job],
    lanes: JobsByLane,
    devices: Sequence[Device],
    paused: bool,
    slots: int,
    around: Conditions = Conditions(),  # noqa: B008 - a constant
) -> Plan:
    """`going`: the jobs that run. `slots`: how many jobs without a device may run at once."""
    starts: list[Start] = []
    refusals: dict[Requirements, Refusal] = {}
    judge = _Judge(going, devices, paused, slots, around)
    heads = [
        head
        for key, lane in lanes.items()
        if not key.hold and (head := _head(key, iter(lane))) is not None
    ]
    heapify(heads)
    while heads:
        _, key, job, lane = heads[0]
        found = judge.place(job)
        if isinstance(found, str):
            refusals[key] = Refusal(job.id, found, judge.again(job, found))
            heappop(heads)
            continue
        starts.append(Start(job, found))
        if (head := _head(key, lane)) is not None:
            heapreplace(heads, head)
        else:
            heappop(heads)
    return Plan(starts, refusals, judge.floor)


def _head(
    key: Requirements, lane: Iterator[Job]
) -> tuple[Turn, Requirements, Job, Iterator[Job]] | None:
    """Sorts by the turn, which no two jobs share."""
    job = next(lane, None)
    return None if job is None else (turn(job), key, job, lane)


class _Judge:
    """All that a job needs to start, during one pass."""

    def __init__(
        self,
        going: Sequence[Job],
        devices: Sequence[Device],
        paused: bool,
        slots: int,
        around: Conditions,
    ) -> None:
        self._paused, self._around = paused, around
        self._slots = _Slots(sum(not job.spec.gpus and not job.spec.where for job in going), slots)
        self._clusters = _Clusters(going, around.clusters)
        self.floor = _Floor(going, devices, around)
        self._groups = Counter(job.spec.group for job in going)

    def place(self, job: Job) -> tuple[str, ...] | str:
        """The devices it starts on, or why it waits."""
        spec = job.spec
        if self._paused:
            return "the queue is paused"
        if spec.group and (full := _full(self._around.groups.get(spec.group), self._groups)):
            return full
        found = self._found(job)
        if not isinstance(found, str):
            self._groups[spec.group] += 1
        return found

    def _found(self, job: Job) -> tuple[str, ...] | str:
        if job.spec.where:
            return self._clusters.take(job.spec.where)
        return self.floor.place(job) if job.spec.gpus else self._slots.take()

    def again(self, job: Job, reason: str) -> str:
        """Why a job of the same need waits that comes after one which was refused for `reason`."""
        return reason or self.floor.refused(job.spec) or ""


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


class _Clusters:
    """Other machines, which place what they are given themselves; the rest waits here, where it has its turn."""

    def __init__(self, going: Sequence[Job], troubles: Mapping[str, str]) -> None:
        self._given = Counter(job.spec.where for job in going)
        self._troubles = troubles

    def take(self, where: str) -> tuple[str, ...] | str:
        """No device of ours, or why it waits."""
        if trouble := self._troubles.get(where, f"{where} is not in the settings"):
            return trouble
        if self._given[where] >= MAX_GIVEN:
            return f"{where} has {self._given[where]} jobs of ours already"
        self._given[where] += 1
        return ()


class _Floor:
    """The devices during one pass. Room on them only shrinks: what could not be placed need not be tried again."""

    def __init__(self, going: Sequence[Job], devices: Sequence[Device], around: Conditions) -> None:
        self._spots = spots(going, devices, around.sight)
        self._devices, self._around = devices, around
        self._refused: dict[tuple[object, ...], str] = {}
        self._first: dict[str, Job] = {}
        """For each type of GPU: the first job that could not start."""
        self._measure()

    def _measure(self) -> None:
        """How much the devices have left at most, for a job that shares, and how many one may have for itself."""
        left = [spot for spot in self._spots if not (spot.alone or spot.blind)]
        self._most = max(
            (spot.free - spot.claimed for spot in left if spot.free is not None), default=-1.0
        )
        self._empty = sum(not (spot.holders or spot.others or spot.claim) for spot in left)

    def place(self, job: Job) -> tuple[str, ...] | str:
        """The devices it starts on, or why it waits: empty words where there is no room."""
        spec = job.spec
        if (known := self.refused(spec)) is not None:
            return known
        if (elsewhere := self._other_kind(spec)) is not None:
            self._refused[_room(spec)] = elsewhere
            return elsewhere
        lacks = spec.memory > self._most if spec.memory else spec.gpus > self._empty
        if not lacks and (found := choose(spec, self._spots)) is not None:
            for spot in found:
                spot.give(job)
            self._measure()
            return tuple(spot.device.id for spot in found)
        self._refused[_room(spec)] = ""
        if spec.gpu_type not in self._first and self._possible(spec):
            self._first[spec.gpu_type] = job
            claim(job, self._spots)
            self._measure()
            self._refused[_room(spec)] = _behind(job)
        return ""

    def claims(self) -> dict[str, int]:
        """Devices that a job waits for, and its number."""
        return {spot.device.id: spot.claim.id for spot in self._spots if spot.claim is not None}

    def refused(self, spec: Spec) -> str | None:
        """Why jobs wait that need the room of one which was refused; None where none was."""
        return self._refused.get(_room(spec))

    def words(self, job: Job) -> str:
        """Why a job for which there was no room waits: that another is before it, where it would fit but for that one, and among jobs
        that do not share."""
        spec = job.spec
        claims = (spot.claim for spot in self._spots if spot.claim is not None and spot.suits(spec))
        before = (
            other
            for other in (self._first.get(spec.gpu_type), *claims)
            if other is not None and turn(other) < turn(job)
        )
        ahead = next(before, None)
        if (
            ahead is not None
            and self._possible(spec)
            and (not spec.memory or choose(spec, self._spots, claims=False))
        ):
            return _behind(ahead)
        if not self._devices:
            return "no device can be read at present"
        return (
            why(job, self._spots, self._around.ends, self._around.now) if self._spots else REPLAYED
        )

    def _possible(self, spec: Spec) -> bool:
        """Whether it could start were the machine empty."""
        return sum(spot.suits(spec) for spot in self._spots) >= spec.gpus

    def _other_kind(self, spec: Spec) -> str | None:
        """GPUs that are gone for a moment: the job must not run on the CPU meanwhile."""
        kind = _kind(self._spots)
        if kind and spec.kind not in ("", kind):
            return f"was submitted for {KINDS[spec.kind]}; this machine shows {KINDS[kind]} now"
        return None


class Plan(NamedTuple):
    starts: list[Start]
    refusals: dict[Requirements, Refusal]
    """For each lane whose jobs do not all start: why."""
    floor: _Floor
    """The devices as they were left."""

    def claims(self) -> dict[str, int]:
        """Devices that are kept for a job that cannot start yet, and its number."""
        return self.floor.claims()

    def why(self, job: Job) -> str:
        """Why a job that was among those of the lanes waits on."""
        if job.spec.hold:
            return f"is held; to let it go: gpudeck resume {job.id}"
        refusal = self.refusals.get(requirements(job.spec))
        if refusal is None:
            return STARTS
        return (refusal.own if refusal.first == job.id else refusal.rest) or self.floor.words(job)


NOTHING = Plan([], {}, _Floor((), (), Conditions()))
"""What is decided before the first pass."""


def _room(spec: Spec) -> tuple[object, ...]:
    return (spec.gpus, spec.memory, spec.gpu_type, spec.kind)


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
