"""A job and the states it can be in, each with its own data. Nothing here uses a process or a file.

No value refers back to what holds it, so that the garbage collector need not track them
(`gc=False`): many jobs would slow it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from gpudeck.language.text import Message, Text, mark_phrase, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.suspended import Phase
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable, NotConsidered, WaitReason
from gpudeck.scheduler.protocol.wait_texts import render

NO_RESULT = msgspec.Raw(b"null")
"""The JSON of a missing result, as msgspec has no union of Raw and None."""

LISTED_RESULT = 16 * 2**10
"""The most bytes of a result in snapshots and lists, which hold many jobs and are sent often."""
LISTED_ARGV = 4 * 2**10
"""The most characters of a command, and of the parameters of a workload, in them."""
_CPU = "cpu"
"""The id of the device of a machine without a GPU."""


class Inherited(msgspec.Struct, frozen=True, gc=False):
    """Describe what a command inherits from a process besides its environment."""

    umask: int
    nice: int = 0
    limits: dict[str, tuple[int, int]] = {}
    """Soft and hard limits by their names, such as nofile; -1 stands for none. A limit that is
    missing is none."""


class Spec(msgspec.Struct, frozen=True, gc=False):
    """Describe what a user submitted: a command, where it runs and what it needs."""

    argv: tuple[str, ...]
    name: str
    cwd: str
    env: dict[str, str] = {}
    gpus: int = 0
    """How many devices the job holds: GPUs, or 1 for the CPU of a machine without a GPU."""
    workload: str | None = None
    """Name of the accelerated workload, if the job is one."""
    params: dict[str, str] = {}
    """The workload's parameters, as they are shown to the user."""
    kind: str = ""
    """Kind of its devices (see `Device.kind`); empty while none was read, and without devices."""
    memory: int = 0
    """Bytes it reserves on each of its devices, which others may share; 0: it shares none."""
    gpu_type: str = ""
    """Part of the name of its GPUs, in upper or lower case, such as "h100"; empty: any GPU."""
    priority: int = 0
    """A higher priority is served earlier; within one, first come, first served."""
    timeout: float = 0.0
    """Seconds after which an attempt is ended; 0: never."""
    retries: int = 0
    """How many attempts follow the first if it fails."""
    backoff: float = 10.0
    """Seconds between the first attempt and the second; they double after each further one."""
    after: tuple[int, ...] = ()
    """Jobs that must succeed before it starts; it is cancelled if one does not."""
    after_any: tuple[int, ...] = ()
    """Jobs that must end before it starts, whether or not they succeed."""
    group: str = ""
    """Its group, which may be paused or limited; empty: none."""
    hold: bool = False
    """True while it waits for its user to resume it."""
    index: int | None = None
    """Its index in an array of jobs, which the job finds in GPUDECK_ARRAY_INDEX."""
    notes: str = ""
    tags: tuple[str, ...] = ()
    where: str = ""
    """The cluster that runs it, such as ray:lab (see `Settings.clusters`); empty: this machine."""
    begin: float = 0.0
    """Seconds since the epoch before which it does not start; 0: as soon as it can."""
    retry_lost: bool = False
    """True where an attempt that was lost counts as one that failed, so that it is retried."""
    nice: int = 0
    """By how much the CPU priority of its processes is lowered, 0 to 19 (see nice(2))."""
    host_memory: int = 0
    """Bytes of the machine's memory that it may use; 0: any."""
    cpus: float = 0.0
    """How many processors' time it may use; 0: any."""
    precision: str = ""
    """The data type in which it mostly computes (see `devices.RATE_OF_TYPES`); empty: not said."""
    inherited: Inherited | None = None
    """What it inherits from the process that submitted it; None: from its runner."""
    container: str = ""
    """The container that it runs in, as ENGINE:IMAGE; empty: none."""
    mounts: tuple[str, ...] = ()
    """Folders that the container sees besides the job's own; with :ro at the end, read only."""
    container_env: tuple[str, ...] = ()
    """Variables of the environment that the container gets, besides those of the queue."""
    notify: tuple[str, ...] = ()
    """The destinations that are told of its end (see `gpudeck notify`)."""
    user: int | None = None
    """The user who submitted it to a shared daemon, who runs it; None: who runs the daemon."""
    resumable: str = ""
    """The signal, such as TERM, on which it saves its state and ends, so that it can be queued
    again with its artefacts; empty: none."""
    preemptible: bool = False
    """True where it is suspended for a waiting job of a higher priority, or for a booking."""
    artefacts_of: int | None = None
    """The ended job whose folder of artefacts it uses; None: it has its own."""
    when_idle: bool = False
    """True where it runs only while its GPUs are idle. It leaves them at once when anybody else
    needs one, and waits again."""
    spared: int = 0
    """How many of its attempts took none of its retries: they were ended for others or at their
    user's wish, or ran out of memory. The daemon counts them."""


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describe changes to a Spec; None leaves a field as it is."""

    name: str | None = None
    gpus: int | None = None
    memory: int | None = None
    gpu_type: str | None = None
    priority: int | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | None = None
    group: str | None = None
    hold: bool | None = None
    notes: str | None = None
    tags: tuple[str, ...] | None = None
    begin: float | None = None
    """Seconds since the epoch; 0: at once."""
    notify: tuple[str, ...] | None = None


class Group(msgspec.Struct, frozen=True):
    """Describe the limits of jobs that are limited and paused together."""

    name: str
    limit: int = 0
    """The most of its jobs that run at once; 0: as many as fit."""
    paused: bool = False


class GroupState(msgspec.Struct, frozen=True):
    """Describe a group with the numbers of its waiting and running jobs."""

    group: Group
    waiting: int
    running: int


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Describe the progress a job last reported (see `gpudeck.scheduler.protocol.progress`)."""

    done: float
    total: float
    note: str = ""
    flops: float = 0.0
    """Floating-point operations so far, for the TFLOP/s of hardware without counters."""
    time: float = 0.0
    """When the job reported it, in seconds since the epoch."""


