"""What each request is answered with, and what it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from scheduler.protocol import messages as m
from scheduler.protocol.jobs import Job, Spec
from scheduler.protocol.search import Search
from scheduler.protocol.snapshot import Snapshot
from scheduler.queue.placement import Availability
from scheduler.queue.queue import Queue
from scheduler.queue.spans import spans
from scheduler.services import end_process as kill
from scheduler.services.alert_service import Alerting
from scheduler.services.job_ends import Ends
from scheduler.services.polling import Watching
from scheduler.store.recorder import Recorder
from scheduler.telemetry.monitor import Monitor

MOST_SPANS = 500
"""Jobs among the annotations of one answer."""


class Deck(Protocol):
    """What the verbs are carried out on (see `daemon.Daemon`)."""

    queue: Queue
    monitor: Monitor
    recorder: Recorder
    watching: Watching
    alerting: Alerting
    ends: Ends

    def availability(self) -> Availability: ...
    def take(self) -> Snapshot: ...
    def touch(self) -> None: ...
    def start_soon(self) -> None: ...
    def stop(self) -> None: ...
    async def configure(self, changes: Mapping[str, object]) -> None: ...


class Verbs:
    """Raises UserError where a request is refused, NotFound where what it names is not there."""

    def __init__(self, deck: Deck) -> None:
        self._deck = deck

    async def answer(self, request: m.Request) -> m.Reply:
        deck = self._deck
        deck.watching.looked(not isinstance(request, m.GetSnapshot) or request.live)
        if isinstance(request, m.Question):
            return self._tell(request)
        if isinstance(request, m.Past):
            return await self._remember(request)
        match request:
            case m.GetDetails():
                return m.DetailsReply(await deck.watching.details())
            case m.KillProcess(pid, ticks):
                return await self._kill(pid, ticks)
            case m.Wait(job_id, seconds):
                if deck.queue.get(job_id).active:
                    await deck.ends.wait(job_id, max(0.0, min(seconds, m.WAIT_S)))
                return m.JobReply(deck.queue.get(job_id))
            case m.GetAlerts(limit):
                return m.AlertsReply(deck.alerting.log(limit))
            case m.Acknowledge(alert):
                deck.alerting.acknowledge(alert)
                deck.touch()
            case m.Configure(changes):
                await deck.configure(changes)
            case m.Stop():
                asyncio.get_running_loop().call_soon(deck.stop)
                return m.Ok()
            case m.GetSnapshot() | m.Subscribe() | m.Lease():
                pass
            case _:
                return self._order(request)
        return m.SnapshotReply(deck.take())

    async def _kill(self, pid: int, ticks: int) -> m.Reply:
        """End a process that uses a GPU; one of a job of ours through the queue, so that it is known why it ended."""
        process = kill.find(await self._deck.watching.details(), pid, ticks)
        if process.job in {job.id for job in self._deck.queue.running}:
            assert process.job is not None
            self._order(m.Cancel(process.job))
        else:
            await kill.end(process)
        return m.Ok()

    async def _remember(self, request: m.Past) -> m.Reply:
        """What is asked about the past of the devices."""
        recorder = self._deck.recorder
        match request:
            case m.GetHistory(device, fields, since, until, points):
                return m.HistoryReply(await recorder.past(device, fields, since, until, points))
            case m.GetFields(device, since, until):
                return m.FieldsReply(tuple(await recorder.fields(device, since, until)))
            case m.GetAnnotations(since, until):
                jobs, _ = self._deck.queue.find(
                    Search(since=since, until=until), m.NEWEST, MOST_SPANS
                )
                found = spans(jobs, since, until) + await recorder.annotations(since, until)
                return m.AnnotationsReply(tuple(sorted(found, key=lambda a: a.time)))

    def _tell(self, request: m.Question) -> m.Reply:
        """What is known of the jobs."""
        queue, devices = self._deck.queue, self._deck.monitor.devices
        match request:
            case m.GetJob(job_id):
                return m.JobReply(queue.get(job_id))
            case m.GetTimeline(job_id):
                return m.TimelineReply(queue.timeline(job_id))
            case m.ListJobs(limit, active):
                return m.JobsReply(queue.newest(limit, active))
            case m.FindJobs(search, before, limit):
                ids = [d.id for d in devices if search.device in (d.id, str(d.index))]
                found = msgspec.structs.replace(search, device=(ids or [search.device])[0])
                return m.FoundReply(*queue.find(found, before, limit))
            case m.GetGroups():
                return m.GroupsReply(tuple(queue.groups()))
            case m.Foresee(spec):
                return m.ForecastReply(queue.forecast(spec, devices, self._deck.availability()))
            case m.ForeseeJob(job_id):
                return m.ForecastReply(
                    queue.forecast_job(job_id, devices, self._deck.availability())
                )

    def _order(self, request: m.Order) -> m.Reply:
        """A verb that changes the queue: carried out and answered; then what can start now is started."""
        queue = self._deck.queue
        match request:
            case m.Submit(spec):
                return m.JobReply(self._submit([spec])[0])
            case m.SubmitMany(specs, env):
                return m.JobsReply(
                    tuple(
                        self._submit([msgspec.structs.replace(s, env=s.env or env) for s in specs])
                    )
                )
            case m.Edit(job_id, changes):
                queue.edit(job_id, changes, self._deck.monitor.devices, self._deck.availability())
            case m.Move(job_id, beside, after):
                queue.move(job_id, beside, after)
            case m.Cancel(job_id):
                queue.cancel(job_id)
            case m.CancelMany(jobs, ranges, array, group):
                done = queue.cancel_many(jobs, ranges, array, group)
                self._weigh()
                return m.CancellingReply(done)
            case m.SetGroup(name, limit, paused):
                queue.set_group(name, limit, paused)
            case m.Pause(paused):
                queue.pause(paused)
        self._weigh()
        if isinstance(request, m.Edit | m.Move | m.Cancel):
            return m.JobReply(queue.get(request.job))
        return m.GroupsReply(tuple(queue.groups())) if isinstance(request, m.SetGroup) else m.Ok()

    def _submit(self, specs: Sequence[Spec]) -> list[Job]:
        queue = self._deck.queue
        jobs = queue.submit(specs, self._deck.monitor.devices, self._deck.availability())
        self._weigh()
        return [queue.get(job.id) for job in jobs]

    def _weigh(self) -> None:
        self._deck.queue.plan(self._deck.monitor.devices, self._deck.availability())
        self._deck.start_soon()
