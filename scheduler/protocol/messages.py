"""What goes over the daemon's door: one type a verb, and typed replies. JSON, one message a line."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.devices import Detail
from scheduler.protocol.jobs import Cancelling, Changes, Event, Forecast, Group, Job, Spec
from scheduler.protocol.search import Search
from scheduler.protocol.settings import ClusterSettings
from scheduler.protocol.snapshot import Alert, Columns, Snapshot

MAX_LISTED = 1000
"""Jobs in one reply."""
MAX_POINTS = 10_000
"""Buckets of history in one reply."""
NEWEST = 2**62
"""Beyond the number of any job."""


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request. What one side knows and the other does not must not be left out without a word, as a job would run without it."""


class Submit(_Asked, frozen=True, tag="submit"):
    spec: Spec


class SubmitMany(_Asked, frozen=True, tag="submit_many"):
    """Several jobs in one transaction: all of them, or none. Answered by the jobs, oldest first."""

    specs: tuple[Spec, ...]
    env: dict[str, str] = {}
    """Of each that brings none of its own."""


class Foresee(_Asked, frozen=True, tag="foresee"):
    """Where and when the job would start; nothing is submitted."""

    spec: Spec


class ForeseeJob(_Asked, frozen=True, tag="foresee_job"):
    """Where and when a job that waits will start."""

    job: int


class Edit(_Asked, frozen=True, tag="edit"):
    job: int
    changes: Changes


class Move(_Asked, frozen=True, tag="move"):
    """Let a job that waits stand right before another, or right after it."""

    job: int
    beside: int
    after: bool = False


class GetGroups(_Asked, frozen=True, tag="groups"):
    pass


class SetGroup(_Asked, frozen=True, tag="group"):
    """Limit or pause a group; None leaves it as it is."""

    name: str
    limit: int | None = None
    paused: bool | None = None


class Cancel(_Asked, frozen=True, tag="cancel"):
    job: int