class Queued(msgspec.Struct, frozen=True, gc=False, tag="queued"):
    """Represent a job that waits; `queued` makes one with both forms of its reason."""

    reason: str = render(NotConsidered(), 0.0)
    """The sentence that tells a person why the job waits."""
    until: float = 0.0
    """Seconds since the epoch before which the next attempt does not start."""
    wait: WaitReason = NotConsidered()
    """Why the job waits, for programs."""
    unbegun: int = 0
    """How many of its attempts in a row ended before they ran anything."""
    held_by: int | None = None
    """The administrator of a shared daemon who put another user's job on hold; None: nobody did."""


class Starting(msgspec.Struct, frozen=True, gc=False, tag="starting"):
    """Represent a job whose attempt was committed, and whose runner was not."""

    attempt: str
    """Nonce of this attempt; every process of it carries GPUDECK_ATTEMPT with this value."""
    devices: tuple[str, ...]
    at: float
    unbegun: int = 0
    """As in Queued."""


class JobSuspension(msgspec.Struct, frozen=True, gc=False):
    """Describe how far a running job is on its way off its GPUs, or back to them."""

    phase: Phase
    since: float
    """When it was to leave its GPUs, in seconds since the epoch."""
    resume_at: float | None = None
    """The first moment at which it comes back, once its GPUs have room, in seconds since the epoch.
    None: when somebody resumes it."""
    memory: int = 0
    """Bytes of GPU memory that the host holds for it; 0 until it has left its GPUs."""
    wait: WaitReason | None = None
    """Why it is not back yet, where it should be; worked out for each answer."""
    loss: Message = ""
    """Why it can never come back; its processes end then. Empty where it can."""

    @property
    def is_off(self) -> bool:
        """Return whether the job holds neither its GPUs nor memory on them."""
        return self.phase == "suspended"

    def is_due(self, now: float) -> bool:
        """Return whether the job is to come back by now, as soon as its GPUs have room."""
        return self.is_off and self.resume_at is not None and self.resume_at <= now


class Running(msgspec.Struct, frozen=True, gc=False, tag="running"):
    """Represent a job whose runner was committed."""

    attempt: str
    devices: tuple[str, ...]
    at: float
    runner: int
    """Pid of the runner process."""
    started: int
    """The runner's start time in clock ticks since boot."""
    boot: str
    """The boot id. Pid, namespace, start time and boot id name a process for good. In a cluster,
    where pid and start time are 0, the session of the cluster that the attempt is meant for."""
    progress: Progress | None = None
    stopping: bool = False
    """True once a cancellation was acknowledged, while its processes end."""
    namespace: int = 0
    """The PID namespace of the runner, as on each start of a container; 0 where that is unknown."""
    known: bool = False
    """True once its cluster has acknowledged it."""
    note: Message = ""
    """What holds it up, as in its cluster, for display."""
    unreadable: FolderUnreadable | None = None
    """Why its folder cannot be read now, with the record of its end; None where it can."""
    over: bool = False
    """True where its processes have ended and the record of its end is unreadable: it holds
    nothing any more."""
    unbegun: int = 0
    """As in Queued."""
    suspension: JobSuspension | None = None
    """None while it is on its GPUs."""
    suspended: float = 0.0
    """How long its earlier suspensions took, in seconds."""

    returned: float = 0.0
    """When it last came back from a suspension, in seconds since the epoch; 0: it never did."""
    yielding: Literal["", "queue", "hold"] = ""
    """Set once it was asked to end in order to be queued again, or on hold."""

    @property
    def worked_from(self) -> float:
        """Return when it would have begun if it had never been suspended, for its pace, in seconds
        since the epoch."""
        return self.at + self.suspended

    def suspended_by(self, now: float) -> float:
        """Return how long it has been suspended by now, in seconds."""
        return self.suspended + (max(now - self.suspension.since, 0.0) if self.suspension else 0.0)


