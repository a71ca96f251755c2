"""What a view asks for, and what comes back. Views emit requests; the feeds carry them out and deliver replies."""

from __future__ import annotations

from dataclasses import dataclass

from app.models.cleaning_requests import CleaningReply, CleaningRequest
from app.models.message import Curve
from app.models.model_requests import ModelReply, ModelRequest
from app.models.past import Page, Remember
from app.models.session_requests import SessionReply, SessionRequest
from assistant.tools.proposal import How, Proposal
from scheduler.devices.model import Detail, Device, Process
from scheduler.jobs import Event, Forecast, Job
from scheduler.search import Search
from scheduler.settings import Settings
from scheduler.telemetry.snapshot import Alert
from scheduler.wishes import Wishes


@dataclass(frozen=True)
class Submit:
    """Queue a command, or one job of it for each index of `array`."""

    argv: tuple[str, ...]
    wishes: Wishes
    """Folder and environment are the window's own where they are not named."""
    array: tuple[int, ...] = ()


@dataclass(frozen=True)
class Foresee:
    """Tell where and when it would start, were it queued now."""

    submit: Submit


@dataclass(frozen=True)
class Repeat:
    """Queue the same command once more, with all that it needed, in the window's environment; not after other jobs, and not held."""

    job: int


@dataclass(frozen=True)
class Hold:
    """Keep a job that waits from being started, or let it go."""

    job: int
    held: bool


@dataclass(frozen=True)
class Move:
    """Let a job that waits stand right before another, or right after it."""

    job: int
    beside: int
    after: bool


@dataclass(frozen=True)
class Cancel:
    job: int


@dataclass(frozen=True)
class Pause:
    paused: bool


@dataclass(frozen=True)
class Configure:
    changes: dict[str, str | float | bool]


@dataclass(frozen=True)
class Tail:
    """Read a job's log from `offset` on; None: the last part of it."""

    job: int
    offset: int | None = None


@dataclass(frozen=True)
class Timeline:
    """Read what a job went through."""

    job: int


@dataclass(frozen=True)
class Find:
    """Search all jobs: a page of those with numbers below `before`."""

    search: Search
    before: int


@dataclass(frozen=True)
class Fetch:
    """Get a job whole: the snapshots leave out what is large of its result."""

    job: int


@dataclass(frozen=True)
class Save:
    """Write a job's result to a file, as its name's ending says (see `app.models.export`)."""

    job: int
    file: str


@dataclass(frozen=True)
class WriteReport:
    """Have the report on a job written now, to a file, as its name's ending says (see `app.report_file`)."""

    job: int
    file: str


@dataclass(frozen=True)
class SaveReport:
    """Write a report that is there already to a file."""

    report: bytes
    """Packed (see `assistant.reports.report`)."""
    file: str


@dataclass(frozen=True)
class AlertLog:
    """Get the newest alerts, also those that are over."""


@dataclass(frozen=True)
class Acknowledge:
    """Somebody has seen an alert."""

    alert: int


@dataclass(frozen=True)
class Inspect:
    """Read all about links, parts and processes of the devices."""


@dataclass(frozen=True)
class Kill:
    """End a process that uses a GPU; a person was asked."""

    process: Process


@dataclass(frozen=True)
class Ask:
    """A question to the assistant. `id` names its answer."""

    text: str
    id: int = 0


@dataclass(frozen=True)
class Report:
    """A brief of the last ten minutes, written once the devices are idle."""

    id: int = 0


@dataclass(frozen=True)
class Approve:
    """A person's word on what the assistant proposed. `id` names the answer that says what was done."""

    proposal: Proposal
    how: How
    id: int = 0


@dataclass(frozen=True)
class Chat:
    """Something said to a large model; what it answers is not checked. `turns`: yours and its in turn, yours the first and the last."""

    turns: tuple[str, ...]
    id: int = 0


@dataclass(frozen=True)
class UseCpu:
    """The answer that is awaited is to wait for no GPU, and to be written on the CPU."""


