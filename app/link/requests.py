"""What a view asks for, and what comes back. Views emit requests; the feeds carry them out and deliver replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from app.assistant.session_requests import SessionReply, SessionRequest
from app.models.model_requests import ModelReply, ModelRequest
from scheduler.protocol.job_options import JobOptions
from scheduler.protocol.jobs import Event, Forecast, Job
from scheduler.protocol.search import Search

if TYPE_CHECKING:
    from app.assistant.message import Curve
    from assistant.intents.choices import Choice
    from assistant.intents.tool_call import ToolCall
    from assistant.tools.proposal import Decision, Proposal


class Submit(msgspec.Struct, frozen=True):
    """Queue a command, or one job of it for each index of `array`."""

    argv: tuple[str, ...]
    options: JobOptions
    """Folder and environment are the window's own where they are not named."""
    array: tuple[int, ...] = ()


class Foresee(msgspec.Struct, frozen=True):
    """Tell where and when it would start, were it queued now."""

    submit: Submit


class Repeat(msgspec.Struct, frozen=True):
    """Queue the same command once more, with all that it needed, in the window's environment; not after other jobs, and not held."""

    job: int


class Hold(msgspec.Struct, frozen=True):
    """Keep a job that waits from being started, or let it go."""

    job: int
    held: bool


class Move(msgspec.Struct, frozen=True):
    """Let a job that waits stand right before another, or right after it."""

    job: int
    beside: int
    after: bool


class Cancel(msgspec.Struct, frozen=True):
    job: int


class CancelMany(msgspec.Struct, frozen=True):
    """All of them with one order; those that have ended meanwhile are as they were."""

    jobs: tuple[int, ...]


class Pause(msgspec.Struct, frozen=True):
    paused: bool


class Configure(msgspec.Struct, frozen=True):
    changes: dict[str, str | float | bool]


class Tail(msgspec.Struct, frozen=True):
    """Read a job's log from `offset` on; None: the last part of it."""

    job: int
    offset: int | None = None


class Timeline(msgspec.Struct, frozen=True):
    """Read what a job went through."""

    job: int


class Find(msgspec.Struct, frozen=True):
    """Search all jobs: a page of those with numbers below `before`."""

    search: Search
    before: int


class Fetch(msgspec.Struct, frozen=True):
    """Get a job whole: the snapshots leave out what is large of its result."""

    job: int


class Save(msgspec.Struct, frozen=True):
    """Write a job's result to a file, as its name's ending says (see `app.workloads.result_export`)."""

    job: int
    file: str


class WriteReport(msgspec.Struct, frozen=True):
    """Have the report on a job written now, to a file, as its name's ending says (see `app.report.file`)."""

    job: int
    file: str


class SaveReport(msgspec.Struct, frozen=True):
    """Write a report that is there already to a file."""

    report: bytes
    """Packed (see `assistant.reports.report`)."""
    file: str


class Ask(msgspec.Struct, frozen=True):
    """A question to the assistant. `id` names its answer; `meant`: what was chosen where it asked back."""

    text: str
    id: int = 0
    meant: ToolCall | None = None


class Report(msgspec.Struct, frozen=True):
    """A brief of the last ten minutes, written once the devices are idle."""

    id: int = 0


class Approve(msgspec.Struct, frozen=True):
    """A person's word on what the assistant proposed. `id` names the answer that says what was done."""

    proposal: Proposal
    how: Decision
    id: int = 0


class Chat(msgspec.Struct, frozen=True):
    """Something said to a large model; what it answers is not checked. `turns`: yours and its in turn, yours the first and the last."""

    turns: tuple[str, ...]
    id: int = 0


class UseCpu(msgspec.Struct, frozen=True):
    """The answer that is awaited is to wait for no GPU, and to be written on the CPU."""


class Wake(msgspec.Struct, frozen=True):
    """Have the assistant load its model: somebody is about to ask."""


class StopAnswer(msgspec.Struct, frozen=True):
    """End the answer that is being written."""


AssistantRequest = (
    Ask | Report | Approve | Chat | StopAnswer | UseCpu | Wake | WriteReport | SaveReport
)
Request = (
    Submit
    | Foresee
    | Repeat
    | Hold
    | Move
    | Cancel
    | CancelMany
    | Pause
    | Configure
    | Tail
    | Timeline
    | Find
    | Fetch
    | Save
    | AssistantRequest
    | SessionRequest
    | ModelRequest
)


class Submitted(msgspec.Struct, frozen=True):
    job: Job


class Foretold(msgspec.Struct, frozen=True):
    request: Foresee
    forecast: Forecast


class Tailed(msgspec.Struct, frozen=True):
    job: int
    start: int
    """Where in the log `data` begins, in bytes."""
    data: bytes
    end: int
    """Where to read on: farther than behind `data` where output was dropped."""


class Told(msgspec.Struct, frozen=True):
    """A job's timeline, oldest first."""

    job: int
    events: tuple[Event, ...]


class Found(msgspec.Struct, frozen=True):
    """A page, newest first; short only where there are no more."""

    request: Find
    jobs: tuple[Job, ...]
    before: int | None
    """Where the next page begins; None: there is none."""


class Fetched(msgspec.Struct, frozen=True):
    job: Job


class Accepted(msgspec.Struct, frozen=True):
    """A request that has nothing to give back was carried out."""

    request: Request


class Refused(msgspec.Struct, frozen=True):
    """A request could not be carried out; `message` is one line that says what to do."""

    request: Request
    message: str


class Waits(msgspec.Struct, frozen=True):
    """The assistant waits, and why."""

    reason: str
    id: int = 0
    cpu: bool = False
    """It would go on at once with the CPU, if told so."""


class Wrote(msgspec.Struct, frozen=True):
    """A piece of the answer."""

    text: str
    id: int = 0


class Answered(msgspec.Struct, frozen=True):
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
    choices: tuple[Choice, ...] = ()
    """It asks back which of these is meant."""


Reply = (
    Submitted
    | Foretold
    | Tailed
    | Told
    | Found
    | Fetched
    | Accepted
    | Refused
    | Waits
    | Wrote
    | Answered
    | SessionReply
    | ModelReply
)


class LinkStatus(msgspec.Struct, frozen=True):
    """The connection to the daemon, as the status line tells it."""

    connected: bool
    text: str