class Done(msgspec.Struct, frozen=True, gc=False, tag="done"):
    """Represent a job that succeeded."""

    started: float
    at: float
    devices: tuple[str, ...] = ()
    result: msgspec.Raw = NO_RESULT
    """The Result file the job left, as JSON; see `Job.result`."""
    large: bool = False
    """True in a snapshot or a list where the result has over LISTED_RESULT bytes: its largest
    members are left out. A request for this job alone returns them."""
    suspended: float = 0.0
    """How long its attempt was suspended, in seconds."""


class Failed(msgspec.Struct, frozen=True, gc=False, tag="failed"):
    """Represent a job that failed."""

    started: float
    at: float
    reason: Message
    code: int | None = None
    """Exit status; negative for a signal; None if it could not be started."""
    devices: tuple[str, ...] = ()
    result: msgspec.Raw = NO_RESULT
    large: bool = False
    """As in Done."""
    suspended: float = 0.0
    """As in Done."""
    quote: str = ""
    """What the reason quotes, after a colon at its end, of the job's output."""


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag="cancelled"):
    """Represent a job that was cancelled."""

    at: float
    started: float | None = None
    devices: tuple[str, ...] = ()
    reason: Message = ""
    """Why, if the user did not request it."""
    suspended: float = 0.0
    """As in Done."""


class Lost(msgspec.Struct, frozen=True, gc=False, tag="lost"):
    """Represent a job that ran and left no record of its end (power cut, runner killed)."""

    started: float
    at: float
    reason: Message
    devices: tuple[str, ...] = ()
    suspended: float = 0.0
    """As in Done."""


State = Queued | Starting | Running | Done | Failed | Cancelled | Lost
Active = Queued | Starting | Running
Ended = Done | Failed | Cancelled | Lost


def unquoted_reason(state: Failed | Cancelled | Lost) -> Message:
    """Return why a job ended without what that quotes of its output."""
    if not isinstance(state, Failed) or not state.quote:
        return state.reason
    if isinstance(state.reason, str):  # of an older version
        return state.reason.removesuffix(f": {state.quote}")
    reason = dict(state.reason.values)["reason"]
    assert isinstance(reason, Text)
    return reason


def status_of(state: State) -> str:
    """Return the state's name in lower case, as the store and every list show it."""
    return type(state).__name__.lower()


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Describe what a job used of its devices in all its attempts, as far as readings tell."""

    seconds: float = 0.0
    """The time covered by readings: less than it ran if the daemon or the probe was down."""
    memory: float = 0.0
    """The most bytes that its processes had allocated on one device at one time."""
    energy: float = 0.0
    """Joules of all its devices."""
    util: float = 0.0
    """Percent: the mean over its devices and its time."""
    absent: dict[str, Message] = {}
    """Why figures are missing, by their names."""


EVENTS = (
    mark_phrase("submitted"),
    mark_phrase("queued"),
    mark_phrase("queued again"),
    mark_phrase("started"),
    mark_phrase("done"),
    mark_phrase("failed"),
    mark_phrase("cancelled"),
    mark_phrase("lost"),
    mark_phrase("ordered"),
    mark_phrase("edited"),
    mark_phrase("moved"),
    mark_phrase("restored"),
    mark_phrase("recovered"),
    mark_phrase("stop requested"),
    mark_phrase("asked to end"),
    mark_phrase("gives way"),
    mark_phrase("suspending"),
    mark_phrase("suspended"),
    mark_phrase("resuming"),
    mark_phrase("resumed"),
    mark_phrase("not suspended"),
    mark_phrase("adopted"),
    mark_phrase("acknowledged"),
    mark_phrase("unreadable"),
    mark_phrase("limited"),
    mark_phrase("log over its limit"),
    mark_phrase("without result"),
    mark_phrase("held"),
    mark_phrase("store damaged"),
)
"""What may happen to a job, as `Event.what` says."""


class Event(msgspec.Struct, frozen=True):
    """Describe an event in a job's timeline."""

    time: float
    """Seconds since the epoch."""
    what: str
    """One of EVENTS."""
    text: Message = ""
    """The rest of the sentence, for a person to read."""


