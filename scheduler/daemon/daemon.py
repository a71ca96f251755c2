"""The daemon: the event loop and the wiring of all parts.

One daemon runs for each user. It starts on demand, outlives the window, and alone writes the store.

    python -m gpudeck.scheduler.daemon
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background.instance import report_ready
from gpudeck.scheduler.background.version import note_version
from gpudeck.scheduler.daemon import sharing
from gpudeck.scheduler.daemon.cluster_hub import ClusterHub
from gpudeck.scheduler.daemon.freeing import Freeing
from gpudeck.scheduler.daemon.gpu_sharing import GpuSharing
from gpudeck.scheduler.daemon.job_suspension import RETRY_S, JobSuspensions
from gpudeck.scheduler.daemon.reading_flow import ReadingFlow
from gpudeck.scheduler.daemon.state import State
from gpudeck.scheduler.daemon.upkeep import Upkeep
from gpudeck.scheduler.devices.supervisor import Supervisor
from gpudeck.scheduler.executors.attempt_folder import PASSABLE
from gpudeck.scheduler.executors.clusters import Clusters
from gpudeck.scheduler.executors.launch import EnergyPrice
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.executors.lock_places import shared_note
from gpudeck.scheduler.executors.registry import ExecutorRegistry
from gpudeck.scheduler.hosts.service import HostService
from gpudeck.scheduler.lease.service import LeaseService
from gpudeck.scheduler.notices.book import DestinationBook
from gpudeck.scheduler.notices.notifier import Notifier, Roles
from gpudeck.scheduler.protocol import busy_causes, paths, settings, wire
from gpudeck.scheduler.protocol.bookings import Booking, Freed
from gpudeck.scheduler.protocol.busy_causes import BusyCause, Lent
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.draining import is_drained
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Spec, held_devices
from gpudeck.scheduler.protocol.settings import listed
from gpudeck.scheduler.protocol.snapshot import STARTING, Alert, Busy, DeviceState, Snapshot
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.user_limits import UserLimits, limits_of
from gpudeck.scheduler.queue.editing import OWNER, Editor
from gpudeck.scheduler.queue.placement import Availability, device_use
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.services.alert_service import AlertService
from gpudeck.scheduler.services.calibration_service import CalibrationService
from gpudeck.scheduler.services.end_process import end_process
from gpudeck.scheduler.services.fault_drain import FaultDrain
from gpudeck.scheduler.services.garbage import collect_garbage
from gpudeck.scheduler.services.helper_service import (
    ATTENTION_TUNER,
    REPORT_WRITER,
    HelperService,
    attention_is_due,
)
from gpudeck.scheduler.services.job_end import JobEndCommand, JobEnds, check_command
from gpudeck.scheduler.services.notices import NoticeBoard
from gpudeck.scheduler.services.polling import PollingController
from gpudeck.scheduler.services.publisher import Publisher
from gpudeck.scheduler.services.runner_watch import PAUSE_S, RunnerWatch
from gpudeck.scheduler.services.self_calibration import SelfCalibration
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.recorder import Recorder
from gpudeck.scheduler.suspension.service import SuspensionService
from gpudeck.scheduler.telemetry.monitor import Monitor, waits_for_gpu
from gpudeck.scheduler.verbs.control import GetSnapshot
from gpudeck.scheduler.verbs.registry import decoding
from gpudeck.scheduler.verbs.request import Error, encode_message, encode_reply, encoding_reply

PROGRESS_S = 0.25
"""The interval at which the logs of running jobs are read for progress."""
SPARE_S = 0.02
"""The pause between the start of jobs and that of a spare runner: the jobs get the CPU first."""
START_RETRY_S = 0.1
"""The pause before starts that were refused, as by a full disk, are tried again."""
TOO_MANY = "you have too many connections to the daemon: close some, and try again"
LEASE_WAIT_S = 5.0
"""Jobs that run only while GPUs are idle do not start so long after the assistant asked for one;
while it waits, it asks again at each snapshot."""
FLUSH_S = 5.0
"""The interval at which readings go to disk, many in one transaction."""


class Daemon:
    """Own all parts of the daemon, which run in one event loop, and connect them."""

    def __init__(self, store: Store) -> None:
        self._store, self._seq = store, 0
        self._state = State(settings.load())
        self._start = asyncio.Event()
        """The queue changed, so that jobs may start."""
        self._stop = asyncio.Event()
        self._lease_asked = -math.inf
        """When the assistant was last refused a GPU (monotonic)."""
        self._shared = paths.shared()
        self.publisher = Publisher(self.snapshot, self._encode_for)
        self._notices = notices = NoticeBoard(self.publisher.touch)
        if note := paths.network_note():
            notices.set("state folder", note)
            sys.stderr.write(f"{note}\n")
        notices.set("place of locks", shared_note() or None)
        self._supervisor = Supervisor()
        self.monitor = Monitor()
        self.recorder = Recorder(paths.history_file(), partial(notices.set, "damaged history"))
        # parts that are made later are reached through functions
        self._make_queue()
        self._make_services()
        self._make_suspension()
        self._flow = ReadingFlow(
            self._state, self.queue, self.monitor, self.recorder, self.polling,
            self._lease_service, self.alerts, FaultDrain(paths.faults_file(), notices),
            self._sharing, self._hosts, notices, step=self._step, touch=self.publisher.touch,
        )  # fmt: skip
        self._supervisor.listener = self._flow
        self._upkeep = Upkeep(
            self._state, self.queue, self._local, self.runners, self.monitor, notices,
            start_soon=self.start_soon, stop=self._stop.set, touch=self.publisher.touch,
        )  # fmt: skip

    def _make_queue(self) -> None:
        """Make the queue, and what its jobs run on."""
        state, notices, touch = self._state, self._notices, self.publisher.touch
        self._sharing = GpuSharing(state, self.monitor, notices.catch)
        self._lease_service = LeaseService(
            self.monitor, self._supervisor.request_occupancy, self._step, touch,
            self._sharing.is_lent,
        )  # fmt: skip
        self.runners = RunnerWatch(
            lambda jobs: self.queue.reap(jobs),  # noqa: PLW0108
            notices,
            self._step,
            self._tidy,
        )
        hub = ClusterHub(lambda: self.queue, self.runners, notices, self._step, touch)
        self._clusters = Clusters(hub, state.settings.clusters, self._log_limit)
        self._local = Local(
            self.runners.watch, self._log_limit, self._sharing.memory_of, self._energy_price
        )
        self.queue = Queue(
            self._store, ExecutorRegistry(self._local, self._clusters), self._job_ended,
            self._lease_service.evict, self._half_life,
            lambda job: self.job_suspensions.bring_back(job),  # noqa: PLW0108
            lambda job: self.job_suspensions.preempt(job),  # noqa: PLW0108
            self._limits_of, self._turns,
        )  # fmt: skip

    def _make_services(self) -> None:
        """Make what watches devices and other machines, and tells people what happened."""
        state, notices = self._state, self._notices
        self.polling = PollingController(
            self._supervisor,
            state.settings,
            self._needs_gpu,
            lambda asleep: self._flow.sleep_changed(asleep),  # noqa: PLW0108
        )
        self._hosts = HostService(
            lambda readings: self._flow.add_of_host(readings),  # noqa: PLW0108
            self.recorder.forget,
        )
        roles = Roles(self._shared, sharing.is_admin, sharing.is_member)
        self.notifier = Notifier(
            DestinationBook(paths.destinations_file()), lambda: state.settings, notices.set, roles
        )
        self.alerts = AlertService(
            self._store, notices.set, self.recorder.annotate, self._alert_changed
        )
        self._job_end_command = JobEndCommand(partial(notices.set, "callback"))
        self.job_ends = JobEnds()
        self._calibration = CalibrationService(
            self.recorder.past,
            lambda: self.monitor.devices,
            lambda: self.polling.start(state.settings),
            partial(notices.set, "calibration"),
        )
        self._self_calibration = SelfCalibration(
            paths.self_calibration_file(),
            lambda: "off" if self._shared else state.settings.calibrate_after,
            lambda: self._device_states(self.queue.queries.overview()),
            lambda: self.queue.queries.overview(),  # noqa: PLW0108
            self._submit,
            self._cancel,
            partial(notices.set, "own calibration"),
        )
        self._helpers = (
            HelperService(
                REPORT_WRITER, lambda: state.settings.reports, partial(notices.set, "reports")
            ),
            HelperService(
                ATTENTION_TUNER,
                lambda: state.settings.tune_attention and attention_is_due(),
                partial(notices.set, "attention"),
            ),
        )

    def _make_suspension(self) -> None:
        """Make what takes jobs and programs off their GPUs, and brings them back."""
        state = self._state
        self.suspensions = SuspensionService(
            paths.suspensions_file(),
            self.publisher.touch,
            lambda: state.settings.suspend_spare_bytes,
        )
        self.job_suspensions = JobSuspensions(
            lambda: self.queue, self._local, self.suspensions, self.polling.await_details,
            self.start_soon, self._limits_of,
        )  # fmt: skip
        self._freeing = Freeing(
            lambda: state.settings, lambda: self.queue.running, self.job_suspensions,
            self.configure, self._notices.catch,
        )  # fmt: skip

    async def run(self, listening: socket.socket) -> None:
        """Serve until a signal, or the request Stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._upkeep.recover()
        await self.polling.start(self._state.settings)
        await self._clusters.serve(self._state.settings.clusters)
        await self._hosts.serve(self._state.settings.hosts)
        refusal = encode_message(Error(TOO_MANY))
        server = await wire.serve(listening, self._handle, self._shared, refusal)
        tasks: list[asyncio.Future[Any]] = [
            self._supervisor.crashed,
            self._clusters.crashed,
            self._hosts.crashed,
        ]
        services = (
            self.publisher.publish(),
            self._start_jobs(),
            self.polling.run(),
            self._follow_progress(),
            self._freeing.run(),
            self._flush_history(),
            self._recover_suspensions(),
            collect_garbage(),
            *(helper.run() for helper in self._helpers),
        )
        tasks += [asyncio.create_task(service) for service in services]
        report_ready()
        stopped: asyncio.Future[Any] = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        server.close()
        await self._supervisor.stop()
        await self._clusters.stop()
        await self._hosts.stop()
        self.alerts.stop()
        await self.notifier.stop()
        await self._job_end_command.stop()
        await self.job_suspensions.stop()
        await self.suspensions.stop()
        await self._calibration.stop()
        for task in tasks:
            task.cancel()
        with self._notices.catch("history"):
            await self.recorder.close()
        self._upkeep.checkpoint()
        self._store.close()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises where a bug ended the task

    def _needs_gpu(self) -> bool:
        """Return True where a job for a GPU waits or runs, or the assistant has a GPU."""
        return (
            self._lease_service.device is not None
            or self.queue.waits_for_devices
            or any(held_devices(job) for job in self.queue.running)
        )

    # The queue

    async def _follow_progress(self) -> None:
        """Read the progress of jobs, and try again what failed, for ever."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            progress = self.queue.read_progress(time.time())
            for job, reports in progress.items():
                self.monitor.add_progress(job, reports)
            if progress:
                self.monitor.forget({job.id for job in self.queue.running})
                self.publisher.touch()
            self.runners.retry()
            names = {device.id: device.name for device in self.monitor.devices}
            self.notifier.check_bookings(self._state.settings.reservations, names)
            self._upkeep.run_due()
            leased, lent = self._lease_service.device, self.queue.idle_devices
            lent |= frozenset(() if leased is None else (leased,))
            waits = self.queue.waits_for_others_devices
            if self._sharing.follow(lent, waits, self.queue.running):
                self._step()
            self._lease_service.review(self._state.latest, self._state.settings)
            for device in self.queue.idle_devices:
                if (why := self._why_needed(device)) is not None:
                    self.queue.idle_jobs.leave(device, why)
            with self._notices.catch("calibration problem"):
                self._self_calibration.review()
            if "queue" in self._notices or self.queue.retry_is_ready(time.time()):
                self._step()

    async def _flush_history(self) -> None:
        """Write readings to disk, for ever.

        Those that cannot be written stay in memory, for minutes: jobs are more important.
        """
        while True:
            await asyncio.sleep(FLUSH_S)
            self._flow.check_hosts()
            with self._notices.catch("history"):
                await self.recorder.flush()

    async def _recover_suspensions(self) -> None:
        """Bring back what an earlier daemon had on its way, and try again what failed, for ever."""
        while True:
            with self._notices.catch("suspension"):
                await self.job_suspensions.recover()
            if "suspension" not in self._notices:
                await asyncio.Event().wait()
            await asyncio.sleep(RETRY_S)

    async def _start_jobs(self) -> None:
        """Start jobs after changes of the queue, several changes at once, for ever."""
        while True:
            await self._start.wait()
            self._start.clear()
            self._step()

    def _step(self) -> None:
        loop = asyncio.get_running_loop()
        with self._notices.catch("queue"):
            self.queue.step(self.monitor.devices, self.availability())
        if self.queue.awaits_reading:
            self._supervisor.request_occupancy()
        if self.queue.unfinished:
            pause = START_RETRY_S if "queue" in self._notices else PAUSE_S
            loop.call_later(pause, self.start_soon)
        loop.call_later(SPARE_S, self._local.start_spare)
        self.publisher.touch()

    def start_soon(self) -> None:
        """Start what can start, once this turn of the loop is over."""
        self._start.set()

    def _log_limit(self) -> int:
        return self._state.settings.log_bytes

    def _energy_price(self) -> EnergyPrice:
        settings = self._state.settings
        return EnergyPrice(settings.energy_price, settings.currency)

    def _limits_of(self, user: int | None) -> UserLimits | None:
        return limits_of(self._state.settings.limits, user)

    def _half_life(self) -> float:
        """Return after how many seconds GPU-hours of a user count half; 0 where nobody shares."""
        hours = self._state.settings.fair_share
        return 0.0 if hours == "off" or not self._shared else hours * 3600.0

    def _turns(self) -> float:
        """Return after how many seconds preemptible jobs leave their GPUs to each other."""
        minutes = self._state.settings.turns
        return math.inf if minutes == "off" else minutes * 60.0

    def _tidy(self, job_id: int) -> Coroutine[None, None, None] | None:
        """Return what must be done about a job whose runner ended before it is reaped."""
        job = next((job for job in self.queue.running if job.id == job_id), None)
        return None if job is None else self._local.end_container(job)

    def _job_ended(self, job: Job) -> None:
        self._job_end_command.job_ended(job, self._state.settings.on_job_end)
        self.job_ends.job_ended(job.id)
        self.notifier.job_ended(job)
        self._calibration.job_ended(job)
        self._self_calibration.job_ended(job)

    def _submit(self, spec: Spec) -> Job:
        """Queue a job of the daemon itself. Raises UserError."""
        availability = self.availability()
        (job,) = finish(self.queue.submission.submit([spec], self.monitor.devices, availability))
        self.queue_changed()
        return job

    def _cancel(self, job_id: int) -> None:
        """Cancel a job of the daemon itself. Raises UserError."""
        self.queue.canceller.cancel(job_id)
        self.queue_changed()

    def _alert_changed(self, alert: Alert) -> None:
        owners = (j.spec.user for j in self.queue.queries.overview() if j.id == alert.job)
        self.notifier.alert_changed(alert, next(owners, None))

    # What handlers use; see `verbs.request.Daemon`

    def queue_changed(self) -> None:
        """Plan anew, and start what can start once the handler has returned."""
        self.queue.plan(self.monitor.devices, self.availability())
        self.start_soon()

    def availability(self, idle: bool = False) -> Availability:
        """Return how the devices were read last; a GPU that could not be read is not free.

        Args:
            idle: Tell also which are idle, as it is told while jobs wait for that.
        """
        running = [job.id for job in self.queue.running]
        ignored = settings.listed(self._state.settings.ignored_programs)
        devices, leased = self.monitor.devices, self._lease_service.device
        watched = [d for d in devices if d.kind == "nvidia" or d.id in self._state.latest]
        return Availability(
            {d.id: device_use(self._state.latest.get(d.id), running, ignored) for d in watched},
            frozenset(d.id for d in devices if d.mig or is_drained(self._state.settings, d)),
            frozenset(() if leased is None else (leased,)),
            self._sharing.read(self.queue.running),
            tuple(self._state.settings.reservations.values()),
            self._why_busy() if idle or self.queue.waits_for_idle_devices else {},
            self._sharing.holders,
        )

    def _why_busy(self) -> dict[str, BusyCause]:
        """Return the devices that are not idle, and why; while the assistant waits, all are its."""
        asked = time.monotonic() - self._lease_asked < LEASE_WAIT_S
        states = self._device_states(self.queue.queries.overview())
        return {
            state.device.id: state.use.cause if isinstance(state.use, Busy) else Lent()
            for state in states
            if asked or state.leased or isinstance(state.use, Busy)
        }

    def _why_needed(self, device: str) -> Message | None:
        """Return why a job that runs only while GPUs are idle must leave a GPU; None: it stays."""
        latest, now = self._state.latest.get(device), time.time()
        cause = self.monitor.eviction_cause(device, latest, self._state.settings, now)
        return None if cause is None else busy_causes.explain(cause)

    def snapshot(self) -> Snapshot:
        """Return the present state of everything."""
        self._seq += 1
        jobs, problem = self.queue.queries.overview(), self._lease_service.problem
        return Snapshot(
            self._seq,
            time.time(),
            self._device_states(jobs),
            jobs,
            self._state.settings,
            self._state.source,
            self._notices.texts if problem is None else (*self._notices.texts, problem),
            self.queue.groups.paused,
            self.alerts.active,
            self.queue.waiting,
            self._clusters.unavailable,
            self._hosts.states(),
            self._local.limit_problem(),
        )

    def lease(self, memory: int, peer: wire.Peer) -> str:
        """Lease an idle GPU to the process of `peer`, and return the device's id.

        Where none is idle, jobs that run only while GPUs are idle leave one: ask again soon.
        """
        jobs = self.queue.queries.overview()
        states = self._device_states(jobs)
        try:
            device = self._lease_service.grant(
                states,
                self._state.latest,
                memory,
                peer.pid,
                lambda reason: peer.write(encode_reply(reason)),
            )
        except UserError:
            if self._lease_service.device is None:
                self._make_way(jobs, states, memory)
            raise
        self._sharing.lend((device, *self.queue.idle_devices))
        return device

    def _make_way(self, jobs: Sequence[Job], states: Sequence[DeviceState], memory: int) -> None:
        """Have a job that runs only while GPUs are idle leave one that the assistant could have.

        It could have none while another job waits, or where all are too small.
        """
        if any(waits_for_gpu(job, time.time()) for job in jobs):
            return
        large = [
            state.device.id
            for state in states
            if state.device.kind == "nvidia"
            and state.reading is not None
            and state.reading.values.get("mem_total", math.inf) >= memory
        ]
        if large:
            self._lease_asked = time.monotonic()
        for gpu in [gpu for gpu in large if gpu in self.queue.idle_devices][-1:]:
            self.queue.idle_jobs.leave(gpu, phrase("the assistant needs the GPU"))

    async def free(self, booking: Booking) -> Freed:
        """Suspend the jobs that a booking keeps from its GPUs now; see `Freeing.free`."""
        return await self._freeing.free(booking)

    async def end_process(self, process: Process) -> None:
        """End a process of this user that uses a GPU."""
        await end_process(process)

    async def configure(self, changes: Mapping[str, object]) -> settings.Settings:
        """Store the changed settings and put them in force."""
        new = settings.changed(self._state.settings, dict(changes))
        if "on_job_end" in changes:
            check_command(new.on_job_end)
            self._notices.set("callback", None)  # it was about the command of before
        settings.save(new)
        old, self._state.settings = self._state.settings, new
        if old.source != new.source:
            self._state.source = STARTING
            self._notices.set("probe", None)
        await self.polling.start(new)
        for helper in self._helpers:
            helper.settings_changed()
        if old.clusters != new.clusters:
            await self._clusters.serve(new.clusters)
        if old.hosts != new.hosts:
            await self._hosts.serve(new.hosts)
        self._step()
        return new

    def stop(self) -> None:
        """End once the reply is on its way; running jobs continue."""
        asyncio.get_running_loop().call_soon(self._stop.set)

    def _device_states(self, jobs: Sequence[Job]) -> tuple[DeviceState, ...]:
        return self.monitor.states(
            jobs, self._state.settings, time.time(), self._lease_service.device
        )

    def owner(self, peer: wire.Peer) -> int | None:
        """Return the user whose jobs a client submits; None where all are of who runs us."""
        return peer.uid if self._shared else None

    def preempts(self, user: int | None) -> Callable[[Spec], bool]:
        """Return what tells whether a job of a user is preemptible: as it says, or by default."""
        groups, limits = listed(self._state.settings.preemptible_groups), self._limits_of(user)
        always = limits is not None and limits.preemptible

        def preempts(spec: Spec) -> bool:
            by_default = (always or spec.group in groups) and spec.gpus > 0 and not spec.where
            return spec.preemptible or by_default

        return preempts

    def viewer(self, peer: wire.Peer) -> int | None:
        """Return the user from whom parts of other users' jobs are hidden; None: nothing is."""
        return self.owner(peer) or None  # root sees everything

    def mover(self, peer: wire.Peer) -> int | None:
        """Return the user who may overtake their own jobs alone; None: who may overtake all."""
        return peer.uid if self._shared and not sharing.is_admin(peer.uid) else None

    def editor(self, peer: wire.Peer) -> Editor:
        """Return who changes a job."""
        return Editor(peer.uid, sharing.is_admin(peer.uid)) if self._shared else OWNER

    def _encode_for(self, value: object, uid: int) -> bytes:
        """Encode a snapshot as its user may see it."""
        return encode_reply(self._seen(value, uid))

    def _seen(self, value: object, uid: int) -> object:
        """Return a reply as its user may see it."""
        return sharing.visible(value, uid) if self._shared else value

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        """Carry out one request and send the reply."""
        try:
            request = await peer.do(decoding(line))
            if self._shared:
                sharing.authorize(request, peer.uid, self.queue.queries.owners)
                bookings = self._state.settings.reservations.values()
                sharing.check_groups(request, peer.uid, bookings)
            self.polling.requested(not isinstance(request, GetSnapshot) or request.live)
            value = await request.handle(self, peer)
            reply = await peer.do(encoding_reply(value, lambda v: self._seen(v, peer.uid)))
        except UserError as e:
            reply = encode_message(Error.of(e))
        await peer.send(reply)


async def serve() -> None:
    """Run the daemon until it is stopped."""
    folder = os.open(paths.ensure(paths.home()), os.O_RDONLY)
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)  # else tmpfiles.d(5) empties /var/tmp
    store = Store(paths.store_file())
    note_version()
    listening = wire.listen(paths.daemon_socket())
    if paths.shared():
        if os.getuid() != 0:
            raise UserError(
                phrase("a shared daemon runs as root, as jobs run as who submitted them")
            )
        paths.home().chmod(PASSABLE)
        sharing.open_socket_to_members(paths.daemon_socket())
    await Daemon(store).run(listening)
