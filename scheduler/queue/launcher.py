"""Start jobs: commit the attempt, prepare it, commit who runs it, and only then let it run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import Executors, FolderError, FolderUnusable, GpuTaken, running
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Starting
from gpudeck.scheduler.protocol.snapshot import label
from gpudeck.scheduler.protocol.wait_reasons import JustTaken, StartFailed
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.planner import Planner
from gpudeck.scheduler.queue.policy import Start
from gpudeck.scheduler.queue.progress_reader import ProgressFollower
from gpudeck.scheduler.queue.transitions import failed_before_start, started, with_state
from gpudeck.scheduler.store import Store, environments

STARTS = 8
"""How many jobs are started in one go."""


class Launcher:
    """Start the jobs of the latest plan."""

    def __init__(
        self,
        store: Store,
        index: JobIndex,
        planner: Planner,
        executors: Executors,
        progress: ProgressFollower,
        evict: Callable[[str, Message], None],
    ) -> None:
        """Start nothing yet.

        Args:
            evict: called with the device that the assistant, or a job that runs only while it is
                idle, must leave, and why.
        """
        self._store, self._index, self._planner = store, index, planner
        self._executors, self._progress, self._evict = executors, progress, evict
        self._gated: dict[int, dict[str, str]] = {}
        """Environments of jobs that wait until the assistant has left their devices."""
        self._asked: dict[str, float] = {}
        """The GPUs that must be read again before a job starts there, and since when (epoch)."""

    @property
    def unfinished(self) -> bool:
        """Return whether jobs of the latest plan are left to be started."""
        starts = self._planner.latest.starts[STARTS:]
        return any(start.job.id in self._index.waiting for start in starts)

    @property
    def awaits_reading(self) -> bool:
        """Return whether jobs of the latest plan start once their GPUs have been read again."""
        return bool(self._asked)

    def vacate(self, availability: Availability) -> None:
        """Have those leave the devices that jobs start on or wait for who are there only while
        nobody needs them."""
        lent = availability.leased | self._index.idle_devices
        if not lent:
            return
        plan = self._planner.latest
        reasons = {
            device: phrase("job {job} waits", job=job)
            for device, job in plan.reservations().items()
        }
        for job, devices in plan.starts:
            reasons |= dict.fromkeys(devices, phrase("job {job} starts", job=job.id))
        for job in plan.returns:
            reasons |= dict.fromkeys(running(job).devices, phrase("job {job} resumes", job=job.id))
        for device in lent & reasons.keys():
            self._evict(device, reasons[device])

    def start_planned(self, devices: Sequence[Device], availability: Availability) -> bool:
        """Start the next jobs of the latest plan.

        A job that cannot be started now waits a while, and holds up nothing. One whose GPU was not
        read since the plan first gave it to a job waits for that: a program of somebody else may
        have come there. Returns whether one turned out to be unable to run, so that others may
        have its place.
        """
        vacated, starts = False, self._planner.latest.starts[:STARTS]
        self._ask(starts, devices)
        unread = {
            device
            for device, since in self._asked.items()
            if device in availability.uses and availability.uses[device].time < since
        }
        for start in starts:
            if not unread.isdisjoint(start.devices):
                continue
            for device in start.devices:
                self._asked.pop(device, None)
            try:
                self._start(start, devices, availability)
                vacated |= start.job.id not in self._index.running
            except FolderUnusable as e:
                self._index.delay_folder(start.job.id, e.message)
            except GpuTaken as e:
                names = (label(device) for device in devices if device.id == e.device)
                self._index.delay_start(start.job.id, JustTaken(next(names, e.device)))
            except UserError as e:
                self._index.delay_start(start.job.id, StartFailed(e.message))
        return vacated

    def _ask(self, starts: Sequence[Start], devices: Sequence[Device]) -> None:
        """Note since when the plan gives GPUs to jobs that start, unless the clock went back."""
        now, read = time.time(), {device.id for device in devices if device.kind == "nvidia"}
        wanted = {device for start in starts for device in start.devices} & read
        self._asked = {device: min(self._asked.get(device, now), now) for device in wanted}

    def _start(self, start: Start, devices: Sequence[Device], availability: Availability) -> None:
        """Start a job. Raises UserError; the job waits on then."""
        job, held = start
        attempt, now, executor = (
            secrets.token_hex(16),
            time.time(),
            self._executors.of(job.spec.where),
        )
        try:
            env, submission = self._store.env(job.id), self._store.submission_of(job.id)
        except environments.EnvironmentLost:
            self._index.commit(*environments.held(job, now))
            return
        assert isinstance(job.state, Queued)
        starting = Starting(attempt, held, now, job.state.unbegun)
        self._index.commit(with_state(job, starting))
        try:
            try:
                state = executor.prepare(job, attempt, held, submission)
            except FolderError as e:
                self._index.commit_all([failed_before_start(job, e.message, now)])
                return
            try:
                self._index.commit_all([started(job, state, devices, now)])
            except UserError:
                executor.abandon(state)
                raise
        except UserError:
            self._index.update(job)
            raise
        job = self._index.running[job.id]
        self._progress.follow([job])
        self._gated[job.id] = env
        self.release(devices, availability)

    def release(self, devices: Sequence[Device], availability: Availability) -> None:
        """Let the jobs run whose devices the assistant has left."""
        for job_id in tuple(self._gated):
            job = self._index.active[job_id]
            state = running(job)
            if not availability.leased & set(state.devices):
                env = self._gated.pop(job_id)
                self._executors.of(job.spec.where).release(job, state, env, devices)

    def abandon(self, job: Job) -> None:
        """Discard the job's attempt, if it was not released."""
        if self._gated.pop(job.id, None) is not None:
            self._executors.of(job.spec.where).abandon(running(job))
