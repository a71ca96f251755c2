"""The verbs: the one door through which windows, commands and programs reach the daemon.

    from scheduler.client import Client
    with Client() as deck:
        job = deck.submit(["python", "train.py"], gpus=1, memory="20GiB")
        print(job.wait().result)

Every call blocks until the daemon has answered; a verb that changes something is answered after its transaction is on disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import msgspec

from scheduler.handle import JobHandle
from scheduler.protocol import log_file as logfile
from scheduler.protocol import messages as m
from scheduler.protocol import paths
from scheduler.protocol.annotation import Annotation
from scheduler.protocol.devices import Detail, Process
from scheduler.protocol.errors import MALFORMED, DaemonGone, NotFound, UserError
from scheduler.protocol.jobs import Cancelling, Changes, Event, Forecast, Job, Spec
from scheduler.protocol.log_file import Output
from scheduler.protocol.search import Search
from scheduler.protocol.settings import ClusterSettings, Settings
from scheduler.protocol.snapshot import Alert, Columns, Snapshot
from scheduler.protocol.submission import Wishes, checked, wish
from scheduler.protocol.units import amount, parse_bytes, parse_seconds
from scheduler.protocol.wire import MAX_MESSAGE, Connection

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(m.Reply).decode

GONE_S = 30.0
"""Who waits for a job bears it for so long that no daemon answers; it is started again, where the client may."""
AGAIN_S = 0.5
"""Between two tries meanwhile."""

R = TypeVar(
    "R",
    m.Ok,
    m.JobReply,
    m.JobsReply,
    m.CancellingReply,
    m.FoundReply,
    m.TimelineReply,
    m.GroupsReply,
    m.ForecastReply,
    m.SnapshotReply,
    m.HistoryReply,
    m.DetailsReply,
    m.FieldsReply,
    m.AnnotationsReply,
    m.AlertsReply,
    m.Leased,
    m.Evicted,
)


def door() -> Path:
    """The daemon's socket."""
    return paths.runtime() / "daemon.sock"


