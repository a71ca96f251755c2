"""The client: the one way in which windows, commands and programs reach the daemon.

    from gpudeck.scheduler.client import Client
    with Client() as deck:
        job = deck.submit(["python", "train.py"], gpus=1, memory="20GiB")
        print(job.wait().result)

Every call blocks until the daemon has replied; a change is on disk by then. `AsyncVerbs` has the
same methods as coroutines: whoever adds a method adds it to both classes here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background.version import is_older
from gpudeck.scheduler.handle import JobHandle
from gpudeck.scheduler.protocol import log_file as logfile
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.destinations import Destination, DestinationState
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import (
    NOT_RUNNING,
    DaemonGone,
    OutcomeUnknown,
    Unsettled,
    UserError,
)
from gpudeck.scheduler.protocol.job_options import (
    JobOptions,
    Words,
    environment_of,
    make_spec,
    moment_of,
)
from gpudeck.scheduler.protocol.jobs import (
    Cancelling,
    Changes,
    Event,
    Forecast,
    GroupState,
    Job,
    Spec,
    earlier_attempt,
    repeated,
)
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.past_processes import PastProcess
from gpudeck.scheduler.protocol.place import Place
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.protocol.search import MAX_LISTED, NEWEST, Search
from gpudeck.scheduler.protocol.settings import ClusterSettings, HostSettings, Settings
from gpudeck.scheduler.protocol.snapshot import Alert, Columns, Snapshot
from gpudeck.scheduler.protocol.submissions import new_token
from gpudeck.scheduler.protocol.suspended import SuspendedProgram
from gpudeck.scheduler.protocol.units import parse_seconds, parse_size
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.protocol.wire import Connection
from gpudeck.scheduler.verbs.alerts import Acknowledge, GetAlerts
from gpudeck.scheduler.verbs.apply import ApplySettings
from gpudeck.scheduler.verbs.bookings import Booked, CancelBooking, Reserve
from gpudeck.scheduler.verbs.change import (
    Cancel,
    CancelMany,
    Edit,
    GetSchedule,
    Move,
    Restore,
)
from gpudeck.scheduler.verbs.control import Configure, GetSnapshot, Lease, Stop, Subscribe
from gpudeck.scheduler.verbs.devices import (
    GetAnnotations,
    GetDetails,
    GetFields,
    GetHistory,
    GetProcesses,
    KillProcess,
)
from gpudeck.scheduler.verbs.groups import GetGroups, Pause, SetGroup
from gpudeck.scheduler.verbs.hosts import SetHost
from gpudeck.scheduler.verbs.jobs import WAIT_S, FindJobs, GetJob, GetTimeline, ListJobs, Wait
from gpudeck.scheduler.verbs.limits import SetLimits
from gpudeck.scheduler.verbs.logs import MAX_LOG_PART, ReadLog
from gpudeck.scheduler.verbs.note import AddNote
from gpudeck.scheduler.verbs.notify import (
    GetDestinations,
    SetDestination,
    TryDestination,
)
from gpudeck.scheduler.verbs.orders import RecordOrder
from gpudeck.scheduler.verbs.request import Request, decode_reply, encode_request
from gpudeck.scheduler.verbs.submit import Foresee, ForeseeJob, GetSubmission, Submit, SubmitMany
from gpudeck.scheduler.verbs.suspension import (
    GetSuspended,
    ResumeJob,
    ResumeProcess,
    SuspendJob,
    SuspendProcess,
)

GONE_S = 30.0
"""A call that waits for a job fails after the daemon has not answered for this long."""
RECONNECT_S = 0.5
"""The pause between two attempts to reach the daemon meanwhile."""

AGAIN_S, ANSWER_S = 10.0, 5.0
"""A submission without an answer is sent again for this long, and each time waited for so long."""

P = ParamSpec("P")
R = TypeVar("R")


class Client:
    """A connection to the daemon, for one thread at a time: open one in each thread."""

    default_place: ClassVar[Place | None] = None
    """The machine whose daemon new clients of this process talk to; None for this machine's."""

    def __init__(
        self,
        *,
        start: bool = True,
        timeout: float | None = 30.0,
        place: Place | None = None,
    ) -> None:
        """Connect, and start the daemon where none runs and `start` is set.

        With a `place` (see `gpudeck.scheduler.hosts.tunnel`), connect to the daemon of another
        machine, which is not started.

        Raises DaemonGone where none runs and `start` is not set, UserError where it cannot start.
        """
        self.place = place or self.default_place
        self._shared = self.place is None and paths.uses_shared()
        self._start, self._timeout = start and not (self.place or self._shared), timeout
        self._connection = self._connect(timeout)

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
        """Close the connection. Another thread may do so to end a blocked call."""
        self._connection.close()

    def send(self, request: Request[R]) -> R:
        """Send one of the requests in `gpudeck.scheduler.verbs`; return its reply, or raise its
        error.

        Raises:
            DaemonGone: The daemon did not answer.
            OutcomeUnknown: It did not answer a submission, not even when it was asked again.
        """
        if self.place is None:  # it checks folders of this machine
            request.check()
        line = encode_request(request)
        if self._connection.lost:  # found before anything is sent: no request is sent twice
            old, self._connection = self._connection, self._connect(self._timeout)
            old.close()
        try:
            return _exchange(self._connection, request, line)
        except (DaemonGone, Unsettled) as e:
            token = request.token if isinstance(request, Submit | SubmitMany) else None
            if token is None:
                raise
            self._connection.hang_up()  # the daemon drops what it has not read yet
            return self._send_again(request, line, token, e)

    def _send_again(self, request: Request[R], line: bytes, token: str, why: UserError) -> R:
        """Send a submission again, whose token has the daemon queue it at most once."""
        end = time.monotonic() + AGAIN_S
        while not self._connection.closed and time.monotonic() < end:
            try:
                connection = self._connect(min(self._timeout or ANSWER_S, ANSWER_S))
            except UserError as e:  # a daemon that cannot start refuses no job
                why = DaemonGone(e.message)
                time.sleep(RECONNECT_S)
                continue
            try:
                return _exchange(connection, request, line)
            except DaemonGone:
                pass  # why the first answer is missing says more
            except Unsettled as e:
                why = e
                time.sleep(RECONNECT_S)
            finally:
                connection.close()
        raise OutcomeUnknown(why.message, token) from why

    def submit(
        self, argv: Words, *, token: str | None = None, **options: Unpack[JobOptions]
    ) -> JobHandle:
        """Queue a command. Returns the job, which is on disk by then.

        With `memory` (bytes, or "20GiB") the job reserves that much on each of its GPUs (one,
        where `gpus` is not given) and shares them with other jobs that reserve; without, it has
        its GPUs to itself.

        Args:
            argv: The command and its arguments; no shell is involved.
            token: A name of this submission. Whoever submits with it again gets the same job.
            **options: See `gpudeck.scheduler.protocol.job_options.JobOptions`.

        Raises:
            UserError: The job can never run here, or the token belongs to another submission.
            OutcomeUnknown: The daemon does not answer, and may have queued the job.
        """
        return JobHandle(self, self.send(Submit(self.spec(argv, options), token or new_token())))

    def retry(
        self,
        job: int,
        *,
        artefacts: bool = False,
        changes: Mapping[str, object] = MappingProxyType({}),
    ) -> Job:
        """Queue a job that has ended once more, as a new job with this process's environment.

        Args:
            job: The number of the job.
            artefacts: The new job works in the artefacts of the old one, as with a checkpoint.
            changes: The fields of its Spec that are to differ, such as the bytes of its `memory`.

        Raises:
            NotFound: There is no such job.
            UserError: It has not ended, or its artefacts cannot be used.
        """
        old = self.job(job)
        if old.active:
            raise UserError(phrase("job {job} has not ended yet", job=job))
        env = {} if old.spec.where else environment_of(self.place)
        return self.send(Submit(repeated(old, env, artefacts, changes), new_token()))

    def spec(self, argv: Words, options: JobOptions) -> Spec:
        """Return the Spec of a command as this client submits it. Raises UserError."""
        return make_spec(argv, options, self.place)

    def submit_array(
        self,
        argv: Words,
        indices: Iterable[int],
        *,
        token: str | None = None,
        **options: Unpack[JobOptions],
    ) -> tuple[Job, ...]:
        """Queue the command once for each index: all of these jobs, or none.

        A job finds its index in the environment variable GPUDECK_ARRAY_INDEX. For `token` see
        `submit`.
        """
        return self.send(SubmitMany.array(self.spec(argv, options), indices, token))

    def submit_many(self, specs: Sequence[Spec], *, token: str | None = None) -> tuple[Job, ...]:
        """Queue several jobs, all or none (see `gpudeck.scheduler.protocol.job_options.make_spec`).

        For `token` see `submit`.
        """
        return self.send(SubmitMany.of(specs, token))

    def submission(self, token: str) -> tuple[Job, ...]:
        """Return the jobs that were submitted with a token, oldest first.

        Raises NotFound where nothing was queued with it.
        """
        return self.send(GetSubmission(token))

    def foresee(self, argv: Words, **options: Unpack[JobOptions]) -> Forecast:
        """Forecast where and when a job would start. Raises what `submit` raises."""
        return self.foresee_spec(self.spec(argv, options))

    def foresee_spec(self, spec: Spec, count: int = 1) -> Forecast:
        """Forecast as `foresee` does, for a Spec, and for the last of `count` jobs like it."""
        return self.send(Foresee(spec, count))

    def foresee_job(self, job: int) -> Forecast:
        """Forecast where and when a waiting job will start.

        Raises NotFound, or UserError where the job does not wait.
        """
        return self.send(ForeseeJob(job))

    def edit(self, job: int, /, **changes: Any) -> Job:
        """Change the options of a waiting job (see `jobs.Changes`), or name, notes and tags of any.

        Raises NotFound, UserError.
        """
        if unknown := set(changes) - set(Changes.__struct_fields__):
            raise UserError(
                phrase(
                    "a job has no {unknown} that can be changed. These can be: {known}",
                    unknown=", ".join(sorted(unknown)),
                    known=", ".join(Changes.__struct_fields__),
                )
            )
        if isinstance(changes.get("memory"), str):
            changes["memory"] = parse_size(changes["memory"])
        for name in ("timeout", "backoff"):
            if isinstance(changes.get(name), str):
                changes[name] = parse_seconds(changes[name])
        if isinstance(changes.get("begin"), str):
            changes["begin"] = moment_of(changes["begin"])
        return self.send(Edit(job, Changes(**changes)))

    def move(self, job: int, *, before: int | None = None, after: int | None = None) -> Job:
        """Place a waiting job right before or after another, at that job's priority.

        Raises NotFound, UserError.
        """
        if (before is None) == (after is None):
            raise UserError(phrase("name the job to move before, or the job to move after"))
        beside = before if before is not None else after
        assert beside is not None
        return self.send(Move(job, beside, after is not None))

    def schedule(self, move: Moved | None = None) -> tuple[Landing, ...]:
        """Return where and when jobs are expected to start that wait, or would after a move.

        Raises NotFound, UserError where the move is not possible.
        """
        return self.send(GetSchedule(move))

    def hold(self, job: int, held: bool = True) -> Job:
        """Keep a waiting job from starting, or release it."""
        return self.edit(job, hold=held)

    def groups(self) -> tuple[GroupState, ...]:
        """Return the groups of jobs, by name."""
        return self.send(GetGroups())

    def set_group(
        self, name: str, *, limit: int | None = None, paused: bool | None = None
    ) -> tuple[GroupState, ...]:
        """Limit how many jobs of a group run at once (0: no limit), pause it or resume it."""
        return self.send(SetGroup(name, limit, paused))

    def reserve(self, booking: Booking) -> Booked:
        """Keep GPUs for a user or a group for a time. Raises UserError."""
        return self.send(Reserve(booking))

    def free(self, gpus: Iterable[str], until: float) -> Booked:
        """Suspend the jobs on GPUs, and keep these free of all jobs for a time.

        The jobs come back by themselves afterwards, or when the booking is cancelled. As with
        `suspend_job`, a client with a short timeout may give up before the daemon has finished.

        Args:
            gpus: The ids of the GPUs.
            until: In seconds since the epoch.

        Raises:
            UserError: One of the GPUs is reserved already, or the time is over.
        """
        return self.reserve(Booking(tuple(gpus), time.time(), until, frees=True))

    def cancel_booking(self, number: int) -> None:
        """Cancel a booking of GPUs, or end it now. Raises NotFound."""
        self.send(CancelBooking(number))

    def cancel(self, job: int) -> Job:
        """Cancel a waiting job, or end all processes of a running one."""
        return self.send(Cancel(job))

    def cancel_many(
        self, jobs: Iterable[int | range] = (), *, array: int | None = None, group: str = ""
    ) -> Cancelling:
        """Cancel the named jobs that wait, in one transaction, and end those that run.

        The reply lists what had ended already, or does not exist.

        Args:
            jobs: Numbers, and ranges such as `range(9, 201)`.
            array: The number of any job of an array.
            group: The name of a group.

        Raises:
            NotFound: There is no such array.
        """
        named = list(jobs)
        if any(one.step != 1 for one in named if isinstance(one, range)):
            raise UserError(phrase("a range of jobs has steps of 1"))
        numbers = tuple(one for one in named if not isinstance(one, range))
        ranges = tuple((one.start, one.stop - 1) for one in named if isinstance(one, range) and one)
        return self.send(CancelMany(numbers, ranges, array, group))

    def restore(self, jobs: Iterable[int]) -> tuple[Job, ...]:
        """Undo the cancellation of jobs that waited: they go back to their places in the queue.

        Returns them, and the jobs that were cancelled because of them.

        Raises:
            UserError: More than `jobs.UNDO_S` have passed for one of them, or it was running.
        """
        return self.send(Restore(tuple(jobs)))

    def note(self, job: int, text: str) -> Job:
        """Add a note to the timeline of a job in any state. Raises NotFound, UserError."""
        return self.send(AddNote(job, text))

    def record_order(self, jobs: Iterable[int], verb: str, program: str, token: str = "") -> None:
        """Add to the timelines of jobs which program changes them.

        Args:
            jobs: Their numbers.
            verb: What is done.
            program: The name that the program gives itself.
            token: The name of the access token that allows it; empty: a person approved it.

        Raises:
            NotFound: One of them does not exist.
        """
        self.send(RecordOrder(tuple(jobs), verb, program, token))

    def job(self, job: int) -> Job:
        """Return a job. Raises NotFound."""
        return self.send(GetJob(job))

    def timeline(self, job: int) -> tuple[Event, ...]:
        """Return the events of a job, oldest first. Raises NotFound."""
        return self.send(GetTimeline(job))

    def jobs(self, limit: int = 100, active: bool = False) -> tuple[Job, ...]:
        """Return the newest jobs first."""
        return self.send(ListJobs(limit, active))

    def page(
        self, search: Search, before: int = NEWEST, limit: int = 100
    ) -> tuple[tuple[Job, ...], int | None]:
        """Return the newest jobs with numbers below `before` that match, and the next `before`.

        The second value is None where there are no more. The daemon searches for a few
        milliseconds only: a page may be short, or empty, although there are more.
        """
        page = self.send(FindJobs(search, before, min(limit, MAX_LISTED)))
        return page.jobs, page.before

    def find(
        self, search: Search, limit: int = 100, before: int = NEWEST
    ) -> tuple[tuple[Job, ...], int | None]:
        """Return a page as `page` does, short only where there are no more jobs."""
        found: list[Job] = []
        on: int | None = before
        while len(found) < limit and on is not None:
            jobs, on = self.page(search, on, limit - len(found))
            found += jobs
        return tuple(found), on

    def snapshot(self, live: bool = True) -> Snapshot:
        """Return the present state of everything. For `live` see `subscribe`."""
        return self.send(GetSnapshot(live))

    def history(
        self,
        device: str,
        fields: Sequence[str],
        since: float,
        until: float = 1e18,
        points: int | None = None,
    ) -> Columns:
        """Return what was read of a device between two times.

        A gap longer than a bucket is one row without values.

        Args:
            device: The device's id.
            fields: Names from `gpudeck.scheduler.protocol.fields`.
            since: Seconds since the epoch.
            until: Seconds since the epoch.
            points: The number of buckets of equal width, each with the lowest, mean and highest
                value. None returns every stored row: all readings of the last hour, steps of 10 s
                for a day, of a minute for seven days, of ten minutes for thirty.

        Raises:
            UserError: The range is too much for one reply.
        """
        return self.send(GetHistory(device, tuple(fields), since, until, points))

    def fields(self, device: str, since: float, until: float = 1e18) -> tuple[str, ...]:
        """Return the names of all fields that were read of a device between two times."""
        return self.send(GetFields(device, since, until))

    def processes(self, since: float, until: float = 1e18) -> tuple[PastProcess, ...]:
        """Return the processes that used a device between two times, the newest first.

        `history` takes `use.key` of each as a device, with the fields of
        `gpudeck.scheduler.protocol.past_processes`.
        """
        return self.send(GetProcesses(since, until))

    def annotations(self, since: float, until: float = 1e18) -> tuple[Annotation, ...]:
        """Return jobs, throttling, alerts and Xid events between two times, oldest first.

        Where there are too many, the oldest are left out.
        """
        return self.send(GetAnnotations(since, until))

    def alerts(self, limit: int = 100) -> tuple[Alert, ...]:
        """Return the log of alerts, newest first; every snapshot holds the active ones."""
        return self.send(GetAlerts(limit))

    def acknowledge(self, alert: int) -> None:
        """Record that a person has seen an active alert. Raises NotFound."""
        self.send(Acknowledge(alert))

    def configure(self, /, **changes: str | float | bool | dict[str, ClusterSettings]) -> Settings:
        """Check settings, store them and put them in force. Raises UserError."""
        return self.send(Configure(changes))

    def apply_settings(self, settings: Settings, names: Sequence[str]) -> Settings:
        """Set the named settings to the values in `settings`, all of them or none.

        Raises UserError where one of them is refused.
        """
        return self.send(ApplySettings(settings, tuple(names)))

    def set_host(self, name: str, host: HostSettings | None) -> Settings:
        """Add a machine that is read over ssh, or remove it (None). Raises NotFound, UserError."""
        return self.send(SetHost(name, host))

    def set_limits(self, user: str, limits: UserLimits | None) -> Settings:
        """Limit what a user of a shared daemon may use, or remove the limits (None).

        Raises NotFound, UserError.
        """
        return self.send(SetLimits(user, limits))

    def pause(self, paused: bool = True) -> None:
        """Start no more jobs, or resume. Running jobs continue."""
        self.send(Pause(paused))

    def stop_daemon(self) -> None:
        """End the daemon, and return once it is gone. Running jobs continue."""
        self.send(Stop())
        _await_end(self._connection)

    def details(self) -> tuple[Detail, ...]:
        """Read the links, parts and processes of every device now.

        Raises UserError where the devices do not respond.
        """
        return self.send(GetDetails())

    def kill(self, process: Process) -> None:
        """End a process that `details` listed, and return once it is gone.

        It gets SIGTERM, then SIGKILL. A process of a job is ended by cancelling the job.

        Raises:
            NotFound: It no longer uses a GPU.
            UserError: It belongs to another user, or does not end.
        """
        self.send(KillProcess(process.pid, process.ticks))

    def suspend_job(self, job: int, resume_at: float | None = None) -> Job:
        """Take a running job off its GPUs; return it once they are free for others.

        Its GPU memory moves to the host, and its processes are stopped until `resume_job`. That
        takes about a second for every 2 GiB: a client with a short timeout may give up before the
        daemon has finished.

        Args:
            job: The number of the job.
            resume_at: When it comes back by itself, in seconds since the epoch.

        Raises:
            NotFound: There is no such job.
            UserError: It cannot be suspended. It runs on.
        """
        return self.send(SuspendJob(job, resume_at))

    def resume_job(self, job: int) -> Job:
        """Have a suspended job come back to its GPUs, as soon as they have room for it.

        Raises NotFound, UserError where it is not suspended.
        """
        return self.send(ResumeJob(job))

    def suspend(self, process: Process) -> SuspendedProgram:
        """Take a program that uses a GPU off it; return once its GPU memory is free.

        The program is a process that `details` listed, with its descendants. Its memory moves to
        the host, and its processes are stopped until `resume_process`. That takes about a second
        for every 2 GiB: a client with a short timeout may give up before the daemon has finished.

        Raises:
            NotFound: It does not use a GPU any more.
            UserError: It cannot be suspended. It runs on.
        """
        return self.send(SuspendProcess(process.pid, process.ticks))

    def resume_process(self, pid: int) -> SuspendedProgram:
        """Bring a suspended program back to the GPU; return once it runs.

        Raises:
            NotFound: No suspended program has this process.
            UserError: Its memory is not free on the GPU now. It stays suspended.
        """
        return self.send(ResumeProcess(pid))

    def destinations(self) -> tuple[DestinationState, ...]:
        """Return where the user is told about jobs, alerts and bookings, without the addresses."""
        return self.send(GetDestinations())

    def set_destination(self, name: str, destination: Destination | None) -> None:
        """Add or replace a destination, or remove it (None). Raises NotFound, UserError."""
        self.send(SetDestination(name, destination))

    def try_destination(self, name: str) -> None:
        """Send a test message to a destination. Raises NotFound, UserError if that fails."""
        self.send(TryDestination(name))

    def suspended(self) -> tuple[SuspendedProgram, ...]:
        """Return the programs that were taken off the GPU, or are on their way."""
        return self.send(GetSuspended())

    def subscribe(self, live: bool = True) -> Iterator[Snapshot]:
        """Yield snapshots as they come. The connection serves nothing else from then on.

        Args:
            live: A person watches: devices are read at the full rate, and sleeping ones are woken.

        Raises:
            DaemonGone: The daemon ended.
        """
        request = Subscribe(live)
        self._connection.send(encode_request(request))
        while True:
            yield decode_reply(self._connection.receive(), request)

    @overload
    def run_when_idle(
        self,
        work: Callable[[], R],
        *,
        memory: int | str = ...,
        again: bool = ...,
        on_wait: Callable[[Message], None] = ...,
    ) -> R: ...
    @overload
    def run_when_idle(
        self,
        work: Sequence[str],
        *,
        memory: int | str = ...,
        again: bool = ...,
        on_wait: Callable[[Message], None] = ...,
    ) -> int: ...
    def run_when_idle(
        self,
        work: Callable[[], Any] | Sequence[str],
        *,
        memory: int | str = "0",
        again: bool = True,
        on_wait: Callable[[Message], None] = lambda reason: None,
    ) -> Any:
        """Run work on an idle GPU, and return what the function returns or the command's exit
        status. It runs beside this process, not in the queue: for that, see `submit` (`when_idle`).

        The GPU is the only one that the work sees (CUDA_VISIBLE_DEVICES). When anybody else needs
        it, the work is ended at once, and begins anew with the next idle GPU.

        Args:
            work: A function without arguments that can be pickled, or the words of a command.
            memory: What must be free on the GPU, such as 8GiB.
            again: Begin anew after the GPU was needed; otherwise `Interrupted` is raised.
            on_wait: Called with what is waited for, whenever that changes.

        Raises:
            DaemonGone: The daemon ended.
            Interrupted: The GPU was needed, and `again` is False.
            UserError: No NVIDIA GPU is watched here, or the work's process was killed.
            Exception: What the function raised.
        """
        from gpudeck.scheduler import when_idle

        def snapshots() -> Iterator[Snapshot]:
            with Client(timeout=None) as daemon:
                yield from daemon.subscribe(live=False)

        return when_idle.run_when_idle(work, snapshots, memory, again, on_wait)

    def lease(self, memory: int = 0) -> str:
        """Lease an idle GPU with `memory` free bytes to this process. Returns its UUID.

        The caller has ASSISTANT_MARK in its environment, keeps this connection open, and calls
        `evicted` in a thread. Raises UserError with the reason where there is no such GPU.
        """
        return str(self.send(Lease(memory)))

    def evicted(self) -> Message:
        """Block until another user needs the leased GPU. Returns the reason.

        The process must end at once: it is killed after 0.1 s. The connection must have no
        timeout. Raises DaemonGone where the daemon ends; the process must end then, too.
        """
        return decode_reply(self._connection.receive(), Lease())

    def wait(self, job: int, timeout: float | None = None) -> Job:
        """Return the job once it has ended, also where the daemon restarts meanwhile.

        Raises:
            NotFound: There is no such job.
            TimeoutError: It did not end within `timeout` seconds.
            DaemonGone: No daemon answered for GONE_S.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        patience = WAIT_S if self._timeout is None else min(WAIT_S, self._timeout / 2)
        status, answered = "waited for", time.monotonic()
        while True:
            try:
                left = max(end - time.monotonic(), 0.0)
                found = self.send(Wait(job, min(patience, left)))
            except DaemonGone:
                if self._connection.closed or time.monotonic() > answered + GONE_S:
                    raise
                time.sleep(RECONNECT_S)
            else:
                status, answered = found.status, time.monotonic()
                if not found.active:
                    return found
            if time.monotonic() >= end:
                raise TimeoutError(f"job {job} is still {status} after {timeout:.0f} s")

    def log(
        self, job: int, offset: int = 0, limit: int = 2**20, attempt: int | None = None
    ) -> bytes:
        """Return up to `limit` bytes of the job's output from `offset` on.

        A negative offset counts from the end. A line marks output that was dropped. The log is
        read from its file, and only on another machine through the daemon. To follow a log, use
        `log_part`.

        Args:
            attempt: The number of an attempt, from 1 on; None for the newest one.
        """
        return self.log_part(job, offset, limit, attempt).data

    def log_part(
        self, job: int, offset: int = 0, limit: int = 2**20, attempt: int | None = None
    ) -> Output:
        """Return output as `log` does, with its offset and the offset of what follows."""
        if self.place is not None or self._shared:
            return Output(*self.send(ReadLog(job, offset, min(limit, MAX_LOG_PART), attempt)))
        earlier = earlier_attempt(self.job(job), attempt)
        return logfile.of_job(job, offset, limit, earlier)

    def artefact_folder(self, job: int) -> Path:
        """Return the folder that the job finds in GPUDECK_ARTEFACTS. Raises UserError."""
        if self.place is not None:
            raise UserError(
                phrase(
                    "the artifacts of job {job} are on {machine}", job=job, machine=self.place.name
                )
            )
        home = paths.shared_home() if self._shared else paths.home()
        return home / "jobs" / str(job) / "artefacts"

    def artefacts(self, job: int) -> list[Path]:
        """Return the files that the job left in its GPUDECK_ARTEFACTS folder.

        Raises NotFound, and UserError where the folder cannot be read.
        """
        folder = self.artefact_folder(self.job(job).spec.artefacts_of or job)
        try:
            return sorted(path for path in folder.rglob("*") if path.is_file())
        except OSError as e:
            raise UserError(
                phrase(
                    "the artifacts of job {job} cannot be listed: {error} ({file})",
                    job=job,
                    error=str(e.strerror),
                    file=str(e.filename),
                )
            ) from e

    def _connect(self, timeout: float | None) -> Connection:
        try:
            if self.place:  # its socket here is made by ssh, and the tunnel checked the one there
                connection = Connection(self.place.socket, timeout)
            else:
                connection = Connection(paths.client_socket(), timeout, paths.daemon_owner())
        except DaemonGone as e:
            if self.place is not None:
                broken = phrase("the connection to {name} broke", name=self.place.name)
                raise DaemonGone(broken) from e
            if self._shared:
                raise DaemonGone(
                    phrase(
                        "the shared daemon of this machine does not answer. Its administrator sees "
                        "why with: {command}",
                        command="service gpudeck status",
                    )
                ) from e
            if not self._start:
                raise DaemonGone(NOT_RUNNING) from e
        else:
            if not (self._start and is_older(connection.server_pid)):
                return connection
            stop = Stop()  # its jobs run on, and the next daemon takes them over
            _exchange(connection, stop, encode_request(stop))
            _await_end(connection)
            connection.close()
        from gpudeck.scheduler.background.launch import start_daemon  # seldom needed

        start_daemon()
        return Connection(paths.daemon_socket(), timeout)


def _await_end(connection: Connection) -> None:
    """Wait until the daemon, which was asked to end, is gone."""
    try:
        connection.receive()  # the daemon closes its socket last
    except DaemonGone:
        pass


def submit(argv: Words, *, token: str | None = None, **options: Unpack[JobOptions]) -> JobHandle:
    """Queue a command by a client of its own; see `Client.submit`."""
    return Client().submit(argv, token=token, **options)


def _exchange(connection: Connection, request: Request[R], line: bytes) -> R:
    """Send a request and return its reply."""
    connection.send(line)
    return decode_reply(connection.receive(), request)


class Threaded:
    """Run the methods of a blocking object in a thread of its own."""

    def _blocking(self) -> Any:
        """Return the object."""
        raise NotImplementedError

    async def _run(self, call: Callable[[], R]) -> R:
        """Make the call in the thread."""
        raise NotImplementedError


def as_coroutine(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Threaded, P], Coroutine[Any, Any, R]]:
    """Return the blocking method as a coroutine function of a Threaded class."""

    @wraps(method)
    async def call(self: Threaded, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(partial(method, self._blocking(), *args, **kwargs))

    return call


class AsyncVerbs(Threaded):
    """The methods of `Client` as coroutines (see `gpudeck.scheduler.aio.AsyncClient`)."""

    def _blocking(self) -> Client:
        raise NotImplementedError

    async def send(self, request: Request[R]) -> R:
        """Send one of the requests in `gpudeck.scheduler.verbs`; return its reply, or raise its
        error."""
        return await self._run(partial(self._blocking().send, request))

    submit_many = as_coroutine(Client.submit_many)
    submit_array = as_coroutine(Client.submit_array)
    submission = as_coroutine(Client.submission)
    foresee = as_coroutine(Client.foresee)
    foresee_job = as_coroutine(Client.foresee_job)
    edit = as_coroutine(Client.edit)
    move = as_coroutine(Client.move)
    schedule = as_coroutine(Client.schedule)
    hold = as_coroutine(Client.hold)
    groups = as_coroutine(Client.groups)
    set_group = as_coroutine(Client.set_group)
    reserve = as_coroutine(Client.reserve)
    free = as_coroutine(Client.free)
    retry = as_coroutine(Client.retry)
    cancel_booking = as_coroutine(Client.cancel_booking)
    cancel = as_coroutine(Client.cancel)
    cancel_many = as_coroutine(Client.cancel_many)
    restore = as_coroutine(Client.restore)
    note = as_coroutine(Client.note)
    record_order = as_coroutine(Client.record_order)
    job = as_coroutine(Client.job)
    jobs = as_coroutine(Client.jobs)
    page = as_coroutine(Client.page)
    find = as_coroutine(Client.find)
    timeline = as_coroutine(Client.timeline)
    log = as_coroutine(Client.log)
    log_part = as_coroutine(Client.log_part)
    artefacts = as_coroutine(Client.artefacts)
    snapshot = as_coroutine(Client.snapshot)
    history = as_coroutine(Client.history)
    processes = as_coroutine(Client.processes)
    alerts = as_coroutine(Client.alerts)
    acknowledge = as_coroutine(Client.acknowledge)
    configure = as_coroutine(Client.configure)
    apply_settings = as_coroutine(Client.apply_settings)
    set_host = as_coroutine(Client.set_host)
    set_limits = as_coroutine(Client.set_limits)
    pause = as_coroutine(Client.pause)
    details = as_coroutine(Client.details)
    kill = as_coroutine(Client.kill)
    suspend = as_coroutine(Client.suspend)
    suspend_job = as_coroutine(Client.suspend_job)
    resume_job = as_coroutine(Client.resume_job)
    resume_process = as_coroutine(Client.resume_process)
    destinations = as_coroutine(Client.destinations)
    set_destination = as_coroutine(Client.set_destination)
    try_destination = as_coroutine(Client.try_destination)
    suspended = as_coroutine(Client.suspended)
