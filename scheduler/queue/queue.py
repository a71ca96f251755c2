"""The queue: the one place where a job changes its state. Every change is committed before anybody hears of it."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from scheduler import paths
from scheduler.devices.model import Device, Reading
from scheduler.errors import UserError
from scheduler.executors import local
from scheduler.jobs import Cancelled, Changes, Event, Failed, Forecast, Group, Job, Progress, Queued, Running, Spec, Starting, State, listed
from scheduler.messages import MAX_LISTED, GroupState
from scheduler.queue import recovery, story
from scheduler.queue.admit import bound, refuse
from scheduler.queue.depend import broken, waits_for
from scheduler.queue.edit import edited, moved, said
from scheduler.queue.expected import End, expected_end
from scheduler.queue.forecast import forecast
from scheduler.queue.line import Line
from scheduler.queue.meter import Meter
from scheduler.queue.placement import Sight
from scheduler.queue.policy import Around, plan
from scheduler.queue.retry import again, resting, rests
from scheduler.queue.tail import Tail, last_line, last_text
from scheduler.store import Store

RECENT = 50
"""How many ended jobs a snapshot shows."""
RETRY_S = 2.0
"""A job that could not be started is tried again after this long."""
OOM_TAIL = 16 * 2**10
"""Bytes of the end of a log that are searched for what CUDA says when its memory is full."""
MAX_LIMIT = 1_000_000
_UNSEEN = Sight()


class Queue:
    """Owns the jobs. Not thread-safe: lives in the daemon's loop.

    `watch(job_id, runner_pid)` is called for each runner whose end must be reported to `runner_ended`; it may raise UserError.
    """

    def __init__(self, store: Store, watch: Callable[[int, int], None]) -> None:
        self._store = store
        self._watch = watch
        self._active: dict[int, Job] = {}
        self._line = Line()
        self._unbound: set[int] = set()
        """Jobs for devices of a kind that was not known when they were submitted."""
        self._meter = Meter()
        self._largest: float | None = None
        """Bytes of the largest device."""
        self._resting: set[int] = set()
        """Jobs that failed and are to wait a while before they are tried again."""
        self._dependent: set[int] = set()
        """Jobs that wait for others to end."""
        self._outcomes: dict[int, str] = {}
        """How jobs ended after which others were to run."""
        self._groups = {group.name: group for group in store.groups()}
        for job in store.active():
            self._know(job)
        self._ended: list[Job] = [job for job in store.recent(RECENT + len(self._active)) if not job.active][:RECENT]
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._tails: dict[int, Tail] = {}
        self._refused: dict[int, tuple[float, str]] = {}
        """Jobs that could not be started: when to try again (monotonic seconds), and why."""
        self.paused = store.paused()

    def pause(self, paused: bool) -> None:
        """Start nothing new, or go on; remembered over a restart. Raises UserError where that cannot be stored."""
        self._store.pause(paused)
        self.paused = paused

    def recover(self) -> None:
        """Settle what the last daemon left: adopt what still runs, take over what ended, queue again what never ran."""
        boot, now = local.boot_id(), time.time()
        for job in list(self._active.values()):
            state = job.state
            if not isinstance(state, Starting | Running):
                continue
            found = local.exit_record(job.id, state.attempt)
            alive = isinstance(state, Running) and local.alive(state)
            log = paths.job_folder(job.id) / "log"
            verdict = recovery.recover(job, found, boot, alive, local.result_record(job.id), last_line(log), now)
            if verdict == "adopt":
                assert isinstance(state, Running)
                self._tails[job.id] = Tail(log)
                self._watch(job.id, state.runner)
                try:
                    self._put(job, Event(now, "adopted", "by a daemon that was started anew"))
                except UserError:
                    pass  # a full disk must not keep the daemon from looking after it
                if state.stopping:
                    local.end(state)
            else:
                local.kill(state)
                if isinstance(verdict, Queued):
                    self._put(msgspec.structs.replace(job, state=verdict), Event(now, "queued again", "the daemon ended before it started"))
                else:
                    self._conclude(job, verdict)

    def jobs(self) -> tuple[Job, ...]:
        """Active jobs and those that ended last, newest first, without large results."""
        return tuple(sorted((*self._active.values(), *self._ended), key=lambda j: -j.id))

    @property
    def active(self) -> list[Job]:
        """Jobs that wait or run, oldest first."""
        return sorted(self._active.values(), key=lambda j: j.id)

    def get(self, job_id: int) -> Job:
        """Raises NotFound."""
        return self._active.get(job_id) or self._store.get(job_id)

    def newest(self, limit: int, active: bool) -> tuple[Job, ...]:
        """The newest jobs first, MAX_LISTED at most, without large results."""
        if active:
            return tuple(reversed(self.active))[: max(0, min(limit, MAX_LISTED))]
        return tuple(self._active.get(job.id, job) for job in self._store.recent(max(0, min(limit, MAX_LISTED))))

    def timeline(self, job_id: int) -> tuple[Event, ...]:
        """What the job went through, oldest first. Raises NotFound."""
        return tuple(self._store.timeline(self.get(job_id).id))

    def submit(self, specs: Sequence[Spec], devices: Sequence[Device], sight: Sight = _UNSEEN) -> list[Job]:
        """All of them, in one transaction, or none.

        Raises UserError where one can never run here or cannot be stored, NotFound where one is to run after a job that is not there.
        """
        for spec in specs:
            self._check(spec, devices, sight)
        jobs = self._store.insert_all([bound(spec, devices) for spec in specs], time.time(), Queued())
        for job in jobs:
            self._know(job)
        return jobs

    def _check(self, spec: Spec, devices: Sequence[Device], sight: Sight) -> None:
        refuse(spec, devices, sight)
        for number in (*spec.after, *spec.after_any):
            self.get(number)
        if why := broken(spec, self._active, self._status):
            raise UserError(f"it can never run: {why}")

    def foresee(self, spec: Spec, devices: Sequence[Device], sight: Sight = _UNSEEN) -> Forecast:
        """Where and when the job would start, were it submitted now. Raises what `submit` raises."""
        self._check(spec, devices, sight)
        number = 1 + max((job.id for job in (*self._active.values(), *self._ended)), default=0)
        job = Job(number, bound(spec, devices), time.time(), Queued())
        around = self._around(sight)
        if why := waits_for(spec, self._active, around.ends, around.now):
            return Forecast((), None, why)
        waiting = [self._active[job_id] for job_id in self._line]
        return forecast(job, [*self.going, *waiting], devices, self.paused, _slots(), around)

    def edit(self, job_id: int, changes: Changes, devices: Sequence[Device], sight: Sight = _UNSEEN) -> Job:
        """Raises NotFound, UserError where it is too late, or the job could never run so."""
        job = self.get(job_id)
        spec = edited(job, changes)
        if isinstance(job.state, Queued):
            refuse(msgspec.structs.replace(spec, env={}), devices, sight)
            spec = bound(spec, devices) if devices else spec
        changed = msgspec.structs.replace(job, spec=spec)
        self._store.update(changed, Event(time.time(), "edited", said(job.spec, spec)))
        if job.active:
            self._know(changed)
        else:
            self._ended = [listed(changed) if old.id == job_id else old for old in self._ended]
        return changed

    def move(self, job_id: int, beside: int, after: bool) -> Job:
        """Raises NotFound, UserError where one of the two does not wait."""
        one, other = self.get(job_id), self.get(beside)
        for job in (one, other):
            if not isinstance(job.state, Queued):
                raise UserError(f"job {job.id} is {job.status}: only jobs that wait have a place in the queue")
        if one.id != other.id:
            now = time.time()
            where = Event(now, "moved", f"{'after' if after else 'before'} job {beside}")
            changes = moved([self._active[number] for number in self._line], one, other, after)
            self._store.update_all([(job, (where,) if job.id == job_id else ()) for job in changes])
            for job in changes:
                self._know(job)
        return self.get(job_id)

    def groups(self) -> list[GroupState]:
        """Those with jobs that wait or run, and those that are limited or paused; by name."""
        waiting = Counter(self._active[job_id].spec.group for job_id in self._line)
        running = Counter(job.spec.group for job in self.going)
        names = sorted(({*waiting, *running} | self._groups.keys()) - {""})
        return [GroupState(self._groups.get(name, Group(name)), waiting[name], running[name]) for name in names]

    def set_group(self, name: str, limit: int | None, paused: bool | None) -> None:
        """Raises UserError where that cannot be, or cannot be stored."""
        if not name or "\0" in name or (limit is not None and not 0 <= limit <= MAX_LIMIT):
            raise UserError(f"a group has a name, and a limit from 0 (none) to {MAX_LIMIT}")
        old = self._groups.get(name, Group(name))
        new = Group(name, old.limit if limit is None else limit, old.paused if paused is None else paused)
        self._store.set_group(new)
        self._groups[name] = new

    def cancel(self, job_id: int) -> Job:
        """A job that waits is cancelled at once; one that runs is told to end. Raises NotFound, UserError where it ended already."""
        job = self.get(job_id)
        if isinstance(job.state, Running):
            job = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, stopping=True))
            try:
                self._put(job, Event(time.time(), "told to end"))
            except UserError:  # a full disk must not keep the job alive that fills it; a crash before it ended forgets who ended it
                self._know(job)
            assert isinstance(job.state, Running)
            local.end(job.state)
            return job
        if not job.active:
            raise UserError(f"job {job_id} has ended already: {job.status}")
        now = time.time()
        return self._put(msgspec.structs.replace(job, state=Cancelled(now)), Event(now, "cancelled", "before it ran"))

    @property
    def waits_for_devices(self) -> bool:
        """Whether a job waits whose start may depend on what is read of the devices."""
        return any(self._active[job_id].spec.gpus for job_id in self._line)

    def step(self, devices: Sequence[Device], sight: Sight = _UNSEEN) -> None:
        """Start what can start and say why the rest waits.

        A job that cannot be started waits a while and holds up nobody. Raises UserError, at the end, while there is one.
        """
        self._bind(devices)
        self._drop_broken()
        now = time.monotonic()
        resting = {job_id for job_id, (until, _) in self._refused.items() if now < until}
        going = self.going
        waiting = [self._active[job_id] for job_id in self._line if job_id not in resting]
        decided = plan([*going, *waiting], devices, self.paused, _slots(), self._around(sight))
        for start in decided.starts:
            self._refused.pop(start.job.id, None)
            try:
                self._start(start.job, start.devices, devices)
            except UserError as e:
                self._refused[start.job.id] = (now + RETRY_S, str(e))
        self._refused = {job_id: why for job_id, why in self._refused.items() if job_id in self._line}
        for job_id, reason in (decided.reasons | {job_id: why for job_id, (_, why) in self._refused.items()}).items():
            job = self._active[job_id]
            if isinstance(job.state, Queued) and job.state.reason != reason:
                # for display: it is worked out anew after a crash, so it need not be stored
                self._active[job_id] = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, reason=reason))
        for _, why in self._refused.values():
            raise UserError(why)

    @property
    def going(self) -> list[Job]:
        """Jobs that were started and have not ended."""
        return [self._active[job_id] for job_id in sorted(self._active.keys() - self._line.ids())]

    def _around(self, sight: Sight) -> Around:
        now = time.time()
        ends = {job.id: end for job in self.going if (end := expected_end(job, now)) is not None}
        return Around(sight, ends, now, self._kept(ends), self._groups)

    def _drop_broken(self) -> None:
        """Cancel jobs that were to run after one that did not succeed, and in turn those that were to run after them."""
        for job_id in sorted(self._dependent):  # a job comes after those it names
            job = self._active[job_id]
            if why := broken(job.spec, self._active, self._status):
                now = time.time()
                self._put(msgspec.structs.replace(job, state=Cancelled(now, reason=why)), Event(now, "cancelled", why))

    def _status(self, job_id: int) -> str:
        """Of a job that has ended."""
        if job_id not in self._outcomes:
            self._outcomes[job_id] = self._store.get(job_id).status
        return self._outcomes[job_id]

    def _kept(self, ends: Mapping[int, End]) -> dict[int, str]:
        """Jobs that are not to start whatever is free, and why."""
        now = time.time()
        waits = {job_id: waits_for(self._active[job_id].spec, self._active, ends, now) for job_id in self._dependent}
        self._resting = {job_id for job_id in self._resting if job_id in self._line and rests(self._active[job_id], now)}
        rest = {job_id: resting(self._active[job_id]) for job_id in self._resting}
        return {job_id: why for job_id, why in waits.items() if why} | rest

    def _bind(self, devices: Sequence[Device]) -> None:
        for job in [self._active[job_id] for job_id in sorted(self._unbound)]:
            if (spec := bound(job.spec, devices)).kind:
                self._put(msgspec.structs.replace(job, spec=spec))

    def _start(self, job: Job, held: tuple[str, ...], devices: Sequence[Device]) -> None:
        """Commit the attempt, start its runner, commit who that is, and only then let it run. Raises UserError; the job then waits on."""
        attempt, now = secrets.token_hex(16), time.time()
        env = self._store.env(job.id)
        self._put(msgspec.structs.replace(job, state=Starting(attempt, held, now)))
        try:
            waiting = local.prepare(job, attempt, held)
            try:
                self._watch(job.id, waiting.running.runner)
                self._put(msgspec.structs.replace(job, state=waiting.running), story.started(job, held, devices, now))
            except UserError:
                local.abandon(waiting)
                raise
        except local.FolderError as e:
            failed = Failed(now, now, str(e))
            self._put(msgspec.structs.replace(job, state=failed), story.ended(failed))
            return
        except UserError:
            self._know(job)
            raise
        self._children[job.id] = waiting.process
        self._tails[job.id] = Tail(paths.job_folder(job.id) / "log")
        local.release(waiting, job, env, devices)

    def runner_ended(self, job_id: int) -> None:
        """The runner of this job is gone: take over its word, or conclude that there is none.

        Raises UserError where that cannot be stored; to be called again then.
        """
        if (child := self._children.pop(job_id, None)) is not None:
            child.wait()
        job = self._active.get(job_id)
        if job is None or not isinstance(state := job.state, Running):
            return  # it was sent away from its gate
        local.kill(state)  # a runner that was killed leaves its job behind
        self.look(time.time())
        found = local.exit_record(job_id, state.attempt)
        if found is None:
            new = recovery.lost(state, time.time())
        else:
            new = recovery.ended(state, found, local.result_record(job_id), last_line(paths.job_folder(job_id) / "log"))
        self._conclude(job, new)

    def _conclude(self, job: Job, new: State) -> None:
        """An attempt has ended so: the job has ended with it, or waits for another."""
        usage = self._meter.take(job)
        job = msgspec.structs.replace(job, usage=usage)
        log = last_text(paths.job_folder(job.id) / "log", OOM_TAIL)
        more = again(job, new, log, self._largest, time.time()) if isinstance(new, Failed) else None
        try:
            if more is None:
                self._put(msgspec.structs.replace(job, state=new), story.ended(new))
            else:
                self._put(more.job, story.ended(new), more.event)
                self._tails.pop(job.id, None)
        except UserError:
            self._know(job)  # it keeps what it used, until its end can be stored
            raise

    def watch(self, readings: Sequence[Reading]) -> None:
        """Add up what running jobs use."""
        self._meter.add(readings, self.going)
        totals = [r.values["mem_total"] for r in readings if "mem_total" in r.values]
        self._largest = max(totals, default=self._largest)

    def due(self, now: float) -> bool:
        """Whether a job that was to wait for another attempt may be started now."""
        return any(not rests(self._active[job_id], now) for job_id in self._resting)

    def look(self, now: float) -> dict[int, list[Progress]]:
        """What the running jobs reported since the last look, by job."""
        news: dict[int, list[Progress]] = {}
        for job_id, tail in self._tails.items():
            job = self._active.get(job_id)
            if job is not None and isinstance(job.state, Running) and (said := tail.read(now)):
                news[job_id] = said
                # for display: read again from the log after a crash, so it need not be stored
                self._active[job_id] = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, progress=said[-1]))
        return news

    def _put(self, job: Job, *events: Event) -> Job:
        self._store.update(job, *events)
        self._know(job)
        return job

    def _know(self, job: Job) -> None:
        """The job is as given now."""
        self._line.put(job)
        self._unbound.discard(job.id)
        self._resting.discard(job.id)
        self._dependent.discard(job.id)
        if isinstance(job.state, Queued):
            if job.state.until:
                self._resting.add(job.id)
            if job.spec.after or job.spec.after_any:
                self._dependent.add(job.id)
        if job.active:
            self._active[job.id] = job
            if job.spec.gpus and not job.spec.kind:
                self._unbound.add(job.id)
        else:
            self._active.pop(job.id, None)
            self._tails.pop(job.id, None)
            self._ended = [listed(job), *self._ended][:RECENT]


def _slots() -> int:
    """How many jobs without a device run at once."""
    return os.cpu_count() or 1
