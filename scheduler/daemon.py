"""gpudeckd: the loop and the wiring. One a user; starts on demand, outlives the window, is the only writer of the store.

python -m scheduler.daemon
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from scheduler import kill, paths, settings, wire
from scheduler import messages as m
from scheduler.alerting import Alerting
from scheduler.background import Identity, say_ready, serve_alone
from scheduler.callback import Callback
from scheduler.client import door
from scheduler.devices.model import Reading
from scheduler.devices.probe import Hello, Readings
from scheduler.devices.supervisor import Supervisor
from scheduler.errors import MALFORMED, NotFound, UserError
from scheduler.executors.clusters import Clusters
from scheduler.jobs import Job, Spec, held_devices
from scheduler.landlord import Landlord
from scheduler.queue.placement import Sight, look
from scheduler.queue.queue import Queue
from scheduler.queue.spans import spans
from scheduler.search import Search
from scheduler.store import Store
from scheduler.store.recorder import Recorder
from scheduler.telemetry.monitor import Monitor
from scheduler.telemetry.pace import CALM_HZ, SLEEP_NOTICE
from scheduler.telemetry.snapshot import DeviceState, Snapshot
from scheduler.watching import Watching

LOOK_S = 0.25
"""How often the logs of running jobs are looked at for progress."""
HEARTBEAT_S = 1.0
"""The longest time between two snapshots."""
PAUSE_S = 0.02
"""The shortest time between two snapshots: many jobs that start at once are one change."""
FLUSH_S = 5.0
"""How often readings go to disk, many in one transaction."""
MOST_SPANS = 500
"""Jobs among the annotations of one answer."""

_DECODE = msgspec.json.Decoder(m.Request).decode
_ENCODE = msgspec.json.Encoder().encode


class Daemon:
    """All state of the daemon, and the verbs. Everything happens in one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._settings = settings.load()
        self._monitor = Monitor()
        self._recorder = Recorder(paths.history_file(), lambda words: self._notice("damaged history", words))
        self._supervisor = Supervisor(self._hello, self._readings, self._trouble, self._glances)
        self._dirty = asyncio.Event()
        self._landlord = Landlord(self._monitor, self._supervisor.glance, self._step, self._dirty.set)
        self._clusters = Clusters(self, self._settings.clusters)
        self._queue = Queue(store, self._watch, self._job_ended, self._clusters, self._landlord.evict)
        self._watching = Watching(self._supervisor, self._settings, self._worked, self._slept)
        self._latest: dict[str, Reading] = {}
        """What was read of each device last; empty while the probe does not answer."""
        self._source = "starting"
        self._notices: dict[str, str] = {}
        self._alerting = Alerting(store, self._notice, self._recorder.annotate)
        self._callback = Callback(lambda words: self._notice("callback", words))
        self._unsettled: set[int] = set()
        self._seq = 0
        self._snapshot = self._take()
        self._encoded = _ENCODE(m.SnapshotReply(self._snapshot))
        self._fresh = asyncio.Condition()
        self._waiters: dict[int, set[asyncio.Future[None]]] = {}
        """By job: who waits for its end."""
        self._subscribers = 0
        self._due = asyncio.Event()
        """An order changed the queue: it is to be looked at."""
        self._stop = asyncio.Event()

    async def run(self, listening: socket.socket) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._queue.recover()
        await self._watching.start(self._settings)
        await self._clusters.serve(self._settings.clusters)
        server = await wire.serve(listening, self._handle)
        tasks: list[asyncio.Future[Any]] = [self._supervisor.crashed, self._clusters.crashed]
        lasting = (self._publish(), self._obey(), self._watching.attend(), _every(LOOK_S, self._look), self._keep())
        tasks += [asyncio.create_task(t) for t in lasting]
        say_ready()
        stopped: asyncio.Future[Any] = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        server.close()
        await self._supervisor.stop()
        await self._clusters.stop()
        await self._alerting.stop()
        await self._callback.stop()
        for task in tasks:
            task.cancel()
        with self._noticing("history"):
            await self._recorder.close()
        self._store.close()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # a bug of ours ended a task: be loud

    # What the probe says

    def _hello(self, hello: Hello) -> None:
        self._source = hello.source
        self._watching.hello(hello)
        self._monitor.set_devices(hello.devices)
        self._latest = {}
        self._notices.pop("probe", None)
        self._step()

    def _readings(self, message: Readings) -> None:
        self._recorder.add(self._monitor.add(message.readings, self._queue.going), 1 / min(self._settings.telemetry_hz, CALM_HZ))
        self._queue.watch(message.readings)
        self._latest = {reading.device: reading for reading in message.readings}
        holders = [job for job in self._queue.going if held_devices(job)]
        self._alerting.look(self._monitor.devices, self._latest, holders, self._settings, time.time())
        self._landlord.look(message.readings, self._latest, self._settings)
        if self._queue.waits_for_devices:  # memory may have come free, or a process of others be gone
            self._step()
        self._dirty.set()

    def _glances(self, readings: Sequence[Reading]) -> None:
        """Who is on the devices now, between two readings."""
        for seen in readings:
            if (old := self._latest.get(seen.device)) is not None:
                values = {**old.values, **seen.values}
                self._latest[seen.device] = msgspec.structs.replace(
                    old, time=seen.time, values=values, processes=seen.processes, drawing=seen.drawing
                )
        self._landlord.look(readings, self._latest, self._settings)

    def _trouble(self, words: str) -> None:
        self._monitor.lose()
        self._latest = {}
        self._notices["probe"] = words
        self._dirty.set()

    def _worked(self) -> bool:
        """Whether a job for a GPU waits or runs, or the assistant has one."""
        return self._landlord.device is not None or self._queue.waits_for_devices or any(held_devices(job) for job in self._queue.going)

    def _slept(self, asleep: bool) -> None:
        if asleep:
            self._monitor.lose()
            self._latest = {}
        self._notice("sleep", SLEEP_NOTICE if asleep else "")

    # What runs by the clock

    def _look(self) -> None:
        """Hear what running jobs report, and try again what could not be stored."""
        news = self._queue.look(time.time())
        for job, said in news.items():
            self._monitor.heard(job, said)
        if news:
            self._monitor.forget({j.id for j in self._queue.going})
            self._dirty.set()
        for job in tuple(self._unsettled):
            self.settle(job)
        self._landlord.review(self._latest, self._settings)
        self._queue.stand_by()
        if "queue" in self._notices or self._queue.due(time.time()):  # something could not be started: perhaps it can now
            self._step()

    async def _keep(self) -> None:
        """Readings to disk. What cannot be stored waits in memory, for minutes: telemetry must not stand in the way of jobs."""
        while True:
            await asyncio.sleep(FLUSH_S)
            with self._noticing("history"):
                await self._recorder.flush()

    # The queue

    async def _obey(self) -> None:
        """Start what orders allow to start. They were acknowledged before, and what came meanwhile is looked at once."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._step()

    def _step(self) -> None:
        with self._noticing("queue"):
            self._queue.step(self._monitor.devices, self._sight())
        self._dirty.set()

    def _sight(self) -> Sight:
        """The devices as they were read last. A GPU that could not be read is one that nobody knows to be free."""
        running = [job.id for job in self._queue.going]
        ignored = settings.listed(self._settings.ignored_programs)
        watched = [d for d in self._monitor.devices if d.kind == "nvidia" or d.id in self._latest]
        drained = settings.listed(self._settings.drained)
        return Sight(
            {d.id: look(self._latest.get(d.id), running, ignored) for d in watched},
            frozenset(d.id for d in self._monitor.devices if d.mig or drained & {d.id, str(d.index)}),
            frozenset(() if self._landlord.device is None else (self._landlord.device,)),
        )

    def _job_ended(self, job: Job) -> None:
        self._callback.job_ended(job, self._settings.on_job_end)
        for waiter in self._waiters.pop(job.id, set()):
            if not waiter.done():
                waiter.set_result(None)

    def _watch(self, job: int, runner: int) -> None:
        """Be told when this runner ends, whether we started it or an earlier daemon did. Raises UserError where that is impossible."""
        try:
            fd = os.pidfd_open(runner)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(self.settle, job)
            return
        except OSError as e:
            raise UserError(f"no more processes can be watched: {e.strerror}. The daemon may need a higher limit of open files.") from e

        def ended() -> None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
            self.settle(job)

        asyncio.get_running_loop().add_reader(fd, ended)

    def settle(self, job: int) -> None:
        self._unsettled.add(job)
        with self._noticing("settle"):
            self._queue.runner_ended(job)
            self._unsettled.discard(job)
        self._step()

    def _notice(self, topic: str, words: str) -> None:
        """What everybody sees from now on; empty words: nothing."""
        self._notices.pop(topic, None)
        if words:
            self._notices[topic] = words
        self._dirty.set()

    # What the executors of clusters need: see `executors.cluster.Hub`

    def on(self, where: str) -> list[Job]:
        return self._queue.on(where)

    def env(self, job_id: int) -> dict[str, str]:
        return self._queue.env(job_id)

    def acknowledged(self, job_id: int) -> None:
        self._queue.acknowledged(job_id)
        self._dirty.set()

    def noted(self, job_id: int, note: str) -> None:
        self._queue.noted(job_id, note)
        self._dirty.set()

    def changed(self, where: str, trouble: str) -> None:
        self._notice(where, trouble)
        self._step()

    @contextmanager
    def _noticing(self, topic: str) -> Iterator[None]:
        """What the environment refuses becomes a notice that everybody sees, until it works again."""
        try:
            yield
        except UserError as e:
            self._notices[topic] = str(e)
            self._dirty.set()
        else:
            self._notices.pop(topic, None)

    # Snapshots

    def _take(self) -> Snapshot:
        self._seq += 1
        jobs = self._queue.jobs()
        return Snapshot(
            self._seq,
            time.time(),
            self._states(jobs),
            jobs,
            self._settings,
            self._source,
            tuple(filter(None, (*self._notices.values(), self._landlord.trouble))),
            self._queue.paused,
            self._alerting.active,
            self._queue.waiting,
        )

    def _states(self, jobs: Sequence[Job]) -> tuple[DeviceState, ...]:
        return self._monitor.states(jobs, self._settings, time.time(), self._landlord.device)

    async def _publish(self) -> None:
        """A new snapshot whenever something changed, where anybody listens; each gets the newest, however slowly it reads.

        And one a while after the last: by time alone an idle device becomes busy, when its readings fail to come.
        """
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._dirty.wait()
            except TimeoutError:
                pass
            self._dirty.clear()
            if self._subscribers:
                async with self._fresh:
                    self._snapshot = self._take()
                    self._encoded = _ENCODE(m.SnapshotReply(self._snapshot))
                    self._fresh.notify_all()
                await asyncio.sleep(PAUSE_S)

    async def _subscribe(self, peer: wire.Peer) -> None:
        seen = self._snapshot.seq
        self._subscribers += 1
        self._dirty.set()
        try:
            while True:
                async with self._fresh:
                    await self._fresh.wait_for(lambda: self._snapshot.seq > seen)  # noqa: B023
                    seen, encoded = self._snapshot.seq, self._encoded
                await peer.send(encoded)
        finally:
            self._subscribers -= 1

    # The door

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        try:
            request = _DECODE(line)
            if isinstance(request, m.Subscribe):
                with self._watching.looking(request.live):
                    await self._subscribe(peer)
            reply = self._lease(request.memory, peer) if isinstance(request, m.Lease) else await self._answer(request)
        except MALFORMED as e:
            reply = m.Error(f"that is no request this daemon knows: {e}. Client and daemon may differ in version; try: gpudeck daemon stop")
        except UserError as e:
            reply = m.Error(str(e), missing=isinstance(e, NotFound))
        await peer.send(_ENCODE(reply))

    def _lease(self, memory: int, peer: wire.Peer) -> m.Leased:
        states = self._states(self._queue.jobs())
        return m.Leased(self._landlord.lease(states, self._latest, memory, peer.pid, lambda why: peer.say(_ENCODE(m.Evicted(why)))))

    async def _answer(self, request: m.Request) -> m.Reply:
        self._watching.looked()
        if isinstance(request, m.Question):
            return self._tell(request)
        if isinstance(request, m.Past):
            return await self._remember(request)
        match request:
            case m.GetDetails():
                return m.DetailsReply(await self._watching.details())
            case m.KillProcess(pid, ticks):
                return await self._kill(pid, ticks)
            case m.Wait(job_id, seconds):
                return m.JobReply(await self._wait(job_id, seconds))
            case m.GetAlerts(limit):
                return m.AlertsReply(self._alerting.log(limit))
            case m.Acknowledge(alert):
                self._alerting.acknowledge(alert)
                self._dirty.set()
            case m.Configure(changes):
                await self._configure(changes)
            case m.Stop():
                asyncio.get_running_loop().call_soon(self._stop.set)
                return m.Ok()
            case m.GetSnapshot() | m.Subscribe() | m.Lease():
                pass
            case _:
                return self._order(request)
        return m.SnapshotReply(self._take())

    async def _kill(self, pid: int, ticks: int) -> m.Reply:
        """End a process that uses a GPU; one of a job of ours through the queue, so that it is known why it ended."""
        process = kill.find(await self._watching.details(), pid, ticks)
        if process.job in {job.id for job in self._queue.going}:
            assert process.job is not None
            self._order(m.Cancel(process.job))
        else:
            await kill.end(process)
        return m.Ok()

    async def _remember(self, request: m.Past) -> m.Reply:
        """What is asked about the past of the devices."""
        match request:
            case m.GetHistory(device, fields, since, until, points):
                return m.HistoryReply(await self._recorder.past(device, fields, since, until, points))
            case m.GetFields(device, since, until):
                return m.FieldsReply(tuple(await self._recorder.fields(device, since, until)))
            case m.GetAnnotations(since, until):
                jobs, _ = self._queue.find(Search(since=since, until=until), m.NEWEST, MOST_SPANS)
                found = spans(jobs, since, until) + await self._recorder.annotations(since, until)
                return m.AnnotationsReply(tuple(sorted(found, key=lambda a: a.time)))

    def _tell(self, request: m.Question) -> m.Reply:
        """What is known of the jobs."""
        match request:
            case m.GetJob(job_id):
                return m.JobReply(self._queue.get(job_id))
            case m.GetTimeline(job_id):
                return m.TimelineReply(self._queue.timeline(job_id))
            case m.ListJobs(limit, active):
                return m.JobsReply(self._queue.newest(limit, active))
            case m.FindJobs(search, before, limit):
                ids = [d.id for d in self._monitor.devices if search.device in (d.id, str(d.index))]
                found = msgspec.structs.replace(search, device=(ids or [search.device])[0])
                return m.FoundReply(*self._queue.find(found, before, limit))
            case m.GetGroups():
                return m.GroupsReply(tuple(self._queue.groups()))
            case m.Foresee(spec):
                return m.ForecastReply(self._queue.foresee(spec, self._monitor.devices, self._sight()))

    async def _wait(self, job_id: int, seconds: float) -> Job:
        if self._queue.get(job_id).active:
            ended = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(job_id, set()).add(ended)
            try:
                async with asyncio.timeout(max(0.0, min(seconds, m.WAIT_S))):
                    await ended
            except TimeoutError:
                pass
            finally:
                self._waiters.get(job_id, set()).discard(ended)
        return self._queue.get(job_id)

    def _order(self, request: m.Order) -> m.Reply:
        """A verb that changes the queue: carried out and answered; then what can start now is started."""
        match request:
            case m.Submit(spec):
                return m.JobReply(self._submit([spec])[0])
            case m.SubmitMany(specs, env):
                return m.JobsReply(tuple(self._submit([msgspec.structs.replace(s, env=s.env or env) for s in specs])))
            case m.Edit(job_id, changes):
                self._queue.edit(job_id, changes, self._monitor.devices, self._sight())
            case m.Move(job_id, beside, after):
                self._queue.move(job_id, beside, after)
            case m.Cancel(job_id):
                self._queue.cancel(job_id)
            case m.SetGroup(name, limit, paused):
                self._queue.set_group(name, limit, paused)
            case m.Pause(paused):
                self._queue.pause(paused)
        self._changed()
        if isinstance(request, m.Edit | m.Move | m.Cancel):
            return m.JobReply(self._queue.get(request.job))
        return m.GroupsReply(tuple(self._queue.groups())) if isinstance(request, m.SetGroup) else m.Ok()

    def _submit(self, specs: Sequence[Spec]) -> list[Job]:
        jobs = self._queue.submit(specs, self._monitor.devices, self._sight())
        self._changed()
        return [self._queue.get(job.id) for job in jobs]

    def _changed(self) -> None:
        self._queue.weigh(self._monitor.devices, self._sight())
        self._due.set()

    async def _configure(self, changes: Mapping[str, object]) -> None:
        new = settings.changed(self._settings, dict(changes))
        settings.save(new)
        old, self._settings = self._settings, new
        await self._watching.start(new)
        if old.clusters != new.clusters:
            await self._clusters.serve(new.clusters)
        self._step()


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        action()


async def _serve() -> None:
    store = Store(paths.store_file())
    await Daemon(store).run(wire.listen(door()))


if __name__ == "__main__":
    sys.exit(serve_alone(Identity("the daemon", paths.daemon_lock(), door(), paths.daemon_log()), _serve))
