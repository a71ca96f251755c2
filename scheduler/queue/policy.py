"""What starts next, on which device, and why the others wait.

The jobs are placed in the order they are served: the higher priority first, within one those of the
user with the least GPU-hours where several share the queue (see `fair_share`), and those of one
user as they came or were moved. Each starts where it fits (see `placement`). The first that cannot
start, among those that ask for the same type of GPU, reserves as many devices as it needs: the jobs
after it get only what it leaves, so that small jobs do not starve one for many GPUs or much memory.
A job that could not start on an empty machine, or only after a booking, reserves nothing. A job
with a time limit may use what is reserved until it is needed (see `backfill`). Jobs that need
no device start when a processor is free.

Jobs that need the same form a lane (see `lanes`). Room only shrinks during a pass, so that nothing
in a lane starts after the first job that cannot: a pass over ten thousand jobs looks at as many as
start, and at one more in each lane. The reason why a job waits is worked out for those who ask.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace, merge
from itertools import chain, islice
from typing import NamedTuple

from gpudeck.scheduler.attempts import running
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Group, Job, Running, Spec, suspension_of, turn
from gpudeck.scheduler.protocol.snapshot import label
from gpudeck.scheduler.queue.backfill import MAX_CONSIDERED, Backfill, reserve
from gpudeck.scheduler.queue.blockers import no_room
from gpudeck.scheduler.queue.fair_share import Order, User
from gpudeck.scheduler.queue.lanes import Requirements, Turn, requirements
from gpudeck.scheduler.queue.placement import Availability, Slot, choose, make_slots
from gpudeck.scheduler.queue.preemption import Offer, find_offer, find_turn
from gpudeck.scheduler.queue.user_limits import Allowance

MAX_PER_CLUSTER = 100
"""Jobs that a cluster is given at once."""


class Start(NamedTuple):
    """A job that starts, and the ids of its devices."""

    job: Job
    devices: tuple[str, ...]


class Conditions(NamedTuple):
    """Describe what decides besides the jobs themselves."""

    availability: Availability = Availability()
    ends: Mapping[int, w.End] = {}
    """When running jobs are expected to end."""
    now: float = 0.0
    """Seconds since the epoch."""
    groups: Mapping[str, Group] = {}
    clusters: Mapping[str, w.WaitReason | None] = {}
    """For each cluster why nothing can be started there now; None where it can."""
    paused: bool = False
    processors: int = 1
    """How many jobs that need no device may run at once."""
    hours: Mapping[User, float] = {}
    """The GPU-hours of each user; empty where users are not told apart."""
    allowances: Mapping[User, Allowance] = {}
    """What users with a limit may use and have used."""
    kept: Collection[int] = ()
    """Running jobs that could not be suspended a while ago, and are not tried again yet."""
    turns: float = math.inf
    """Seconds after which preemptible jobs of the same priority leave their GPUs to each other."""


_Sharers = tuple[User, bool]
"""A user, and whether the jobs need GPUs: those with and without wait for different things."""

JobsByLane = Mapping[Requirements, Iterable[Job]]
"""For each lane its jobs that wait and may start, the first to be served first."""


def make_plan(
    running: Iterable[Job],
    lanes: JobsByLane,
    devices: Sequence[Device],
    conditions: Conditions = Conditions(),  # noqa: B008 - a constant
) -> Plan:
    """Return which jobs start now."""
    starts: list[Start] = []
    refusals: dict[Requirements, w.WaitReason | None] = {}
    started = list(running)
    limits = _Limits(started, devices, conditions)
    due = [job for job in started if is_due(job, conditions.now)]
    returns: list[Job] = []
    heads, order = _heads(lanes), limits.order

    def return_key(job: Job) -> tuple[float, float, float, float]:
        """Return where a suspended job stands among those that wait: behind them where jobs take
        turns, in the order in which they left their GPUs."""
        if conditions.turns == math.inf or not job.spec.preemptible:
            return order.key(job)
        suspension = suspension_of(job)
        assert suspension is not None
        return -job.spec.priority, math.inf, math.inf, suspension.since

    firsts = [(order.key(heap[0].job), sharers) for sharers, heap in heads.items()]
    """The first job of each, in its order: the start of a job moves those of its user alone."""
    heapify(firsts)
    refused: list[Iterator[Job]] = []
    while firsts or due:
        back = min(due, key=return_key, default=None)
        if back is not None and (not firsts or return_key(back) < firsts[0][0]):
            due.remove(back)
            if limits.take_back(back):
                returns.append(back)
            continue
        sharers = firsts[0][1]
        heap = heads[sharers]
        key, job, lane = heap[0][1:]
        placed = limits.place(job)
        head = None
        if isinstance(placed, tuple):
            starts.append(Start(job, placed))
            head = _head(key, lane)
        else:
            refusals[key] = placed
            if placed is None:
                refused.append(chain([job], lane))
        if head is not None:
            heapreplace(heap, head)
        else:
            heappop(heap)
        if heap:
            heapreplace(firsts, (order.key(heap[0].job), sharers))
        else:
            heappop(firsts)
    backfilled = list(_backfilled(refused, limits))
    return Plan([*starts, *backfilled], refusals, limits.room, limits.order.hours, returns)


def _heads(lanes: JobsByLane) -> dict[_Sharers, list[_Head]]:
    """Return the first job of each lane, in a heap for each user."""
    heads: dict[_Sharers, list[_Head]] = {}
    for key, lane in lanes.items():
        if not key.hold and (head := _head(key, iter(lane))) is not None:
            heads.setdefault((key.user, bool(key.gpus)), []).append(head)
    for heap in heads.values():
        heapify(heap)
    return heads


def _backfilled(lanes: Sequence[Iterator[Job]], limits: _Limits) -> Iterator[Start]:
    """Yield the jobs that use reserved devices until they are needed.

    Args:
        lanes: the jobs for which there was no room, each lane in its order.
    """
    if not limits.begin_backfill():
        return
    for job in islice(merge(*lanes, key=limits.order.key), MAX_CONSIDERED):
        if (placed := limits.backfill(job)) is not None:
            yield Start(job, placed)


class _Head(NamedTuple):
    """The next job of a lane, sortable by its turn, which no two jobs share."""

    turn: Turn
    key: Requirements
    job: Job
    lane: Iterator[Job]


def _head(key: Requirements, lane: Iterator[Job]) -> _Head | None:
    job = next(lane, None)
    return None if job is None else _Head(turn(job), key, job, lane)


class _Limits:
    """Keep all that limits which jobs start, during one pass.

    Each method that places a job returns the ids of its devices, or why it waits.
    """

    def __init__(
        self, running: Iterable[Job], devices: Sequence[Device], conditions: Conditions
    ) -> None:
        jobs = list(running)
        self._conditions = conditions
        without_gpu = [job for job in jobs if not job.spec.gpus and not job.spec.where]
        self._no_device = len(without_gpu)
        self._by_cluster = Counter(job.spec.where for job in jobs)
        self._by_group = Counter(job.spec.group for job in jobs)
        self._started_gpus = Counter[User]()
        """The GPUs that each user's jobs get in this pass."""
        self.order = Order(conditions.hours, (job.spec.user for job in without_gpu))
        self.room = _Room(jobs, devices, conditions, self.order)

    def place(self, job: Job) -> tuple[str, ...] | w.WaitReason | None:
        """Place the job; None where the devices have no room, which `_Room.reason` explains."""
        spec = job.spec
        if self._conditions.paused:
            return w.QueuePaused()
        if (limit := self._group_limit(spec.group) or self._user_limit(spec)) is not None:
            return limit
        placed: tuple[str, ...] | w.WaitReason | None
        if spec.where:
            placed = self._place_in_cluster(spec.where)
        else:
            placed = self.room.place(job) if spec.gpus else self._place_without_device()
        if isinstance(placed, tuple):
            self._count(spec)
        return placed

    def begin_backfill(self) -> bool:
        """Return whether jobs may use reserved devices; from now on nothing else is placed."""
        return self.room.begin_backfill()

    def backfill(self, job: Job) -> tuple[str, ...] | None:
        """Place a job on reserved devices that it leaves in time; None where that cannot be."""
        group = self._conditions.groups.get(job.spec.group)
        limited = group is not None and bool(group.limit)
        if self._group_limit(job.spec.group) or self._user_limit(job.spec):
            return None
        placed = self.room.backfill(job, limited)
        if placed is not None:
            self._count(job.spec)
        return placed

    def take_back(self, job: Job) -> bool:
        """Give a suspended job its devices back, or keep them from the jobs after it.

        A user who suspends a job and starts another one gets no more GPUs at once by that.
        """
        limit = self._user_limit(job.spec)
        if isinstance(limit, w.UserGpus):
            self.room.returns_refused[job.id] = limit
            return False
        back = self.room.take_back(job)
        self._started_gpus[job.spec.user] += job.spec.gpus if back else 0
        return back

    def _count(self, spec: Spec) -> None:
        """Count a job that starts."""
        self._by_group[spec.group] += 1
        self._started_gpus[spec.user] += 0 if spec.where else spec.gpus
        self.order.charge(spec)

    def _user_limit(self, spec: Spec) -> w.WaitReason | None:
        """Return which limit of its user keeps the job from starting; None where none does."""
        allowance = self._conditions.allowances.get(spec.user)
        if allowance is None or not spec.gpus or spec.where:
            return None
        limits, held = allowance.limits, allowance.held + self._started_gpus[spec.user]
        if limits.gpus and held + spec.gpus > limits.gpus:
            return w.UserGpus(held, limits.gpus)
        if limits.gpu_hours and allowance.hours >= limits.gpu_hours:
            return w.UserHours(allowance.hours, limits.gpu_hours)
        return None

    def _group_limit(self, name: str) -> w.WaitReason | None:
        group = self._conditions.groups.get(name)
        if not name or group is None:
            return None
        if group.paused:
            return w.GroupPaused(name)
        full = group.limit and self._by_group[name] >= group.limit
        return w.GroupFull(name, self._by_group[name], group.limit) if full else None

    def _place_without_device(self) -> tuple[str, ...] | w.WaitReason:
        if self._no_device >= self._conditions.processors:
            return w.NoProcessor(self._no_device, self._conditions.processors)
        self._no_device += 1
        return ()

    def _place_in_cluster(self, where: str) -> tuple[str, ...] | w.WaitReason:
        """Give the job to a cluster, which places it itself; the rest waits here in its order."""
        unavailable = self._conditions.clusters.get(where, w.ClusterMissing(where))
        if unavailable is not None:
            return unavailable
        if self._by_cluster[where] >= MAX_PER_CLUSTER:
            return w.ClusterFull(where, self._by_cluster[where])
        self._by_cluster[where] += 1
        return ()


