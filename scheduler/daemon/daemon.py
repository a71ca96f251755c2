"""The daemon: the event loop and the wiring of all parts.

One daemon runs for each user. It starts on demand, outlives the window, and alone writes the store.

    python -m scheduler.daemon
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from scheduler.background.instance import report_ready
from scheduler.daemon import sharing
from scheduler.devices.probe import Hello, Readings
from scheduler.devices.supervisor import Supervisor
from scheduler.executors.attempt_folder import PASSABLE
from scheduler.executors.clusters import Clusters
from scheduler.executors.gpu_lock_watch import GpuLockWatch
from scheduler.executors.local import Local
from scheduler.executors.registry import ExecutorRegistry
from scheduler.hosts.reader import INTERVAL_S
from scheduler.hosts.service import HostService
from scheduler.lease.service import LeaseService
from scheduler.protocol import paths, settings, wire
from scheduler.protocol.devices import Process, Reading
from scheduler.protocol.draining import is_drained
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job, held_devices
from scheduler.protocol.snapshot import SLEEP_NOTICE, STARTING, DeviceState, Snapshot
from scheduler.protocol.wait_reasons import ClusterUnavailable, render
from scheduler.queue.placement import Availability, device_use
from scheduler.queue.queue import Queue
from scheduler.services.alert_service import AlertService
from scheduler.services.calibration_service import CalibrationService
from scheduler.services.end_process import end_process
from scheduler.services.fault_drain import FaultDrain
from scheduler.services.job_end import JobEndCommand, JobEnds
from scheduler.services.notices import NoticeBoard
from scheduler.services.polling import PollingController
from scheduler.services.publisher import Publisher
from scheduler.services.report_service import ReportService
from scheduler.services.runner_watch import PAUSE_S, RETRY_S, RunnerWatch
from scheduler.store import Store
from scheduler.store.recorder import Recorder
from scheduler.telemetry.monitor import CALM_HZ, Monitor
from scheduler.verbs.control import GetSnapshot
from scheduler.verbs.registry import decode_request
from scheduler.verbs.request import Error, encode_message, encode_reply

PROGRESS_S = 0.25
"""The interval at which the logs of running jobs are read for progress."""
FOLDERS_S = 3.0
"""The interval at which folders of jobs that could not be read are checked again."""
SPARE_S = 0.02
"""The pause between the start of jobs and that of a spare runner: the jobs get the CPU first."""
START_RETRY_S = 0.1
"""The pause before starts that were refused, as by a full disk, are tried again."""
INSPECT_S = 1.0
"""The interval at which runners are asked what they wait for."""
CHECKPOINT_S = 30.0
"""The interval at which the write-ahead log of the store is emptied."""
FLUSH_S = 5.0
"""The interval at which readings go to disk, many in one transaction."""


class Daemon:
    """Own all parts of the daemon, which run in one event loop, and connect them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settings = settings.load()
        self._source, self._seq = STARTING, 0
        self._latest: dict[str, Reading] = {}
        """The newest reading of each device; empty while the probe does not answer."""
        self._inspect_at = 0.0
        self._recover_at = 0.0
        """When a recovery that failed is tried again, in monotonic seconds."""
        self._checkpoint_at = 0.0
        """When the store's log is emptied again, in monotonic seconds."""
        self._folders_at = 0.0
        """When the folders of jobs are checked again, in monotonic seconds."""
        self._start = asyncio.Event()
        """The queue changed, so that jobs may start."""
        self._stop = asyncio.Event()
        self._shared = paths.shared()
        self.publisher = Publisher(self.snapshot, self._encode_for)
        self._notices = notices = NoticeBoard(self.touch)
        if note := paths.network_note():
            notices.set("state folder", note)
            sys.stderr.write(f"{note}\n")
        self._supervisor = Supervisor(
            self.probe_started, self.add_readings, self._lose_probe, self._add_occupancy
        )
        self._job_end_command = JobEndCommand(lambda text: notices.set("callback", text))
        self._report_service = ReportService(
            lambda: self._settings, lambda text: notices.set("reports", text)
        )
        self.job_ends = JobEnds()
        self.monitor = Monitor()
        self.recorder = Recorder(
            paths.history_file(), lambda text: notices.set("damaged history", text)
        )
        self._gpu_locks = GpuLockWatch(notices.catch)
        self._lease_service = LeaseService(
            self.monitor,
            self._supervisor.request_occupancy,
            self._step,
            self.touch,
            self._gpu_locks.is_lent,
        )
        # the queue is made below
        self.runners = RunnerWatch(lambda jobs: self.queue.reap(jobs), notices, self._step)  # noqa: PLW0108
        self._clusters = Clusters(self, self._settings.clusters, self._log_limit)
        self._local = Local(self.runners.watch, self._log_limit, self._gpu_memory)
        executors = ExecutorRegistry(self._local, self._clusters)
        self.queue = Queue(store, executors, self._job_ended, self._lease_service.evict)
        self.polling = PollingController(
            self._supervisor, self._settings, self._needs_gpu, self._sleep_changed
        )
        self.alerts = AlertService(store, notices.set, self.recorder.annotate)
        self._hosts = HostService(self._add_host_readings)
        self._faults = FaultDrain(paths.faults_file(), notices)
        self._calibration = CalibrationService(
            self.recorder.past,
            lambda: self.monitor.devices,
            lambda: self.polling.start(self._settings),
            lambda text: notices.set("calibration", text),
        )

    async def run(self, listening: socket.socket) -> None:
        """Serve until a signal, or the request Stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._recover()
        await self.polling.start(self._settings)
        await self._clusters.serve(self._settings.clusters)
        await self._hosts.serve(self._settings.hosts)
        server = await wire.serve(listening, self._handle, self._shared)
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
            self._flush_history(),
            self._report_service.run(),
        )
        tasks += [asyncio.create_task(service) for service in services]
        report_ready()
        stopped: asyncio.Future[Any] = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        server.close()
        await self._supervisor.stop()
        await self._clusters.stop()
        await self._hosts.stop()
        await self.alerts.stop()
        await self._job_end_command.stop()
        await self._calibration.stop()
        for task in tasks:
            task.cancel()
        with self._notices.catch("history"):
            await self.recorder.close()
        with self._notices.catch("checkpoint"):
            self.queue.checkpoint()
        self._store.close()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises where a bug ended the task

    # Called by the supervisor of the probe

    def probe_started(self, hello: Hello) -> None:
        """Take the devices that the probe found."""
        self._source = hello.source
        self.polling.probe_started(hello)
        self.monitor.set_devices(hello.devices)
        self._latest = {}
        self._notices.set("probe", None)
        self._step()

    def add_readings(self, message: Readings) -> None:
        """Take new readings of all devices."""
        running = self.queue.running
        self._read_gpu_locks()
        interval = 1 / min(self._settings.telemetry_hz, CALM_HZ)
        shown = self.monitor.add(message.readings, running)
        self.recorder.add([reading for reading in shown if reading.values], interval)
        self.queue.add_readings(message.readings)
        self._latest = {reading.device: reading for reading in message.readings}
        self._settings = self._faults.add(message.readings, self.monitor.devices, self._settings)
        self._check_alerts()
        self._lease_service.add_readings(message.readings, self._latest, self._settings)
        if self.queue.waits_for_devices:  # memory may be free, or another's process gone
            self._step()
        self.touch()

    def _add_host_readings(self, readings: Sequence[Reading]) -> None:
        """Take new readings of another machine; none where it can no longer be reached."""
        self.recorder.add(readings, INTERVAL_S)
        if readings:
            self._check_alerts()
        self.touch()

    def _check_alerts(self) -> None:
        holders = [job for job in self.queue.running if held_devices(job)]
        devices = (*self.monitor.devices, *self._hosts.devices)
        readings = {**self._latest, **self._hosts.readings}
        self.alerts.check(devices, readings, holders, self._settings, time.time())

    def _add_occupancy(self, readings: Sequence[Reading]) -> None:
        """Take memory and processes of devices, read between two whole readings."""
        for new in readings:
            if (old := self._latest.get(new.device)) is not None:
                self._latest[new.device] = msgspec.structs.replace(
                    old,
                    time=new.time,
                    values={**old.values, **new.values},
                    processes=new.processes,
                    drawing=new.drawing,
                )
        self._lease_service.add_readings(readings, self._latest, self._settings)

    def _lose_probe(self, problem: str) -> None:
        self.monitor.lose_probe()
        self._latest = {}
        self._notices.set("probe", problem)
        self.touch()

    # Called by the polling controller

    def _needs_gpu(self) -> bool:
        """Return True where a job for a GPU waits or runs, or the assistant has a GPU."""
        return (
            self._lease_service.device is not None
            or self.queue.waits_for_devices
            or any(held_devices(job) for job in self.queue.running)
        )

    def _sleep_changed(self, asleep: bool) -> None:
        if asleep:
            self.monitor.lose_probe()
            self._latest = {}
        self._notices.set("sleep", SLEEP_NOTICE if asleep else None)

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
                self.touch()
            self.runners.retry()
            self._check_folders()
            self._inspect_runners()
            if "recover" in self._notices and time.monotonic() >= self._recover_at:
                self._recover()
            self._checkpoint()
            self._check_store()
            self._follow_gpu_locks()
            self._lease_service.review(self._latest, self._settings)
            if "queue" in self._notices or self.queue.retry_is_ready(time.time()):
                self._step()

    def _checkpoint(self) -> None:
        if time.monotonic() >= self._checkpoint_at:
            self._checkpoint_at = time.monotonic() + CHECKPOINT_S
            with self._notices.catch("checkpoint"):
                self.queue.checkpoint()

    def _check_store(self) -> None:
        """End where the store was deleted or replaced: the next daemon finds what is left."""
        if self.queue.store_is_replaced:
            sys.stderr.write("the daemon ends: its store was deleted or replaced\n")
            self._stop.set()

    def _inspect_runners(self) -> None:
        if time.monotonic() < self._inspect_at:
            return
        self._inspect_at = time.monotonic() + INSPECT_S
        devices = self.monitor.devices
        for found in self._local.inspect(self.queue.running, self._latest, devices):
            if found.ended:
                self.runners.runner_ended(found.job)
            elif found.left:
                with self._notices.catch("left behind"):
                    self.queue.add_event(found.job, "left behind", found.left)
            elif self.queue.set_note(found.job, found.note):
                self.touch()

    def _check_folders(self) -> None:
        if time.monotonic() < self._folders_at:
            return
        self._folders_at = time.monotonic() + FOLDERS_S
        held_back = self.queue.holds_back_jobs
        try:
            text = self.queue.check_folders()
        except UserError as e:
            text = str(e)
        if held_back or text is not None or "folders" in self._notices:
            self.start_soon()
        self._notices.set("folders", text)
        self._notices.set("store", self.queue.store_problem())

    async def _flush_history(self) -> None:
        """Write readings to disk, for ever.

        Those that cannot be written stay in memory, for minutes: jobs are more important.
        """
        while True:
            await asyncio.sleep(FLUSH_S)
            with self._notices.catch("history"):
                await self.recorder.flush()

    def _recover(self) -> None:
        self._recover_at = time.monotonic() + RETRY_S
        with self._notices.catch("recover"):
            self.queue.recover()
        self.start_soon()

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
        if self.queue.unfinished:
            pause = START_RETRY_S if "queue" in self._notices else PAUSE_S
            loop.call_later(pause, self.start_soon)
        loop.call_later(SPARE_S, self._local.start_spare)
        self.touch()

    def start_soon(self) -> None:
        """Start what can start, once this turn of the loop is over."""
        self._start.set()

    def _gpu_memory(self, device: str) -> float | None:
        """Return the bytes of a GPU that all users share; None for any other device."""
        if not any(d.id == device and d.kind == "nvidia" for d in self.monitor.devices):
            return None
        found = self._latest.get(device)
        return math.inf if found is None else found.values.get("mem_total", math.inf)

    def _read_gpu_locks(self) -> Mapping[str, float]:
        """Return the bytes of GPUs that queues of other users hold, as they are now."""
        held = self._gpu_locks.read(self._gpus(), self.queue.running)
        self.monitor.held_by_others = self._gpu_locks.wanted.union(held)
        return held

    def _gpus(self) -> list[str]:
        return [device.id for device in self.monitor.devices if device.kind == "nvidia"]

    def _follow_gpu_locks(self) -> None:
        """Act on what other queues released or want; readings may be rare.

        Start what can start on a released GPU, and have assistants leave those that jobs wait for:
        ours, and those of other queues.
        """
        leased, waits = self._lease_service.device, self.queue.waits_for_devices
        self._gpu_locks.lend(() if leased is None else (leased,))
        self._gpu_locks.want(self._gpus() if waits else ())
        before = self._gpu_locks.held
        if leased is not None or (before and waits):
            held = self._read_gpu_locks()
            if waits and held != before:
                self._step()

    def _log_limit(self) -> int:
        return self._settings.log_bytes

    def _job_ended(self, job: Job) -> None:
        self._job_end_command.job_ended(job, self._settings.on_job_end)
        self.job_ends.job_ended(job.id)
        self._calibration.job_ended(job)

    # What executors of clusters use; see `executors.cluster.Hub`

    def jobs_on(self, where: str) -> list[Job]:
        """Return the jobs that were started there and have not ended."""
        return self.queue.jobs_on(where)

    def environment(self, job_id: int) -> dict[str, str]:
        """Return the environment the job was submitted with. Raises UserError."""
        return self.queue.environment(job_id)

    def acknowledge(self, job_id: int) -> None:
        """Commit that the cluster has the job's attempt."""
        self.queue.acknowledge(job_id)
        self.touch()

    def set_note(self, job_id: int, note: str) -> None:
        """Show what holds the job up in its cluster."""
        self.queue.set_note(job_id, note)
        self.touch()

    def attempt_ended(self, job_id: int) -> None:
        """Reap the job's attempt, which is over."""
        self.runners.reap((job_id,))

    def cluster_changed(self, where: str, unavailable: ClusterUnavailable | None) -> None:
        """Show that a cluster does not answer, or start what waited for it."""
        self._notices.set(where, render(unavailable, time.time()) if unavailable else None)
        self._step()

    # What handlers use; see `verbs.request.Daemon`

    def touch(self) -> None:
        """Publish a new snapshot soon."""
        self.publisher.touch()

    def queue_changed(self) -> None:
        """Plan anew, and start what can start once the handler has returned."""
        self.queue.plan(self.monitor.devices, self.availability())
        self.start_soon()

    def availability(self) -> Availability:
        """Return how the devices were read last; a GPU that could not be read is not free."""
        running = [job.id for job in self.queue.running]
        ignored = settings.listed(self._settings.ignored_programs)
        devices, leased = self.monitor.devices, self._lease_service.device
        watched = [d for d in devices if d.kind == "nvidia" or d.id in self._latest]
        return Availability(
            {d.id: device_use(self._latest.get(d.id), running, ignored) for d in watched},
            frozenset(d.id for d in devices if d.mig or is_drained(self._settings, d)),
            frozenset(() if leased is None else (leased,)),
            self._read_gpu_locks(),
        )

    def snapshot(self) -> Snapshot:
        """Return the present state of everything."""
        self._seq += 1
        jobs, problem = self.queue.queries.overview(), self._lease_service.problem
        return Snapshot(
            self._seq,
            time.time(),
            self._device_states(jobs),
            jobs,
            self._settings,
            self._source,
            self._notices.texts if problem is None else (*self._notices.texts, problem),
            self.queue.groups.paused,
            self.alerts.active,
            self.queue.waiting,
            self._clusters.unavailable,
            self._hosts.states(),
            self._local.limit_problem(),
        )

    def lease(self, memory: int, peer: wire.Peer) -> str:
        """Lease an idle GPU to the process of `peer`, and return the device's id."""
        device = self._lease_service.grant(
            self._device_states(self.queue.queries.overview()),
            self._latest,
            memory,
            peer.pid,
            lambda reason: peer.write(encode_reply(reason)),
        )
        self._gpu_locks.lend((device,))
        return device

    async def end_process(self, process: Process) -> None:
        """End a process of this user that uses a GPU."""
        await end_process(process)

    async def configure(self, changes: Mapping[str, object]) -> settings.Settings:
        """Store the changed settings and put them in force."""
        new = settings.changed(self._settings, dict(changes))
        settings.save(new)
        old, self._settings = self._settings, new
        if old.source != new.source:
            self._source = STARTING
            self._notices.set("probe", None)
        await self.polling.start(new)
        self._report_service.settings_changed()
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
        return self.monitor.states(jobs, self._settings, time.time(), self._lease_service.device)

    def owner(self, peer: wire.Peer) -> int | None:
        """Return the user whose jobs a client submits; None where all are of who runs us."""
        return peer.uid if self._shared else None

    def _encode_for(self, value: object, uid: int) -> bytes:
        """Encode a reply as its user may see it."""
        return encode_reply(sharing.visible(value, uid) if self._shared else value)

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        """Carry out one request and send the reply."""
        try:
            request = decode_request(line)
            if self._shared:
                sharing.authorize(request, peer.uid, lambda job: self.queue.get(job).spec.user)
            self.polling.requested(not isinstance(request, GetSnapshot) or request.live)
            answer = await request.handle(self, peer)
            if self._shared:
                answer = sharing.without_guesses(request, answer, peer.uid)
            reply = self._encode_for(answer, peer.uid)
        except UserError as e:
            reply = encode_message(Error.of(e))
        await peer.send(reply)


async def serve() -> None:
    """Run the daemon until it is stopped."""
    folder = os.open(paths.ensure(paths.home()), os.O_RDONLY)
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)  # else tmpfiles.d(5) empties /var/tmp
    store = Store(paths.store_file())
    listening = wire.listen(paths.daemon_socket())
    if paths.shared():
        if os.getuid() != 0:
            raise UserError("a shared daemon runs as root, as jobs run as who submitted them")
        paths.home().chmod(PASSABLE)
        sharing.open_socket_to_members(paths.daemon_socket())
    await Daemon(store).run(listening)