class CancelMany(_Asked, frozen=True, tag="cancel_many"):
    """Cancel all that is named and has not ended, in one transaction. Answered by what was done, also where that was nothing."""

    jobs: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last of each."""
    array: int | None = None
    """Number of any job of it."""
    group: str = ""


class GetJob(_Asked, frozen=True, tag="job"):
    job: int


WAIT_S = 10.0
"""The longest that an answer to Wait takes."""


class Wait(_Asked, frozen=True, tag="wait"):
    """Answered by the job once it has ended, or as it is after `seconds` (WAIT_S at most)."""

    job: int
    seconds: float


class GetTimeline(_Asked, frozen=True, tag="timeline"):
    job: int


class ListJobs(_Asked, frozen=True, tag="jobs"):
    """The newest jobs, as they are listed (see `jobs.listed`); MAX_LISTED at most."""

    limit: int = 100
    active: bool = False


class FindJobs(_Asked, frozen=True, tag="find"):
    """The newest jobs with numbers below `before` that are looked for; MAX_LISTED at most, as they are listed.

    The daemon stops after some milliseconds: a page may be short, or empty, and there may be more all the same.
    """

    search: Search
    before: int = NEWEST
    limit: int = 100


class GetSnapshot(_Asked, frozen=True, tag="snapshot"):
    live: bool = True
    """As of Subscribe: for a while after, somebody looks."""


class Subscribe(_Asked, frozen=True, tag="subscribe"):
    """Answered by a Snapshot whenever something changed, until the connection closes."""

    live: bool = True
    """Somebody looks: devices are read fast meanwhile, and woken where they sleep."""


class GetDetails(_Asked, frozen=True, tag="details"):
    """All about links, parts and processes of the devices, read now."""


class KillProcess(_Asked, frozen=True, tag="kill"):
    """End a process that uses a GPU: pid and start (ticks since the boot) as a Detail told them, so that a reused pid is never killed."""

    pid: int
    ticks: int


class GetHistory(_Asked, frozen=True, tag="history"):
    device: str
    fields: tuple[str, ...]
    since: float
    until: float = 1e18
    points: Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTS)] | None = None
    """Buckets at most; None: every row there is."""


class GetFields(_Asked, frozen=True, tag="fields"):
    """What was read of a device in that time."""

    device: str
    since: float
    until: float = 1e18


class GetAnnotations(_Asked, frozen=True, tag="annotations"):
    """Jobs, throttling, alerts, Xid events that touch this time."""

    since: float
    until: float = 1e18


class GetAlerts(_Asked, frozen=True, tag="alerts"):
    """The log of alerts, the newest first."""

    limit: Annotated[int, msgspec.Meta(ge=0, le=MAX_LISTED)] = 100


class Acknowledge(_Asked, frozen=True, tag="acknowledge"):
    """Somebody has seen an alert that is raised. Answered by the snapshot."""

    alert: int


class Configure(_Asked, frozen=True, tag="configure"):
    changes: dict[str, str | float | bool | dict[str, ClusterSettings]]


class Pause(_Asked, frozen=True, tag="pause"):
    paused: bool


class Stop(_Asked, frozen=True, tag="stop"):
    """End the daemon. Running jobs run on, and are adopted by the next daemon."""


class Lease(_Asked, frozen=True, tag="lease"):
    """Ask for an idle GPU, for the process that asks. It is answered by Leased, and later, unasked, by Evicted; 0.1 s after that the
    process is killed. The lease ends with the process."""

    memory: int = 0
    """Bytes that must be free on it."""


Order = Submit | SubmitMany | Edit | Move | Cancel | CancelMany | SetGroup | Pause
"""What changes the queue."""
Question = GetJob | GetTimeline | ListJobs | FindJobs | GetGroups | Foresee | ForeseeJob
"""What is asked about jobs."""
Past = GetHistory | GetFields | GetAnnotations
"""What is asked about the past of the devices."""
Request = (
    Order
    | Question
    | Past
    | Wait
    | GetDetails
    | KillProcess
    | GetSnapshot
    | Subscribe
    | GetAlerts
    | Acknowledge
    | Configure
    | Stop
    | Lease
)


def _strict(kind: type[msgspec.Struct], **types: Any) -> Any:
    """A struct with the same fields, some of these `types`, and no others."""
    fields = [
        (f.name, types.get(f.name, f.type), msgspec.field(default=f.default))
        for f in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(
        kind.__name__,
        fields,
        tag=kind.__struct_config__.tag,
        forbid_unknown_fields=True,
        kw_only=True,
    )


_SPEC = _strict(Spec)
_REFUSING = msgspec.json.Decoder(
    _strict(Submit, spec=_SPEC)
    | _strict(SubmitMany, specs=tuple.__class_getitem__((_SPEC, ...)))
    | _strict(Foresee, spec=_SPEC)
)
_REQUEST = msgspec.json.Decoder(Request).decode


def read(line: bytes) -> Request:
    """The request that it is. Raises what `scheduler.protocol.errors.MALFORMED` names, also for a Spec with a field that is not known here: in the
    store, and in what a newer daemon answers, such a field does no harm.
    """
    request: Request = _REQUEST(line)
    if isinstance(request, Submit | SubmitMany | Foresee):
        _REFUSING.decode(line)
    return request


class Ok(msgspec.Struct, frozen=True, tag="ok"):
    pass


class Error(msgspec.Struct, frozen=True, tag="error"):
    message: str
    missing: bool = False
    """What was named does not exist."""


class JobReply(msgspec.Struct, frozen=True, tag="job"):
    job: Job


class CancellingReply(msgspec.Struct, frozen=True, tag="cancelling"):
    cancelling: Cancelling


class JobsReply(msgspec.Struct, frozen=True, tag="jobs"):
    jobs: tuple[Job, ...]


class FoundReply(msgspec.Struct, frozen=True, tag="found"):
    jobs: tuple[Job, ...]
    before: int | None
    """Where the next page begins; None: there are no more."""


class TimelineReply(msgspec.Struct, frozen=True, tag="timeline"):
    events: tuple[Event, ...]


class GroupState(msgspec.Struct, frozen=True):
    """A group, and how many of its jobs wait and run."""

    group: Group
    waiting: int
    running: int


class GroupsReply(msgspec.Struct, frozen=True, tag="groups"):
    groups: tuple[GroupState, ...]


class ForecastReply(msgspec.Struct, frozen=True, tag="forecast"):
    forecast: Forecast


class SnapshotReply(msgspec.Struct, frozen=True, tag="snapshot"):
    snapshot: Snapshot


class DetailsReply(msgspec.Struct, frozen=True, tag="details"):
    details: tuple[Detail, ...]


class HistoryReply(msgspec.Struct, frozen=True, tag="history"):
    history: Columns


class FieldsReply(msgspec.Struct, frozen=True, tag="fields"):
    fields: tuple[str, ...]


class AnnotationsReply(msgspec.Struct, frozen=True, tag="annotations"):
    annotations: tuple[Annotation, ...]


class Leased(msgspec.Struct, frozen=True, tag="leased"):
    device: str


class Evicted(msgspec.Struct, frozen=True, tag="evicted"):
    """Somebody else needs the leased GPU: the process must end at once."""

    why: str


class AlertsReply(msgspec.Struct, frozen=True, tag="alerts"):
    alerts: tuple[Alert, ...]


Reply = (
    Ok
    | Error
    | JobReply
    | JobsReply
    | CancellingReply
    | FoundReply
    | TimelineReply
    | GroupsReply
    | ForecastReply
    | SnapshotReply
    | HistoryReply
    | DetailsReply
    | FieldsReply
    | AnnotationsReply
    | AlertsReply
    | Leased
    | Evicted
)
