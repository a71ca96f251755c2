"""A job and the states it can be in, each state with its own data. Values only: nothing here touches a process or a file.

No value refers back to what holds it, so that the garbage collector need not look at them (`gc=False`): many jobs would hold it up.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from scheduler.protocol.wait_reasons import NotConsidered, WaitReason, render

NO_RESULT = msgspec.Raw(b"null")
"""JSON of a result that is not there: msgspec has no union of Raw and None."""

LISTED_RESULT = 16 * 2**10
"""Bytes of a result that snapshots and lists carry at most: they hold many jobs, and go to everybody several times a second."""
LISTED_ARGV = 4 * 2**10
"""Characters of a command, and of the parameters of a workload, that they carry at most."""


class Spec(msgspec.Struct, frozen=True, gc=False):
    """What was asked for: a command, where it runs and what it needs."""

    argv: tuple[str, ...]
    name: str
    cwd: str
    env: dict[str, str] = {}
    gpus: int = 0
    """Devices held for the job alone: GPUs, or 1 for the CPU on a machine that has no GPU."""
    workload: str | None = None
    """Name of the accelerated workload, where it is one."""
    params: dict[str, str] = {}
    """The workload's parameters, as shown to the user."""
    kind: str = ""
    """Kind of the devices it holds (see `Device.kind`), from the first that the daemon saw; empty until then, and without devices."""
    memory: int = 0
    """Bytes it reserves on each of its devices, which it shares with other jobs that reserve; 0: it has its devices for itself."""
    gpu_type: str = ""
    """Part of the name its GPUs must have, in any case, such as "h100"; empty: any GPU."""
    priority: int = 0
    """The higher, the earlier; within one priority, first come, first served."""
    timeout: float = 0.0
    """Seconds after which an attempt is ended; 0: never."""
    retries: int = 0
    """How many attempts it gets after the first, where they fail. One that ran out of memory is not counted: it adds one."""
    backoff: float = 10.0
    """Seconds between the first attempt and the second; twice as many after each further one."""
    after: tuple[int, ...] = ()
    """Jobs that must have succeeded before it starts; it is cancelled where one does not."""
    after_any: tuple[int, ...] = ()
    """Jobs that must have ended before it starts, however."""
    group: str = ""
    """Its group, which may be paused or limited; empty: none."""
    hold: bool = False
    """It waits until somebody resumes it."""
    index: int | None = None
    """Of an array: which of its jobs this is; the job finds it in GPUDECK_ARRAY_INDEX."""
    notes: str = ""
    tags: tuple[str, ...] = ()
    where: str = ""
    """The cluster that runs it, such as ray:lab (see `settings.Settings.clusters`); empty: this machine."""
    nice: int = 0
    """By how much the CPU priority of its processes is lowered, 0 to 19 (see nice(2))."""


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to become different of a Spec; None leaves a field as it is."""

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


class Group(msgspec.Struct, frozen=True):
    """Jobs that are limited and paused together."""

    name: str
    limit: int = 0
    """How many of its jobs run at once at most; 0: as many as fit."""
    paused: bool = False


class GroupState(msgspec.Struct, frozen=True):
    """A group with the numbers of its waiting and running jobs."""

    group: Group
    waiting: int
    running: int


class Progress(msgspec.Struct, frozen=True, gc=False):
    """What the job last said of itself on its standard output (see `scheduler.protocol.progress`)."""

    done: float
    total: float
    note: str = ""
    flops: float = 0.0
    """Floating-point operations counted so far; the dashboard's TFLOP/s where the hardware has no counters."""
    time: float = 0.0
    """When the job said it, seconds since the epoch."""


class Queued(msgspec.Struct, frozen=True, gc=False, tag="queued"):
    """Represent a job that waits; `queued` makes one with both forms of its reason."""

    reason: str = render(NotConsidered(), 0.0)
    """The sentence that tells a person why the job waits."""
    until: float = 0.0
    """Seconds since the epoch before which the next attempt does not start."""
    wait: WaitReason = NotConsidered()
    """Why the job waits, for programs."""


class Starting(msgspec.Struct, frozen=True, gc=False, tag="starting"):
    attempt: str
    """Nonce of this attempt; every process of it carries GPUDECK_ATTEMPT with this value."""
    devices: tuple[str, ...]
    at: float


class Running(msgspec.Struct, frozen=True, gc=False, tag="running"):
    attempt: str
    devices: tuple[str, ...]
    at: float
    runner: int
    """Pid of the runner process."""
    started: int
    """The runner's start time in clock ticks since boot: pid, start time and boot id together name a process for ever."""
    boot: str
    """In a cluster, which knows no runner (pid and start time are 0): the session of the cluster that it was meant for."""
    progress: Progress | None = None
    stopping: bool = False
    """A cancel was acknowledged; its processes are being ended."""
    known: bool = False
    """Its cluster has acknowledged it."""
    note: str = ""
    """What holds it up in its cluster, for display; empty while it runs."""


class Done(msgspec.Struct, frozen=True, gc=False, tag="done"):
    started: float
    at: float
    devices: tuple[str, ...] = ()
    result: msgspec.Raw = NO_RESULT
    """The Result file the job left, as JSON; see `Job.result`."""
    large: bool = False
    """The result is over LISTED_RESULT bytes: its largest members are left out here, in a snapshot or a list. Ask for this job alone."""


class Failed(msgspec.Struct, frozen=True, gc=False, tag="failed"):
    started: float
    at: float
    reason: str
    code: int | None = None
    """Exit status; negative for a signal; None where it could not be started."""
    devices: tuple[str, ...] = ()
    result: msgspec.Raw = NO_RESULT
    large: bool = False
    """As of Done."""