@dataclass(frozen=True)
class Wake:
    """Have the assistant load its model: somebody is about to ask."""


@dataclass(frozen=True)
class StopAnswer:
    """End the answer that is being written."""


@dataclass(frozen=True)
class Export:
    """Write the history of devices between two times to a file, as its name's ending says (see `app.models.past_export`)."""

    devices: tuple[Device, ...]
    since: float
    until: float
    file: str


Request = (
    Submit
    | Foresee
    | Repeat
    | Hold
    | Move
    | Cancel
    | Pause
    | Configure
    | Tail
    | Timeline
    | Find
    | Fetch
    | Save
    | WriteReport
    | SaveReport
    | AlertLog
    | Remember
    | Export
    | Acknowledge
    | Inspect
    | Kill
    | Ask
    | Approve
    | Report
    | Chat
    | UseCpu
    | StopAnswer
    | Wake
    | SessionRequest
    | ModelRequest
    | CleaningRequest
)


@dataclass(frozen=True)
class Submitted:
    job: Job


@dataclass(frozen=True)
class Foretold:
    request: Foresee
    forecast: Forecast


@dataclass(frozen=True)
class Configured:
    settings: Settings


@dataclass(frozen=True)
class Tailed:
    job: int
    start: int
    """Where in the log `data` begins, in bytes."""
    data: bytes
    end: int
    """Where to read on: farther than behind `data` where output was dropped."""


@dataclass(frozen=True)
class Told:
    """A job's timeline, oldest first."""

    job: int
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Found:
    """A page, newest first; short only where there are no more."""

    request: Find
    jobs: tuple[Job, ...]
    before: int | None
    """Where the next page begins; None: there is none."""


@dataclass(frozen=True)
class Fetched:
    job: Job


@dataclass(frozen=True)
class Logged:
    """The newest alerts, the newest first."""

    alerts: tuple[Alert, ...]


@dataclass(frozen=True)
class Inspected:
    """What was read of each device just now."""

    details: tuple[Detail, ...]


@dataclass(frozen=True)
class Accepted:
    """A request that has nothing to give back was carried out."""

    request: Request


@dataclass(frozen=True)
class Refused:
    """A request could not be carried out; `message` is one line that says what to do."""

    request: Request
    message: str


@dataclass(frozen=True)
class Waits:
    """The assistant waits, and why."""

    reason: str
    id: int = 0
    cpu: bool = False
    """It would go on at once with the CPU, if told so."""


@dataclass(frozen=True)
class Wrote:
    """A piece of the answer."""

    text: str
    id: int = 0


@dataclass(frozen=True)
class Answered:
    """The finished answer: its text, who wrote it ("template", "model NAME") and the facts it rests on (what, value, source)."""

    text: str
    writer: str
    facts: tuple[tuple[str, str, str], ...] = ()
    id: int = 0
    curves: tuple[Curve, ...] = ()
    tokens: int = 0
    """Tokens the model wrote."""
    seconds: float = 0.0
    """From the request to the answer."""
    report: bytes = b""
    """Of a brief: all of it, packed, to be saved."""
    tool: str = ""
    """The tool that was used, with its arguments, and who found it."""
    proposal: Proposal | None = None
    """What would be done, once a person allows it."""
    device: str = ""
    """Where the model ran: cpu or cuda; empty for the template."""
    note: str = ""
    """What is to be known of it, such as that it was not checked."""


@dataclass(frozen=True)
class Remembered:
    page: Page


Reply = (
    Remembered
    | Submitted
    | Foretold
    | Configured
    | Tailed
    | Told
    | Found
    | Fetched
    | Logged
    | Inspected
    | Accepted
    | Refused
    | Waits
    | Wrote
    | Answered
    | SessionReply
    | ModelReply
    | CleaningReply
)


@dataclass(frozen=True)
class Link:
    """The connection to the daemon, as the status line tells it."""

    connected: bool
    text: str