class Client:
    """A connection to the daemon. Not for several threads at once: open one a thread."""

    def __init__(self, *, start: bool = True, timeout: float | None = 30.0) -> None:
        """Connect, starting the daemon where none runs and `start` is set.

        Raises DaemonGone where none runs and none may be started, UserError where it could not start.
        """
        self._start, self._timeout = start, timeout
        self._connection = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def submit(self, argv: Sequence[str], **wishes: Unpack[Wishes]) -> JobHandle:
        """Queue a command; `wishes`: see `scheduler.protocol.submission.Wishes`. Returns the job, already safe on disk.

        With `memory` (bytes, or "20GiB") it reserves so much on each of its GPUs (one, where `gpus` is not given) and shares them with
        other jobs that reserve; without, it has its GPUs for itself. Raises UserError where it can never run here.
        """
        return JobHandle(self, self._ask(m.Submit(wish(argv, wishes)), m.JobReply).job)

    def submit_array(
        self, argv: Sequence[str], indices: Iterable[int], **wishes: Unpack[Wishes]
    ) -> tuple[Job, ...]:
        """Queue the command once for each index, which it finds in GPUDECK_ARRAY_INDEX: all of these jobs, or none."""
        spec = wish(argv, wishes)
        named = [
            msgspec.structs.replace(spec, index=i, name=f"{spec.name}[{i}]")
            for i in checked(indices)
        ]
        return self.submit_many(named)

    def submit_many(self, specs: Sequence[Spec]) -> tuple[Job, ...]:
        """Queue several jobs (see `scheduler.protocol.submission.wish`) in one transaction: all of them, or none."""
        checked(range(len(specs)))
        env = specs[0].env
        return self._ask(
            m.SubmitMany(
                tuple(msgspec.structs.replace(s, env={}) if s.env == env else s for s in specs), env
            ),
            m.JobsReply,
        ).jobs

    def foresee(self, argv: Sequence[str], **wishes: Unpack[Wishes]) -> Forecast:
        """Where and when the job would start; nothing is submitted. Raises what `submit` raises."""
        return self.foresee_spec(wish(argv, wishes))

    def foresee_spec(self, spec: Spec) -> Forecast:
        """As `foresee`, of a job as `scheduler.protocol.submission.wish` makes it."""
        return self._ask(m.Foresee(spec), m.ForecastReply).forecast

    def foresee_job(self, job: int) -> Forecast:
        """Where and when a job that waits will start, as far as that is known now. Raises NotFound, UserError where it does not wait."""
        return self._ask(m.ForeseeJob(job), m.ForecastReply).forecast

    def edit(self, job: int, /, **changes: Any) -> Job:
        """Change what a job that waits needs (see `jobs.Changes`); its name, notes and tags at any time. Raises NotFound, UserError."""
        if unknown := set(changes) - set(Changes.__struct_fields__):
            raise UserError(
                f"a job has no {', '.join(sorted(unknown))} to change. There are: {', '.join(Changes.__struct_fields__)}"
            )
        if isinstance(changes.get("memory"), str):
            changes["memory"] = parse_bytes(changes["memory"])
        for name in ("timeout", "backoff"):
            if isinstance(changes.get(name), str):
                changes[name] = parse_seconds(changes[name])
        return self._ask(m.Edit(job, Changes(**changes)), m.JobReply).job

    def move(self, job: int, *, before: int | None = None, after: int | None = None) -> Job:
        """Let a job that waits stand right before or after another; it takes that one's priority. Raises NotFound, UserError."""
        if (before is None) == (after is None):
            raise UserError("a job is moved either before or after another")
        beside = before if before is not None else after
        assert beside is not None
        return self._ask(m.Move(job, beside, after is not None), m.JobReply).job

    def hold(self, job: int, held: bool = True) -> Job:
        """Keep a job that waits from being started, or let it go."""
        return self.edit(job, hold=held)

    def groups(self) -> tuple[m.GroupState, ...]:
        """The groups of jobs, by name."""
        return self._ask(m.GetGroups(), m.GroupsReply).groups

    def set_group(
        self, name: str, *, limit: int | None = None, paused: bool | None = None
    ) -> tuple[m.GroupState, ...]:
        """Limit how many jobs of a group run at once (0: no limit), pause it or let it go on."""
        return self._ask(m.SetGroup(name, limit, paused), m.GroupsReply).groups

    def cancel(self, job: int) -> Job:
        """Cancel a job that waits, or end one that runs (its whole process tree)."""
        return self._ask(m.Cancel(job), m.JobReply).job

    def cancel_many(
        self, jobs: Iterable[int | range] = (), *, array: int | None = None, group: str = ""
    ) -> Cancelling:
        """Cancel all of these that wait, in one transaction, and end those that run, in any case: by number, `range(9, 201)`, array (the
        number of any of its jobs), group. What has ended already, or is not there, is told. Raises NotFound where the array is not there.
        """
        named = list(jobs)
        if any(one.step != 1 for one in named if isinstance(one, range)):
            raise UserError("a range of jobs has steps of 1")
        alone = [one for one in named if not isinstance(one, range)]
        ranges = [(one.start, one.stop - 1) for one in named if isinstance(one, range) and one]
        return self._ask(
            m.CancelMany(tuple(alone), tuple(ranges), array, group), m.CancellingReply
        ).cancelling

    def job(self, job: int) -> Job:
        """Raises NotFound."""
        return self._ask(m.GetJob(job), m.JobReply).job

    def timeline(self, job: int) -> tuple[Event, ...]:
        """What the job went through, oldest first. Raises NotFound."""
        return self._ask(m.GetTimeline(job), m.TimelineReply).events

    def jobs(self, limit: int = 100, active: bool = False) -> tuple[Job, ...]:
        """The newest jobs first."""
        return self._ask(m.ListJobs(limit, active), m.JobsReply).jobs

    def page(
        self, search: Search, before: int = m.NEWEST, limit: int = 100
    ) -> tuple[tuple[Job, ...], int | None]:
        """The newest jobs with numbers below `before` that are looked for, and where the next page begins; None: there are no more.

        The daemon searches for some milliseconds only: a page may be short, or empty, though there are more.
        """
        reply = self._ask(m.FindJobs(search, before, min(limit, m.MAX_LISTED)), m.FoundReply)
        return reply.jobs, reply.before

    def find(
        self, search: Search, limit: int = 100, before: int = m.NEWEST
    ) -> tuple[tuple[Job, ...], int | None]:
        """As `page`, but short only where there are no more: the daemon is asked as often as it takes."""
        found: list[Job] = []
        on: int | None = before
        while len(found) < limit and on is not None:
            jobs, on = self.page(search, on, limit - len(found))
            found += jobs
        return tuple(found), on

    def snapshot(self, live: bool = True) -> Snapshot:
        """How all stands now. `live`: somebody looks, as of `subscribe`, for a while."""
        return self._ask(m.GetSnapshot(live), m.SnapshotReply).snapshot

    def history(
        self,
        device: str,
        fields: Sequence[str],
        since: float,
        until: float = 1e18,
        points: int | None = None,
    ) -> Columns:
        """What was read of `device` between two times (seconds since the epoch).

        In at most `points` buckets of one width: the lowest, the mean and the highest of each; without, every row as it was kept: all
        readings of the last hour, steps of 10 s for a day, of a minute for seven, of ten minutes for thirty. Where nothing was read for
        longer than a bucket there is one row without values. Raises UserError where it is too much for one answer.
        """
        return self._ask(
            m.GetHistory(device, tuple(fields), since, until, points), m.HistoryReply
        ).history

    def fields(self, device: str, since: float, until: float = 1e18) -> tuple[str, ...]:
        """The names of all that was read of `device` in that time."""
        return self._ask(m.GetFields(device, since, until), m.FieldsReply).fields

    def annotations(self, since: float, until: float = 1e18) -> tuple[Annotation, ...]:
        """What happened in that time, oldest first: jobs, throttling, alerts, Xid events; the newest of too many."""
        return self._ask(m.GetAnnotations(since, until), m.AnnotationsReply).annotations

    def alerts(self, limit: int = 100) -> tuple[Alert, ...]:
        """The log of alerts, the newest first; those that are raised now are in every snapshot."""
        return self._ask(m.GetAlerts(limit), m.AlertsReply).alerts

    def acknowledge(self, alert: int) -> None:
        """Say that somebody has seen an alert that is raised now. Raises NotFound."""
        self._ask(m.Acknowledge(alert), m.SnapshotReply)

    def configure(self, /, **changes: str | float | bool | dict[str, ClusterSettings]) -> Settings:
        """Change settings; they are validated, stored and in force when this returns. Raises UserError."""
        for name, value in changes.items():
            if isinstance(value, float) and not math.isfinite(value):  # JSON has no such number
                raise UserError(f"{name} must be a number, not {value}")
        return self._ask(m.Configure(changes), m.SnapshotReply).snapshot.settings

    def pause(self, paused: bool = True) -> None:
        """Start nothing new (or go on). Running jobs are not touched."""
        self._ask(m.Pause(paused), m.Ok)

    def stop_daemon(self) -> None:
        """End the daemon; returns when it is gone. Running jobs run on."""
        self._ask(m.Stop(), m.Ok)
        try:
            self._connection.receive()  # the daemon closes the door as the last thing it does
        except DaemonGone:
            pass

    def details(self) -> tuple[Detail, ...]:
        """All about the links, parts and processes of every device, read now. Raises UserError where the devices do not answer."""
        return self._ask(m.GetDetails(), m.DetailsReply).details

    def kill(self, process: Process) -> None:
        """End a process that `details` told of: SIGTERM, then SIGKILL; one of a job of ours by cancelling the job. Returns once it is gone.

        Raises NotFound where it no longer uses a GPU, UserError where it is not ours to end or does not end.
        """
        self._ask(m.KillProcess(process.pid, process.ticks), m.Ok)

    def subscribe(self, live: bool = True) -> Iterator[Snapshot]:
        """Snapshots as they come. The connection serves nothing else from then on. Raises DaemonGone at its end.

        `live`: somebody looks; the devices are read fast meanwhile, and woken where they sleep.
        """
        self._connection.send(_ENCODE(m.Subscribe(live)))
        while True:
            reply = decode(self._connection.receive())
            if isinstance(reply, m.SnapshotReply):
                yield reply.snapshot

    def lease(self, memory: int = 0) -> str:
        """Ask for a GPU that is idle and has so many bytes free, for this process; returns its UUID. Raises UserError saying why not.

        What asks is to run with ASSISTANT_MARK in its environment, to keep this connection, and to hear `evicted` in a thread.
        """
        return self._ask(m.Lease(memory), m.Leased).device

    def evicted(self) -> str:
        """Wait until somebody else needs the GPU that was leased; returns why. The process must end then: it is killed after 0.1 s.

        The connection is to be one without a timeout. Raises DaemonGone where the daemon ends: then, too.
        """
        reply = decode(self._connection.receive())
        assert isinstance(reply, m.Evicted), reply
        return reply.why

    def wait(self, job: int, timeout: float | None = None) -> Job:
        """The job once it has ended, over restarts of the daemon.

        Raises NotFound, TimeoutError where it did not end in `timeout` seconds, DaemonGone where nobody answered for GONE_S.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        patience = m.WAIT_S if self._timeout is None else min(m.WAIT_S, self._timeout / 2)
        status, heard = "waited for", time.monotonic()
        while True:
            try:
                found = self._ask(
                    m.Wait(job, min(patience, max(end - time.monotonic(), 0.0))), m.JobReply
                ).job
            except DaemonGone:
                if self._connection.closed or time.monotonic() > heard + GONE_S:
                    raise
                time.sleep(AGAIN_S)
            else:
                status, heard = found.status, time.monotonic()
                if not found.active:
                    return found
            if time.monotonic() >= end:
                raise TimeoutError(f"job {job} is still {status} after {timeout:.0f} s")

    def log(self, job: int, offset: int = 0, limit: int = 2**20) -> bytes:
        """Up to `limit` bytes of the job's output from `offset` on (negative: from the end), and a line where some of it was dropped.

        Read from the file, not through the daemon. Whoever follows a log reads by `log_part`.
        """
        return self.log_part(job, offset, limit).data

    def log_part(self, job: int, offset: int = 0, limit: int = 2**20) -> Output:
        """As `log`, with where the part begins in all output, and where to read on."""
        self.job(job)
        try:
            with paths.open_plain(paths.job_folder(job) / "log") as f:
                return logfile.read(f, offset, limit)
        except FileNotFoundError:
            return Output(max(offset, 0), b"", max(offset, 0))
        except OSError as e:
            raise UserError(f"the log of job {job} cannot be read: {e.strerror}") from e

    def artefacts(self, job: int) -> list[Path]:
        """The files that the job left in the folder GPUDECK_ARTEFACTS named to it. Raises NotFound."""
        self.job(job)
        folder = paths.job_folder(job) / "artefacts"
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def _connect(self) -> Connection:
        try:
            return Connection(door(), self._timeout)
        except DaemonGone as e:
            if not self._start:
                raise DaemonGone(
                    "the daemon does not run (start it with: gpudeck daemon start)"
                ) from e
        from scheduler.background.launch import (
            start_daemon,  # seldom needed: who starts fast does without
        )

        start_daemon()
        return Connection(door(), self._timeout)

    def request(self, request: m.Request) -> m.Reply:
        """Send a request as it is and return its reply. Raises UserError."""
        if self._connection.lost:  # since the last answer, so that nothing is asked twice
            old, self._connection = self._connection, self._connect()
            old.close()
        self._connection.send(encode(request))
        return decode(self._connection.receive())

    def _ask(self, request: m.Request, kind: type[R]) -> R:
        reply = self.request(request)
        if not isinstance(reply, kind):
            raise RuntimeError(
                f"the daemon answered {type(request).__name__} with {type(reply).__name__}"
            )
        return reply


def encode(request: m.Request) -> bytes:
    """As it goes over the wire, without the end of its line. Raises UserError."""
    try:
        line = _ENCODE(request)
    except UnicodeEncodeError as e:
        raise UserError(
            f"only UTF-8 can be sent to the daemon, and this is none: {e.object!a}"
        ) from e
    if len(line) >= MAX_MESSAGE:
        raise UserError(
            f"that is {amount(len(line))} in one request; the daemon takes {amount(MAX_MESSAGE)}. Submit fewer jobs at once."
        )
    return line


def decode(line: bytes) -> m.Reply:
    """What the daemon answered. Raises what it refused with: UserError, NotFound."""
    try:
        reply: m.Reply = _DECODE(line)
    except MALFORMED as e:
        raise UserError(
            "the daemon answers in the words of another version of GPU Deck. Restart it with: gpudeck daemon stop"
        ) from e
    if isinstance(reply, m.Error):
        raise NotFound(reply.message) if reply.missing else UserError(reply.message)
    return reply