class Cancelled(msgspec.Struct, frozen=True, gc=False, tag="cancelled"):
    at: float
    started: float | None = None
    devices: tuple[str, ...] = ()
    reason: str = ""
    """Why, where it was not its user."""


class Lost(msgspec.Struct, frozen=True, gc=False, tag="lost"):
    """It ran, and nobody can say how it ended (power cut, runner killed)."""

    started: float
    at: float
    reason: str
    devices: tuple[str, ...] = ()


State = Queued | Starting | Running | Done | Failed | Cancelled | Lost
Active = Queued | Starting | Running
Ended = Done | Failed | Cancelled | Lost


def status_of(state: State) -> str:
    """The state's name in lower case, as the store and every list show it."""
    return type(state).__name__.lower()


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What a job used of its devices over all its attempts, as far as it was watched."""

    seconds: float = 0.0
    """How long it was watched: less than it ran, where the daemon or the probe was away."""
    memory: float = 0.0
    """The most bytes that its processes had allocated on one device at one moment."""
    energy: float = 0.0
    """Joules of all its devices."""
    util: float = 0.0
    """Percent, the mean over its devices and its time."""
    absent: dict[str, str] = {}
    """For each of these that is not known: why."""


class Event(msgspec.Struct, frozen=True):
    """One thing that happened to a job; all of them, oldest first, are its timeline."""

    time: float
    """Seconds since the epoch."""
    what: str
    """A word: submitted, started, ended, ..."""
    text: str = ""
    """The rest of the sentence, for a person to read."""


class Job(msgspec.Struct, frozen=True, gc=False):
    id: int
    spec: Spec
    submitted: float
    state: State
    place: float | None = None
    """Where it stands among the waiting jobs of its priority, the lowest first; None: its number."""
    tries: int = 0
    """How many attempts have ended and were followed by another; the next is one more."""
    usage: Usage | None = None
    """None until an attempt has ended."""
    cut: bool = False
    """Its command or its parameters are long, and only their beginning is here, in a snapshot or a list. Ask for this job alone."""

    @property
    def active(self) -> bool:
        """Whether it still waits or runs."""
        return isinstance(self.state, Queued | Starting | Running)

    @property
    def status(self) -> str:
        """The state's name in lower case: queued, starting, running, done, failed, cancelled, lost."""
        return status_of(self.state)

    @property
    def result(self) -> bytes | None:
        """JSON of the Result file the job left (see `accel.result`), None where it left none."""
        raw = bytes(self.state.result) if isinstance(self.state, Done | Failed) else b"null"
        return None if raw == b"null" else raw


class Cancelling(msgspec.Struct, frozen=True):
    """What an order to cancel many jobs did: numbers, each once, the lowest first."""

    cancelled: tuple[int, ...] = ()
    """They waited, and will never run."""
    ending: tuple[int, ...] = ()
    """They run, and are being ended."""
    ended: tuple[int, ...] = ()
    """Named alone, not within a range, and had ended already."""
    missing: tuple[int, ...] = ()
    """Named alone, and there is none of that number."""


class Forecast(msgspec.Struct, frozen=True):
    """Describe where and when a job would start if it were submitted now."""

    devices: tuple[str, ...]
    at: float | None
    """Seconds since the epoch; None where that is unknown."""
    reason: str = ""
    """The sentence that tells a person why the job would wait first."""
    wait: WaitReason | None = None
    """Why the job would wait first, for programs; None where it would start at once."""


def queued(wait: WaitReason, now: float, until: float = 0.0) -> Queued:
    """Return the state of a job that waits for this reason."""
    return Queued(render(wait, now), until, wait)


def turn(job: Job) -> tuple[int, float, int]:
    """Sorts jobs in the order in which they are served."""
    return (-job.spec.priority, job.id if job.place is None else job.place, job.id)


def held_devices(job: Job) -> tuple[str, ...]:
    """Ids of the devices this job holds now."""
    return job.state.devices if isinstance(job.state, Starting | Running) else ()


def listed(job: Job) -> Job:
    """The job as snapshots and lists show it: of a large result only what is small, of a long command the beginning."""
    spec, state = job.spec, job.state
    argv, params = (
        _beginning(spec.argv),
        dict(zip(spec.params, _beginning(spec.params.values()), strict=False)),
    )
    if argv != spec.argv or params != spec.params:
        job = msgspec.structs.replace(
            job, spec=msgspec.structs.replace(spec, argv=argv, params=params), cut=True
        )
    if not isinstance(state, Done | Failed) or len(bytes(state.result)) <= LISTED_RESULT:
        return job
    return msgspec.structs.replace(
        job, state=msgspec.structs.replace(state, result=_headline(bytes(state.result)), large=True)
    )


def _beginning(texts: Iterable[str]) -> tuple[str, ...]:
    """As much as LISTED_ARGV characters hold; the rest is not even looked at."""
    kept: list[str] = []
    spare = LISTED_ARGV
    for text in texts:
        if len(text) >= spare:
            return (*kept, text[:spare] + "…")
        kept.append(text)
        spare -= len(text) + 1
    return tuple(kept)


def _headline(result: bytes) -> msgspec.Raw:
    """The result without its largest members; none where it has no members, or nothing remains."""
    try:
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return NO_RESULT
    spare = LISTED_RESULT
    kept = {}
    for name, value in sorted(members.items(), key=lambda member: len(bytes(member[1]))):
        spare -= len(name.encode()) + len(bytes(value)) + 4  # quotes, colon, comma
        if spare > 0:
            kept[name] = value
    return (
        msgspec.Raw(msgspec.json.encode({name: members[name] for name in members if name in kept}))
        if kept
        else NO_RESULT
    )