class Job(msgspec.Struct, frozen=True, gc=False):
    """Represent a job with its state."""

    id: int
    spec: Spec
    submitted: float
    state: State
    place: float | None = None
    """Its place among the waiting jobs of its priority, the lowest first; None: its number."""
    tries: int = 0
    """How many attempts ended and were followed by another."""
    usage: Usage | None = None
    """None until an attempt has ended."""
    cut: bool = False
    """True in a snapshot or a list that holds only the beginning of its command or parameters.
    A request for this job alone returns all of them."""
    damaged: bool = False
    """True where what was submitted does not match its checksum in the store: its command, name
    or options were changed or damaged there."""

    @property
    def active(self) -> bool:
        """Return whether the job waits or runs."""
        return isinstance(self.state, Queued | Starting | Running)

    @property
    def status(self) -> str:
        """Return queued, starting, running, done, failed, cancelled or lost."""
        return status_of(self.state)

    @property
    def started(self) -> float | None:
        """Return when it got its devices, in seconds since the epoch; None where it never did."""
        match self.state:
            case Starting() | Running():
                return self.state.at
            case Queued():
                return None
            case _:
                return self.state.started

    @property
    def ended(self) -> float | None:
        """Return when it ended, in seconds since the epoch; None while it waits or runs."""
        return self.state.at if isinstance(self.state, Ended) else None

    @property
    def result(self) -> bytes | None:
        """Return the JSON of the job's Result file (see `gpudeck.accel.result`); None if it left
        none."""
        raw = bytes(self.state.result) if isinstance(self.state, Done | Failed) else b"null"
        return None if raw == b"null" else raw


UNDO_S = 10.0
"""Seconds for which the cancellation of a job that waited can be undone."""


class Cancelling(msgspec.Struct, frozen=True):
    """List the jobs that a request to cancel many named: each number once, the lowest first."""

    cancelled: tuple[int, ...] = ()
    """Jobs that waited, and were removed from the queue."""
    ending: tuple[int, ...] = ()
    """Jobs that run, and were asked to stop."""
    ended: tuple[int, ...] = ()
    """Jobs that were named alone, not within a range, and had ended already."""
    missing: tuple[int, ...] = ()
    """Numbers that were named alone, and belong to no job."""


class Forecast(msgspec.Struct, frozen=True):
    """Describe where and when a job would start if it were submitted now."""

    devices: tuple[str, ...]
    at: float | None
    """Seconds since the epoch; None where that is unknown."""
    reason: str = ""
    """The sentence that tells a person why the job would wait first."""
    wait: WaitReason | None = None
    """Why the job would wait first, for programs; None where it would start at once."""


