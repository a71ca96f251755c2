"""gpudeckd: the loop and the wiring. One a user; starts on demand, outlives the window, is the only writer of the store.

python -m scheduler.daemon
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from scheduler.background.instance import say_ready
from scheduler.devices.probe import Hello, Readings
from scheduler.devices.supervisor import Supervisor
from scheduler.executors.clusters import Clusters
from scheduler.executors.local import Local
from scheduler.executors.registry import ExecutorRegistry
from scheduler.lease.service import LeaseService
from scheduler.protocol import paths, settings, wire
from scheduler.protocol.devices import Process, Reading
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.jobs import Job, held_devices
from scheduler.protocol.snapshot import SLEEP_NOTICE, STARTING, DeviceState, Snapshot
from scheduler.protocol.wait_reasons import ClusterUnavailable, render
from scheduler.queue.placement import Availability, device_use
from scheduler.queue.queue import Queue
from scheduler.services.alert_service import AlertService
from scheduler.services.end_process import end_process
from scheduler.services.job_end import JobEndCommand, JobEnds
from scheduler.services.notices import NoticeBoard
from scheduler.services.polling import PollingController
from scheduler.services.publisher import Publisher
from scheduler.services.report_service import ReportService
from scheduler.store import Store
from scheduler.store.recorder import Recorder
from scheduler.telemetry.monitor import CALM_HZ, Monitor
from scheduler.verbs.control import GetSnapshot
from scheduler.verbs.registry import decode_request
from scheduler.verbs.request import Error, encode_message, encode_reply

LOOK_S = 0.25
"""How often the logs of running jobs are looked at for progress."""
STAND_BY_S = 0.02
"""So long after jobs were started a runner for the next one is: first these get the processor."""
AGAIN_S = 1.0
"""What could not be stored, as on a full disk, is tried again after this long."""
BREATH_S = 0.005
"""Where many jobs are started or ended in pieces, everybody else has so long between two."""
REFUSED_S = 0.1
"""The same where something is refused, as by a full disk."""
ENDS = 100
"""Jobs that have ended and are settled in one go."""
FLUSH_S = 5.0
"""How often readings go to disk, many in one transaction."""


class Daemon:
    """All parts of the daemon, and who tells whom. Everything happens in one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settings = settings.load()
        self._source, self._seq = STARTING, 0
        self._latest: dict[str, Reading] = {}
        """What was read of each device last; empty while the probe does not answer."""
        self._over: deque[int] = deque()
        """Jobs whose runners have ended; those of one moment are settled together."""
        self._unstored: set[int] = set()
        """Jobs whose end could not be stored yet."""
        self._again = 0.0
        """When that is tried again, in monotonic seconds."""
        self._due = asyncio.Event()
        """An order changed the queue: it is to be looked at."""
        self._stop = asyncio.Event()
        self.publisher = Publisher(lambda: encode_reply(self.snapshot()))
        self._notices = NoticeBoard(self.touch)
        self._supervisor = Supervisor(self._hello, self._readings, self._trouble, self._occupancy)
        self._job_end_command = JobEndCommand(lambda text: self._notices.set("callback", text))
        self._report_service = ReportService(
            lambda: self._settings, lambda text: self._notices.set("scribing", text)
        )
        self.job_ends = JobEnds()
        self.monitor = Monitor()
        self.recorder = Recorder(
            paths.history_file(), lambda text: self._notices.set("damaged history", text)
        )
        self._lease_service = LeaseService(
            self.monitor, self._supervisor.request_occupancy, self._step, self.touch
        )
        self._clusters = Clusters(self, self._settings.clusters, self._log_limit)
        self._local = Local(self._watch, self._log_limit)
        executors = ExecutorRegistry(self._local, self._clusters)
        self.queue = Queue(store, executors, self._job_ended, self._lease_service.evict)
        self.polling = PollingController(
            self._supervisor, self._settings, self._worked, self._slept
        )
        self.alerts = AlertService(store, self._notices.set, self.recorder.annotate)

    async def run(self, listening: socket.socket) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._recover()
        await self.polling.start(self._settings)
        await self._clusters.serve(self._settings.clusters)
        server = await wire.serve(listening, self._handle)
        tasks: list[asyncio.Future[Any]] = [self._supervisor.crashed, self._clusters.crashed]
        lasting = (
            self.publisher.publish(),
            self._obey(),
            self.polling.run(),
            _every(LOOK_S, self._look),
            self._keep(),
            self._report_service.run(),
        )
        tasks += [asyncio.create_task(t) for t in lasting]
        say_ready()
        stopped: asyncio.Future[Any] = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        server.close()
        await self._supervisor.stop()
        await self._clusters.stop()
        await self.alerts.stop()
        await self._job_end_command.stop()
        for task in tasks:
            task.cancel()
        with self._notices.catch("history"):
            await self.recorder.close()
        self._store.close()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # a bug of ours ended a task: be loud

    # What the probe says

    def _hello(self, hello: Hello) -> None:
        self._source = hello.source
        self.polling.probe_started(hello)
        self.monitor.set_devices(hello.devices)
        self._latest = {}
        self._notices.set("probe", None)
        self._step()

    def _readings(self, message: Readings) -> None:
        self.recorder.add(
            self.monitor.add(message.readings, self.queue.running),
            1 / min(self._settings.telemetry_hz, CALM_HZ),
        )
        self.queue.add_readings(message.readings)
        self._latest = {reading.device: reading for reading in message.readings}
        holders = [job for job in self.queue.running if held_devices(job)]
        self.alerts.check(self.monitor.devices, self._latest, holders, self._settings, time.time())
        self._lease_service.add_readings(message.readings, self._latest, self._settings)
        if (
            self.queue.waits_for_devices
        ):  # memory may have come free, or a process of others be gone
            self._step()
        self.touch()

    def _occupancy(self, readings: Sequence[Reading]) -> None:
        """Who is on the devices now, between two readings."""
        for seen in readings:
            if (old := self._latest.get(seen.device)) is not None:
                values = {**old.values, **seen.values}
                self._latest[seen.device] = msgspec.structs.replace(
                    old,
                    time=seen.time,
                    values=values,
                    processes=seen.processes,
                    drawing=seen.drawing,
                )
        self._lease_service.add_readings(readings, self._latest, self._settings)

    def _trouble(self, words: str) -> None:
        self.monitor.lose_probe()
        self._latest = {}
        self._notices.set("probe", words)
        self.touch()

    def _worked(self) -> bool:
        """Whether a job for a GPU waits or runs, or the assistant has one."""
        return (
            self._lease_service.device is not None
            or self.queue.waits_for_devices
            or any(held_devices(job) for job in self.queue.running)
        )

    def _slept(self, asleep: bool) -> None:
        if asleep:
            self.monitor.lose_probe()
            self._latest = {}
        self._notices.set("sleep", SLEEP_NOTICE if asleep else None)

    # What runs by the clock

    def _look(self) -> None:
        """Hear what running jobs report, and try again what could not be stored."""
        news = self.queue.read_progress(time.time())
        for job, said in news.items():
            self.monitor.add_progress(job, said)
        if news:
            self.monitor.forget({j.id for j in self.queue.running})
            self.touch()
        if time.monotonic() >= self._again:
            self._try_again()
        self._lease_service.review(self._latest, self._settings)
        if "queue" in self._notices or self.queue.retry_is_ready(
            time.time()
        ):  # something could not be started: perhaps it can now
            self._step()

    def _try_again(self) -> None:
        """Store what could not be stored."""
        if self._unstored:
            self._settle(sorted(self._unstored)[:ENDS])
        if "recover" in self._notices:
            self._recover()

    async def _keep(self) -> None:
        """Readings to disk. What cannot be stored waits in memory, for minutes: telemetry must not stand in the way of jobs."""
        while True:
            await asyncio.sleep(FLUSH_S)
            with self._notices.catch("history"):
                await self.recorder.flush()

    # The queue

    def _recover(self) -> None:
        self._again = time.monotonic() + AGAIN_S
        with self._notices.catch("recover"):
            self.queue.recover()
        self.start_soon()

    async def _obey(self) -> None:
        """Start what orders allow to start. They were acknowledged before, and what came meanwhile is looked at once."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._step()

    def _step(self) -> None:
        with self._notices.catch("queue"):
            self.queue.step(self.monitor.devices, self.availability())
        if self.queue.unfinished:
            asyncio.get_running_loop().call_later(
                REFUSED_S if "queue" in self._notices else BREATH_S, self.start_soon
            )
        asyncio.get_running_loop().call_later(STAND_BY_S, self._local.start_spare)
        self.touch()

    def availability(self) -> Availability:
        """The devices as they were read last. A GPU that could not be read is one that nobody knows to be free."""
        running = [job.id for job in self.queue.running]
        ignored = settings.listed(self._settings.ignored_programs)
        watched = [d for d in self.monitor.devices if d.kind == "nvidia" or d.id in self._latest]
        drained = settings.listed(self._settings.drained)
        return Availability(
            {d.id: device_use(self._latest.get(d.id), running, ignored) for d in watched},
            frozenset(
                d.id for d in self.monitor.devices if d.mig or drained & {d.id, str(d.index)}
            ),
            frozenset(() if self._lease_service.device is None else (self._lease_service.device,)),
        )

    def _log_limit(self) -> int:
        return self._settings.log_bytes

    def _job_ended(self, job: Job) -> None:
        self._job_end_command.job_ended(job, self._settings.on_job_end)
        self.job_ends.job_ended(job.id)

    def _watch(self, job: int, runner: int) -> None:
        """Be told when this runner ends, whether we started it or an earlier daemon did. Raises UserError where that is impossible."""
        try:
            fd = os.pidfd_open(runner)
        except ProcessLookupError:
            self._runner_ended(job)
            return
        except OSError as e:
            raise UserError(
                f"no more processes can be watched: {e.strerror}. The daemon may need a higher limit of open files."
            ) from e

        def ended() -> None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
            self._runner_ended(job)

        asyncio.get_running_loop().add_reader(fd, ended)

    def _runner_ended(self, job: int) -> None:
        """To be settled once this turn of the loop is over, with all that end in it: each time costs a look at all processes."""
        if not self._over:
            asyncio.get_running_loop().call_soon(self._settle_over)
        self._over.append(job)

    def _settle_over(self) -> None:
        jobs = [self._over.popleft() for _ in range(min(ENDS, len(self._over)))]
        if self._over:
            asyncio.get_running_loop().call_later(BREATH_S, self._settle_over)
        self._settle(jobs)

    def attempt_ended(self, job: int) -> None:
        self._settle((job,))

    def _settle(self, jobs: Collection[int]) -> None:
        self._unstored.update(jobs)
        self._again = time.monotonic() + AGAIN_S
        with self._notices.catch("settle"):
            self.queue.reap(jobs)
            self._unstored.difference_update(jobs)
        self._step()

    # What the executors of clusters need: see `executors.cluster.Hub`

    def jobs_on(self, where: str) -> list[Job]:
        return self.queue.jobs_on(where)

    def environment(self, job_id: int) -> dict[str, str]:
        return self.queue.environment(job_id)

    def acknowledge(self, job_id: int) -> None:
        self.queue.acknowledge(job_id)
        self.touch()

    def set_note(self, job_id: int, note: str) -> None:
        self.queue.set_note(job_id, note)
        self.touch()

    def cluster_changed(self, where: str, unavailable: ClusterUnavailable | None) -> None:
        self._notices.set(where, render(unavailable, time.time()) if unavailable else "")
        self._step()

    # The rest of `scheduler.verbs.request.Daemon`, which handlers use

    def touch(self) -> None:
        """Publish a new snapshot soon."""
        self.publisher.touch()

    def queue_changed(self) -> None:
        """Plan anew, and start what can start once the handler has returned."""
        self.queue.plan(self.monitor.devices, self.availability())
        self.start_soon()

    def start_soon(self) -> None:
        """Start what can start, once this turn of the loop is over."""
        self._due.set()

    def stop(self) -> None:
        """End once the reply is on its way; running jobs continue."""
        asyncio.get_running_loop().call_soon(self._stop.set)

    def lease(self, memory: int, peer: wire.Peer) -> str:
        """Lease an idle GPU to the process of `peer`, and return the device's id."""
        return self._lease_service.grant(
            self._states(self.queue.queries.overview()),
            self._latest,
            memory,
            peer.pid,
            lambda why: peer.write(encode_reply(why)),
        )

    async def end_process(self, process: Process) -> None:
        """End a process of this user that uses a GPU."""
        await end_process(process)

    def snapshot(self) -> Snapshot:
        self._seq += 1
        jobs = self.queue.queries.overview()
        return Snapshot(
            self._seq,
            time.time(),
            self._states(jobs),
            jobs,
            self._settings,
            self._source,
            tuple(filter(None, (*self._notices.texts, self._lease_service.problem))),
            self.queue.groups.paused,
            self.alerts.active,
            self.queue.waiting,
        )

    def _states(self, jobs: Sequence[Job]) -> tuple[DeviceState, ...]:
        return self.monitor.states(jobs, self._settings, time.time(), self._lease_service.device)

    # Requests

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        try:
            request = decode_request(line)
            self.polling.requested(not isinstance(request, GetSnapshot) or request.live)
            reply = encode_reply(await request.handle(self, peer))
        except UserError as e:
            reply = encode_message(Error(str(e), missing=isinstance(e, NotFound)))
        await peer.send(reply)

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
        self._step()
        return new


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        action()


async def serve() -> None:
    store = Store(paths.store_file())
    await Daemon(store).run(wire.listen(paths.daemon_socket()))