class _Room:
    """Keep what is left of the devices during one pass.

    It only shrinks: what could not be placed need not be tried again.
    """

    def __init__(
        self,
        running: Iterable[Job],
        devices: Sequence[Device],
        conditions: Conditions,
        order: Order,
    ) -> None:
        self._order = order
        self._slots = make_slots(running, devices, conditions.availability, conditions.now)
        self._booked = any(slot.bookings for slot in self._slots)
        self._devices, self._ends, self._now = devices, conditions.ends, conditions.now
        self._backfill = Backfill((), {}, 0.0)
        self._refused: set[tuple[object, ...]] = set()
        """What jobs need that could not be placed."""
        self.offers: dict[int, Offer] = {}
        """For jobs that wait: the running jobs that are suspended for them."""
        self.returns_refused: dict[int, w.UserGpus] = {}
        """Suspended jobs whose return is against a limit of their user."""
        self._kept, self._turns = conditions.kept, conditions.turns
        self._first: dict[str, Job] = {}
        """For each type of GPU: the first job that could not start."""
        self._measure()

    def _measure(self) -> None:
        """Find the most memory that a device has left, and how many devices are empty."""
        left = [slot for slot in self._slots if not (slot.exclusive or slot.unread)]
        free = (slot.free - slot.reserved for slot in left if slot.free is not None)
        self._most = max(free, default=-1.0)
        self._empty = sum(
            not (slot.holders or slot.others or slot.held_by_others or slot.reserved_for)
            for slot in left
        )

    def place(self, job: Job) -> tuple[str, ...] | w.WaitReason | None:
        """Place the job, or reserve devices for it; None where there is no room."""
        spec = job.spec
        if self._need(spec) in self._refused:
            return None
        kind = self._slots[0].device.kind if self._slots else ""
        if kind and spec.kind not in ("", kind):
            # GPUs that are gone for a moment: the job must not run on the CPU meanwhile
            return w.OtherDevices(spec.kind, kind)
        enough = spec.memory <= self._most if spec.memory else spec.gpus <= self._empty
        if enough and (found := choose(spec, self._slots)) is not None:
            for slot in found:
                slot.place(job)
            self._measure()
            return tuple(slot.device.id for slot in found)
        self._refused.add(self._need(spec))
        if spec.gpu_type not in self._first and self._may_reserve(spec):
            self._first[spec.gpu_type] = job
            self._find_offer(job, self._slots)
            reserve(job, self._slots, self._ends, self._now)
            self._measure()
        return None

    def _find_offer(self, job: Job, slots: Sequence[Slot]) -> None:
        """Note which running jobs are suspended for a job, where some are."""
        offer = find_offer(job, slots, self._ends, self._now, self._kept, self._turns)
        if offer is not None:
            self.offers[job.id] = offer

    def take_back(self, job: Job) -> bool:
        """Give a suspended job its devices back, or keep them from the jobs after it."""
        held = self._slots_of(job)
        whole = len(held) == len(running(job).devices)
        back = whole and all(slot.takes_back(job) for slot in held)
        # where one of them cannot be had for long, the others would idle all that time
        may_reserve = whole and not any(slot.is_kept_from(job.spec) for slot in held)
        if may_reserve and not back and self._turns < math.inf:
            self._find_offer(job, held)
        for slot in held:
            if back:
                slot.place(job)
            elif may_reserve and slot.reserved_for is None:
                slot.reserve(job)
        self._measure()
        return back

    def return_reason(self, job: Job) -> w.WaitReason:
        """Return why a suspended job cannot come back yet."""
        if job.id in self.returns_refused:
            return self.returns_refused[job.id]
        held = self._slots_of(job)
        if (moved := self._moved_reason(job, held)) is not None:
            return moved
        for slot in held:
            if slot.reserved_for is not None and slot.reserved_for.id != job.id:
                return self._behind(slot.reserved_for, job)
        return no_room(job.spec, held, self._ends) if held else w.NoDevices()

    def _slots_of(self, job: Job) -> list[Slot]:
        """Return the devices of a running job, also while it is suspended."""
        return [slot for slot in self._slots if slot.device.id in running(job).devices]

    def _need(self, spec: Spec) -> tuple[object, ...]:
        """Return what decides whether there is room for a job."""
        if not self._booked:
            return _need(spec)
        return (*_need(spec), spec.user, spec.group, spec.timeout, spec.preemptible)

    def begin_backfill(self) -> bool:
        """Return whether a reserved device can be used before it is needed."""
        self._backfill = Backfill(self._slots, self._ends, self._now, self.offers)
        return self._backfill.possible

    def backfill(self, job: Job, limited: bool) -> tuple[str, ...] | None:
        """Place a job on reserved devices; see `Backfill.place`."""
        if job.spec.when_idle or job.spec.kind not in ("", self._slots[0].device.kind):
            return None
        return self._backfill.place(job, limited)

    def reservations(self) -> dict[str, int]:
        """Return the devices that a job waits for, and its number."""
        reserved = {slot.device.id: slot.reserved_for for slot in self._slots}
        return {device: job.id for device, job in reserved.items() if job is not None}

    def reason(self, job: Job) -> w.WaitReason:
        """Return why a job for which there was no room waits.

        That is another job before it, where the job would fit but for that one; among jobs that
        do not share, always.
        """
        spec = job.spec
        if (busy := self._not_idle(spec)) is not None:
            return busy
        if (moved := self._moved_reason(job, self._slots)) is not None:
            return moved
        reserved = (slot.reserved_for for slot in self._slots if slot.suits(spec))
        for other in (self._first.get(spec.gpu_type), *reserved):
            if other is not None and self._order.key(other) < self._order.key(job):
                alike = not spec.memory or _need(other.spec) == _need(spec)
                fits = alike or choose(spec, self._slots, respect_reservations=False)
                if fits and self._possible(spec):
                    return self._behind(other, job)
                break
        if not self._devices:
            return w.NoDevices()
        return no_room(spec, self._slots, self._ends) if self._slots else w.ReplayShown()

    def _moved_reason(self, job: Job, slots: Sequence[Slot]) -> w.WaitReason | None:
        """Return which jobs are suspended for the job now, or once they have had their turn, where
        it is the next there."""
        if (offer := self.offers.get(job.id)) is not None and offer.victims:
            return w.Preempts(tuple(sorted(offer.victims)), offer.cost)
        if self._turns == math.inf:
            return None
        mine = [s for s in slots if s.reserved_for is not None and s.reserved_for.id == job.id]
        found = find_turn(job, mine, self._ends, self._turns)
        return found if found is not None and found.at > self._now else None

    def _not_idle(self, spec: Spec) -> w.NotIdle | None:
        """Return which devices are not idle, where the job waits for that."""
        suited = [slot for slot in self._slots if slot.suits(spec)]
        busy = [(label(slot.device), slot.busy) for slot in suited if slot.busy is not None]
        if not spec.when_idle or spec.gpus <= len(suited) - len(busy) or not busy:
            return None
        return w.NotIdle(tuple(busy), suited[0].device.kind == "cpu")

    def _behind(self, other: Job, job: Job) -> w.WaitReason:
        if not self._order.overtakes(other, job):
            return w.Behind(other.id)
        hours = self._order.hours
        used, less = (round(hours.get(j.spec.user, 0.0), 1) for j in (job, other))
        return w.BehindUser(other.id, used, less)

    def _may_reserve(self, spec: Spec) -> bool:
        """Return whether the job could start on an empty machine now, whose bookings go on."""
        if spec.when_idle:
            return False  # what it waits for is that nobody needs the devices
        at = self._now
        open_slots = (slot for slot in self._slots if slot.booked_against(spec, at) is None)
        return sum(slot.suits(spec) for slot in open_slots) >= spec.gpus

    def _possible(self, spec: Spec) -> bool:
        """Return whether the job could start if the machine were empty."""
        return sum(slot.suits(spec) for slot in self._slots) >= spec.gpus