def repeated(
    job: Job,
    env: dict[str, str],
    artefacts: bool = False,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> Spec:
    """Return a job that is queued once more: not held, and waiting for nothing but its devices.

    Args:
        env: the environment that it gets.
        artefacts: it works in the artefacts of the old one.
        changes: the fields that differ.
    """
    kept = (job.spec.artefacts_of or job.id) if artefacts else None
    fresh: dict[str, Any] = {
        "env": env, "kind": "", "after": (), "after_any": (), "hold": False, "begin": 0.0,
        "artefacts_of": kept,
    }  # fmt: skip
    return msgspec.structs.replace(job.spec, **(fresh | dict(changes)))


def earlier_attempt(job: Job, attempt: int | None) -> int | None:
    """Return the number of an attempt before the newest one; None for that one.

    Raises UserError where the job has no such attempt.
    """
    newest = job.tries + 1
    if attempt is not None and not 1 <= attempt <= newest:
        raise UserError(
            phrase(
                "job {job} has the attempts 1 to {newest}, and no attempt {attempt}",
                job=job.id,
                newest=newest,
                attempt=attempt,
            )
        )
    return None if attempt == newest else attempt


def queued(wait: WaitReason, now: float, until: float = 0.0, unbegun: int = 0) -> Queued:
    """Return the state of a job that waits for this reason."""
    return Queued(render(wait, now), until, wait, unbegun)


def turn(job: Job) -> tuple[int, float, int]:
    """Return a key that sorts jobs in the order in which they are served."""
    return (-job.spec.priority, job.id if job.place is None else job.place, job.id)


def held_devices(job: Job) -> tuple[str, ...]:
    """Return the ids of the devices this job holds now; none while it is suspended."""
    if not isinstance(job.state, Starting | Running) or over(job):
        return ()
    suspension = suspension_of(job)
    return () if suspension is not None and suspension.is_off else job.state.devices


def suspension_of(job: Job) -> JobSuspension | None:
    """Return how the job is suspended; None where it is not."""
    return job.state.suspension if isinstance(job.state, Running) else None


def suspended_seconds(job: Job, now: float) -> float:
    """Return how long the newest attempt has been suspended by now, in seconds."""
    match job.state:
        case Running():
            return job.state.suspended_by(now)
        case Done() | Failed() | Cancelled() | Lost():
            return job.state.suspended
        case _:
            return 0.0


def find_stays(
    events: Iterable[Event], began: float, ended: float | None
) -> list[tuple[float, float | None]]:
    """Return when a job was on its devices: from when until when, in seconds since the epoch.

    Args:
        events: Its timeline.
        began: When the attempt began.
        ended: When it ended; None while it runs.
    """
    stays: list[tuple[float, float | None]] = []
    since: float | None = began
    for event in events:
        if event.what == "suspended" and since is not None and event.time >= began:
            stays.append((since, event.time))
            since = None
        elif event.what == "resumed" and since is None:
            since = event.time
    return stays if since is None else [*stays, (since, ended)]


def is_on_gpu_here(job: Job) -> bool:
    """Return whether the job holds a GPU of this machine now, and not only the CPU."""
    return not job.spec.where and any(device != _CPU for device in held_devices(job))


def held_gpus(job: Job) -> int:
    """Return on how many GPUs the job runs or ran last."""
    if _ended_between_attempts(job):
        return job.spec.gpus
    devices = () if isinstance(job.state, Queued) else job.state.devices
    return sum(device != _CPU for device in devices)


def _ended_between_attempts(job: Job) -> bool:
    """Return whether the job ended while it waited for another attempt."""
    state = job.state
    return isinstance(state, Ended) and state.started is None and job.usage is not None


def held_seconds(job: Job, until: float, since: float = 0.0) -> float:
    """Return how long the job held its devices in a span of time, in seconds."""
    state = job.state
    if isinstance(state, Queued):
        return 0.0
    began = state.started if isinstance(state, Ended) else state.at
    if began is None:  # its attempts ended before, at moments that nothing tells
        return 0.0 if job.usage is None else max(min(job.usage.seconds, until - since), 0.0)
    end = min(until, state.at) if isinstance(state, Ended) else until
    # the readings cover all attempts, and less than one where the daemon was down
    whole = isinstance(state, Ended) and since <= began and state.at <= until
    watched = job.usage.seconds if whole and job.usage is not None else 0.0
    off = suspended_seconds(job, until)
    return max(watched, min(end - max(began, since), end - began - off), 0.0)


def over(job: Job) -> bool:
    """Return whether the job's processes have ended, and how it ended cannot be read yet."""
    return isinstance(job.state, Running) and job.state.over


def listed(job: Job) -> Job:
    """Return the job as snapshots and lists show it, with long commands and results cut."""
    spec, state = job.spec, job.state
    argv = _beginning(spec.argv)
    params = dict(zip(spec.params, _beginning(spec.params.values()), strict=False))
    if argv != spec.argv or params != spec.params:
        spec = msgspec.structs.replace(spec, argv=argv, params=params)
        job = msgspec.structs.replace(job, spec=spec, cut=True)
    if isinstance(state, Done | Failed) and len(bytes(state.result)) > LISTED_RESULT:
        headline = _headline(bytes(state.result))
        state = msgspec.structs.replace(state, result=headline, large=True)
        job = msgspec.structs.replace(job, state=state)
    return job


def _beginning(texts: Iterable[str]) -> tuple[str, ...]:
    """Return as many texts as LISTED_ARGV characters hold, without reading the rest."""
    kept: list[str] = []
    spare = LISTED_ARGV
    for text in texts:
        if len(text) >= spare:
            return (*kept, text[:spare] + "…")
        kept.append(text)
        spare -= len(text) + 1
    return tuple(kept)


def _headline(result: bytes) -> msgspec.Raw:
    """Return the result without its largest members; NO_RESULT if nothing remains."""
    try:
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return NO_RESULT
    spare = LISTED_RESULT
    kept = set()
    for name, value in sorted(members.items(), key=lambda member: len(bytes(member[1]))):
        spare -= len(name.encode()) + len(bytes(value)) + 4  # quotes, colon, comma
        if spare > 0:
            kept.add(name)
    if not kept:
        return NO_RESULT
    return msgspec.Raw(
        msgspec.json.encode({name: members[name] for name in members if name in kept})
    )
