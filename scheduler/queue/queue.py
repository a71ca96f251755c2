"""The queue: the one place where a job changes its state. Every change is committed before anybody hears of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from scheduler import paths
from scheduler.devices.model import Device, Reading
from scheduler.errors import UserError
from scheduler.executors import base, local
from scheduler.executors.base import Executor
from scheduler.executors.cluster import Cluster
from scheduler.executors.unknown import Unknown
from scheduler.jobs import Cancelled, Event, Failed, Job, Lost, Progress, Queued, Running, Starting, State
from scheduler.queue import recovery, story
from scheduler.queue.meter import Meter
from scheduler.queue.orders import UNSEEN, Orders, slots
from scheduler.queue.placement import Sight
from scheduler.queue.policy import plan
from scheduler.queue.retry import again
from scheduler.queue.tail import Tail, last_line, last_text
from scheduler.store import Store, environments

NONE: Mapping[str, Cluster] = {}
RETRY_S = 2.0
"""A job that could not be started is tried again after this long."""
OOM_TAIL = 16 * 2**10
"""Bytes of the end of a log that are searched for what CUDA says when its memory is full."""


class Queue(Orders):
    """Owns the jobs. Not thread-safe: lives in the daemon's loop.

    `watch(job_id, runner_pid)` is called for each runner whose end must be reported to `runner_ended`; it may raise UserError.
    `evict(device, words)` is called for each device that the assistant must leave, before the job is started.
    """

    def __init__(
        self,
        store: Store,
        watch: Callable[[int, int], None],
        on_end: Callable[[Job], None] = lambda job: None,
        clusters: Mapping[str, Cluster] = NONE,
        evict: Callable[[str, str], None] = lambda device, words: None,
        log_limit: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(store, on_end, clusters)
        self._evict = evict
        self._gates: dict[int, dict[str, str]] = {}
        """Environments of the jobs that wait at their gate until the assistant has left their devices."""
        self._local = local.Local(watch, log_limit)
        self._meter = Meter()
        self._largest: float | None = None
        """Bytes of the largest device."""
        self._tails: dict[int, Tail] = {}
        self._inherited = set(self._active)
        """Jobs of the last daemon of which it is not settled yet what became of them."""
        self._adopted = False
        """All of them that run on are looked after: the rest is to be stored."""

    def recover(self) -> None:
        """Settle what the last daemon left: adopt what still runs, take over what ended, queue again what never ran.

        Raises UserError, at the end, where some of that cannot be stored now: those jobs stay as they were, and keep their devices. To be
        called again then, which goes no further than to the first that still cannot.
        """
        trouble: UserError | None = None
        for job_id in sorted(self._inherited):
            try:
                if (job := self._active.get(job_id)) is not None:
                    self._recover(job)
                self._inherited.discard(job_id)
            except UserError as e:
                trouble = e
                if self._adopted:
                    break
        self._adopted = True
        if trouble is not None:
            raise trouble

    def _recover(self, job: Job) -> None:
        if attempt := local.begun(job):
            self._settle_unknown(job, attempt)
            return
        now, state = time.time(), job.state
        if not isinstance(state, Starting | Running):
            return
        executor = self._executor(job)
        alive = isinstance(state, Running) and executor.alive(state)
        outcome = executor.outcome(job)  # after `alive`: then a runner that is gone has said its last word
        log = paths.job_folder(job.id) / base.LOG_FILE
        verdict = recovery.recover(job, outcome, alive, base.result_record(job.id), last_line(log), now)
        if verdict == "adopt":
            self._adopt(job, executor)
            return
        executor.kill(job)
        if isinstance(verdict, Queued):
            self._put(msgspec.structs.replace(job, state=verdict), Event(now, "queued again", "the daemon ended before it started"))
        else:
            self._conclude(job, verdict, *story.log(outcome))

    def _adopt(self, job: Job, executor: Executor) -> None:
        assert isinstance(job.state, Running)
        self._tails[job.id] = Tail(paths.job_folder(job.id) / base.LOG_FILE)
        executor.adopt(job)
        try:
            self._put(job, Event(time.time(), "adopted", "by a daemon that was started anew"))
        except UserError:
            pass  # a full disk must not keep the daemon from looking after it
        if job.state.stopping:
            executor.end(job)

    def _settle_unknown(self, job: Job, attempt: str) -> None:
        """An attempt ran that the store lost, as after a repair: its runner's word is taken, and nothing runs twice."""
        job = msgspec.structs.replace(job, state=Starting(attempt, (), job.submitted))
        self._know(job)  # it waits no more, also where what became of it cannot be stored yet
        self._local.kill(job)
        outcome = self._local.outcome(job)
        if isinstance(outcome, base.Exit):
            log = paths.job_folder(job.id) / base.LOG_FILE
            assert isinstance(job.state, Starting)
            self._conclude(job, recovery.ended(job.state, outcome, base.result_record(job.id), last_line(log)), *story.log(outcome))
        else:
            self._conclude(job, Lost(job.submitted, time.time(), "it was begun, and the store lost what became of it"))

    def cancel(self, job_id: int) -> Job:
        """A job that waits is cancelled at once; one that runs is told to end. Raises NotFound, UserError where it ended already."""
        job = self.get(job_id)
        if isinstance(job.state, Running):
            job = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, stopping=True))
            try:
                self._put(job, Event(time.time(), "told to end"))
            except UserError:  # a full disk must not keep the job alive that fills it; a crash before it ended forgets who ended it
                self._know(job)
            self._executor(job).end(job)
            return job
        if not job.active:
            raise UserError(f"job {job_id} has ended already: {job.status}")
        now = time.time()
        return self._put(msgspec.structs.replace(job, state=Cancelled(now)), Event(now, "cancelled", "before it ran"))

    def weigh(self, devices: Sequence[Device], sight: Sight = UNSEEN) -> None:
        """See what can start, and why the rest waits; nothing is started. The assistant is told at once to leave what is needed."""
        self._plan = plan(self.going, self._lanes(), devices, self.paused, slots(), self._around(sight))
        if sight.leased:
            needed = {device: start.job.id for start in self._plan.starts for device in start.devices}
            claims = self._plan.claims()
            for device in sight.leased & {**claims, **needed}.keys():
                self._evict(device, f"job {needed[device]} starts" if device in needed else f"job {claims[device]} waits")

    def _open_gates(self, devices: Sequence[Device], sight: Sight) -> None:
        """Let those jobs run whose devices the assistant has left by now."""
        for job_id in tuple(self._gates):
            job = self._active[job_id]
            assert isinstance(job.state, Running)
            if not sight.leased & set(job.state.devices):
                self._executor(job).release(job, job.state, self._gates.pop(job_id), devices)

    def step(self, devices: Sequence[Device], sight: Sight = UNSEEN) -> None:
        """Start what can start and say why the rest waits.

        A job that cannot be started waits a while and holds up nobody. Raises UserError, at the end, while there is one.
        """
        self._wake()
        self._bind(devices)
        self._drop_broken()
        self.weigh(devices, sight)
        self._open_gates(devices, sight)
        while self._start_planned(devices, sight):  # one of them never will: others may have its place
            self._drop_broken()
            self.weigh(devices, sight)
        for _, why in self._refused.values():
            raise UserError(why)

    def _start_planned(self, devices: Sequence[Device], sight: Sight) -> bool:
        """Whether one of them turned out to be none that can be started: it has ended, or is held."""
        left = False
        for start in self._plan.starts:
            try:
                self._start(start.job, start.devices, devices, sight)
                left |= start.job.id not in self._going
            except UserError as e:
                self._refused[start.job.id] = (time.monotonic() + RETRY_S, str(e))
        return left

    def _start(self, job: Job, held: tuple[str, ...], devices: Sequence[Device], sight: Sight) -> None:
        """Commit the attempt, start its runner, commit who that is, and only then let it run. Raises UserError; the job then waits on."""
        attempt, now, executor = secrets.token_hex(16), time.time(), self._executor(job)
        try:
            env = self._store.env(job.id)
        except environments.EnvironmentLost:
            self._put(*environments.held(job, now))
            return
        self._put(msgspec.structs.replace(job, state=Starting(attempt, held, now)))
        try:
            try:
                running = executor.prepare(job, attempt, held)
            except base.FolderError as e:
                failed = Failed(now, now, str(e))
                self._put(msgspec.structs.replace(job, state=failed), story.ended(failed))
                return
            try:
                job = self._put(msgspec.structs.replace(job, state=running), story.started(job, held, devices, now))
            except UserError:
                executor.abandon(running)
                raise
        except UserError:
            self._know(job)
            raise
        self._tails[job.id] = Tail(paths.job_folder(job.id) / base.LOG_FILE)
        if sight.leased & set(held):
            self._gates[job.id] = env
        else:
            executor.release(job, running, env, devices)

    def stand_by(self) -> None:
        """Be ready to start the next job at once. To be called when there is time."""
        self._local.stand_by()

    def runner_ended(self, job_id: int) -> None:
        """The attempt of this job is over: take over its runner's word, or conclude that there is none.

        Raises UserError where that cannot be stored; to be called again then.
        """
        job = self._active.get(job_id)
        if job is None or not isinstance(state := job.state, Running):
            return  # it was sent away from its gate
        executor = self._executor(job)
        if self._gates.pop(job_id, None) is not None:
            executor.abandon(state)
        executor.kill(job)  # a runner that was killed leaves its job behind
        self.look(time.time())
        outcome = executor.outcome(job)
        if isinstance(outcome, base.Unstarted) and not state.stopping:
            self._refused[job_id] = (time.monotonic() + RETRY_S, outcome.why)
            self._put(msgspec.structs.replace(job, state=Queued(outcome.why)), Event(time.time(), "queued again", outcome.why))
            self._tails.pop(job_id, None)
        elif isinstance(outcome, base.Exit):
            log = paths.job_folder(job_id) / base.LOG_FILE
            self._conclude(job, recovery.ended(state, outcome, base.result_record(job_id), last_line(log)), *story.log(outcome))
        else:
            self._conclude(job, recovery.lost(state, time.time(), outcome.why))

    def _executor(self, job: Job) -> Executor:
        """Where its attempts run."""
        where = job.spec.where
        return self._clusters.get(where, Unknown(where)) if where else self._local

    # What the executors of clusters need to know, and to tell

    def on(self, where: str) -> list[Job]:
        """The jobs that were started there and have not ended."""
        return [job for job in self.going if job.spec.where == where]

    def env(self, job_id: int) -> dict[str, str]:
        """The environment it was submitted with. Raises UserError."""
        return self._store.env(job_id)

    def acknowledged(self, job_id: int) -> None:
        """Its cluster has the attempt."""
        job = self._active[job_id]
        if isinstance(job.state, Running) and not job.state.known:
            job = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, known=True))
            try:
                self._put(job, Event(time.time(), "acknowledged", f"by {job.spec.where}"))
            except UserError:
                self._know(job)  # a full disk; the cluster will say it to the next daemon, too

    def noted(self, job_id: int, note: str) -> None:
        """What holds it up in its cluster. For display: the next daemon hears it anew."""
        job = self._active[job_id]
        if isinstance(job.state, Running):
            self._know(msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, note=note)))

    def _conclude(self, job: Job, new: State, *told: Event) -> None:
        """An attempt has ended so: the job has ended with it, or waits for another. `told` is what else its timeline tells of it."""
        usage = self._meter.take(job)
        job = msgspec.structs.replace(job, usage=usage)
        log = last_text(paths.job_folder(job.id) / base.LOG_FILE, OOM_TAIL)
        more = again(job, new, log, self._largest, time.time()) if isinstance(new, Failed) else None
        try:
            if more is None:
                self._put(msgspec.structs.replace(job, state=new), *told, story.ended(new))
            else:
                self._put(more.job, *told, story.ended(new), more.event)
        except UserError:
            self._know(job)  # it keeps what it used, until its end can be stored
            raise

    def watch(self, readings: Sequence[Reading]) -> None:
        """Add up what running jobs use."""
        self._meter.add(readings, self.going)
        totals = [r.values["mem_total"] for r in readings if "mem_total" in r.values]
        self._largest = max(totals, default=self._largest)

    def look(self, now: float) -> dict[int, list[Progress]]:
        """What the running jobs reported since the last look, by job."""
        news: dict[int, list[Progress]] = {}
        jobs = {job_id: job for job_id in self._tails if (job := self._active.get(job_id)) is not None}
        self._tails = {job_id: tail for job_id, tail in self._tails.items() if job_id in jobs and isinstance(jobs[job_id].state, Running)}
        for job_id, tail in self._tails.items():
            state = jobs[job_id].state
            if isinstance(state, Running) and (said := tail.read(now)):
                news[job_id] = said
                # for display: read again from the log after a crash, so it need not be stored
                self._know(msgspec.structs.replace(jobs[job_id], state=msgspec.structs.replace(state, progress=said[-1])))
        return news