def is_due(job: Job, now: float) -> bool:
    """Return whether a suspended job is to come back as soon as its devices have room."""
    state = job.state
    if not isinstance(state, Running) or state.suspension is None:
        return False
    return state.suspension.is_due(now) and not state.stopping


def return_time(job: Job) -> float:
    """Return when a suspended job is to come back, in seconds since the epoch; 0 where that is
    unknown, or the job is not suspended."""
    suspension = suspension_of(job)
    return 0.0 if suspension is None else suspension.resume_at or 0.0


def _need(spec: Spec) -> tuple[object, ...]:
    return (spec.gpus, spec.memory, spec.gpu_type, spec.kind, spec.when_idle)


class Plan(NamedTuple):
    """Describe which jobs start, and why the others wait."""

    starts: list[Start]
    refusals: dict[Requirements, w.WaitReason | None]
    """Why the jobs of a lane wait that do not all start; None where the devices have no room."""
    room: _Room
    """What is left of the devices."""
    hours: Mapping[User, float] = {}
    """The GPU-hours of each user, with the jobs that start; empty where users are alike."""
    returns: Sequence[Job] = ()
    """The suspended jobs that come back to their GPUs."""

    @property
    def victims(self) -> frozenset[int]:
        """Return the running jobs that are suspended for jobs that wait."""
        return frozenset[int]().union(*(offer.victims for offer in self.room.offers.values()))

    def reservations(self) -> dict[str, int]:
        """Return the devices that are kept for a job which cannot start yet, and its number."""
        return self.room.reservations()

    def reason(self, job: Job) -> w.WaitReason:
        """Return why a job waits that was in one of the lanes."""
        key = requirements(job.spec)
        if job.spec.hold:
            return w.Held(job.id)
        if key not in self.refusals:
            return w.StartsNow()
        return self.refusals[key] or self.room.reason(job)


EMPTY_PLAN = Plan([], {}, _Room((), (), Conditions(), Order({})))
"""The plan before the first pass."""
