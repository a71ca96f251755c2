"""Requests to the assistant's process, and its replies: JSON, one message a line.

Free of torch and Qt.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gpudeck.assistant.completion import Call, Token, Wanted
from gpudeck.assistant.facts import Fact
from gpudeck.assistant.intents.choices import Choice
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Request as Meant
from gpudeck.assistant.query.request import Role
from gpudeck.assistant.query.steps import Step
from gpudeck.assistant.reports.report import Report as FullReport
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.language.languages import Language
from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.errors import UserError

When = Literal["now", "idle"]
"""Answer now, or once the devices are idle."""

DeviceChoice = Literal["auto", "cpu"]
"""auto: as the settings say, waiting for the GPU if somebody else needs it. cpu: without a wait."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Ask a question, or for something to be done."""

    text: str
    when: When = "now"
    id: str = ""
    """Made by the client; Cancel and UseCpu name it. A request that is sent again with the same id
    goes on where it was when the process ended."""
    folder: str = ""
    """The folder of a job that is submitted; empty: the user's home folder."""
    device: DeviceChoice = "auto"
    meant: Meant | None = None
    """The choice of a person who was asked what the request means."""
    state: State = State()
    """What the conversation is about; from its last answer."""
    by: str = ""
    """The program that asks in the place of a person."""


class GetProposals(msgspec.Struct, frozen=True, tag="proposals"):
    """Ask which proposals of programs wait for a person, and what became of one."""

    id: str = ""


class Approve(msgspec.Struct, frozen=True, tag="approve"):
    """Send a person's decision on a proposal. The reply is an Answer that says what was done."""

    proposal: str
    """The id of the proposal."""
    how: Decision = "once"
    env: dict[str, str] = {}
    """The environment of a job that is submitted; empty: the assistant's own."""
    token: str = ""
    """The secret of an access token that decides in the place of a person. What it does not allow
    waits on."""


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Ask for a report: on one job, or on everything between two times.

    Only a model that the settings put on a GPU waits for an idle one.
    """

    job: int | None = None
    since: float | None = None
    """Seconds since the epoch; None: the last ten minutes."""
    until: float | None = None
    """Seconds since the epoch; None: now."""
    daily: bool = False
    """It is the report on a day, and titled so."""
    id: str = ""
    device: DeviceChoice = "auto"
    language: Language | None = None
    """None: that of the settings."""


class CompletionRequest(msgspec.Struct, frozen=True, tag="complete"):
    """Ask the model alone to continue a chat or a text. What it writes is not checked.

    The reply is Chunks, then a Completion.
    """

    wanted: Wanted
    id: str = ""
    device: DeviceChoice = "auto"


SpeedEngine = Literal["own", "rwkv"]


class Benchmark(msgspec.Struct, frozen=True, tag="benchmark"):
    """Ask for the speed of a model, which replaces the loaded one until the next answer."""

    model: str
    """Its folder or file."""
    on: Literal["cpu", "cuda"] = "cpu"
    id: str = ""
    engine: SpeedEngine = "own"
    """With rwkv, the package of that name is timed beside our engine."""
    device: DeviceChoice = "auto"


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a request."""

    id: str


class UseCpu(msgspec.Struct, frozen=True, tag="use cpu"):
    """Make a request go on with the CPU instead of waiting."""

    id: str


class Status(msgspec.Struct, frozen=True, tag="status"):
    """Ask what the assistant does now."""


Work = Ask | Report | CompletionRequest | Benchmark
Request = Work | Approve | GetProposals | Cancel | UseCpu | Status


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """Say what a request waits for or does; repeated every second as a sign of life."""

    reason: Message
    """Such as `loading the model`."""
    cpu: bool = False
    """UseCpu would end the wait."""
    device: str = ""
    """The device that the model runs on, cpu or cuda; empty while it is not known."""


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """Carry the next piece of a text; all pieces together are the text."""

    text: str
    tokens: tuple[Token, ...] = ()
    """If their probabilities were asked for."""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """Answer a question, a report request or a decision."""

    text: str
    """Markdown."""
    writer: str
    """Who wrote the text: `template` or `model NAME`."""
    role: Role
    facts: tuple[Fact, ...] = ()
    seconds: float = 0.0
    """From the request to the answer, with all waits."""
    tokens: int = 0
    """Tokens that the model wrote, with those of refused texts; 0 for the template."""
    report: FullReport | None = None
    """For the role report: all of it, with tables, charts and sources; it begins with `text`."""
    call: Meant | None = None
    """The query or order that the request was read as; None if a report or decision was sent."""
    routed: str = ""
    """Who read it: `rules` or `model NAME`."""
    proposal: Proposal | None = None
    """The action that waits for a person's approval."""
    device: str = ""
    """The device that the model ran on, cpu or cuda; empty for the template."""
    state: State | None = None
    """What the conversation is about now; None: as before."""
    choices: tuple[Choice, ...] = ()
    """The text asks which of these is meant: ask again with `meant`."""
    code: str = ""
    """A folder or file of code whose attention can be accelerated; the window offers to open it."""
    steps: tuple[Step, ...] = ()
    """What helps with what the answer tells, or shows more; the window offers them as buttons."""


class Completion(msgspec.Struct, frozen=True, tag="completed"):
    """End the text of a CompletionRequest."""

    model: str
    device: str
    """The device that the model ran on, cpu or cuda."""
    reason: Literal["stop", "length"]
    """It ended by itself or at a stop text, or it reached the limit."""
    prompt_tokens: int
    tokens: int
    seconds: float
    cached_tokens: int = 0
    """Tokens of the prompt that needed no computing."""
    accepted_tokens: int = 0
    """Tokens that speculation proposed, and the model chose."""
    calls: tuple[Call, ...] = ()
    """Functions that the model asks a program to call."""


class TokenRate(msgspec.Struct, frozen=True):
    """Hold the median, lowest and highest tokens per second of some rounds."""

    median: float
    low: float
    high: float
    rounds: int


class PackageSpeed(msgspec.Struct, frozen=True):
    """Hold the speed of another engine on the same model and device."""

    name: str
    """The package with its version."""
    strategy: str
    """Its device and precision, as it calls them."""
    decode: TokenRate
    prefill: TokenRate


class ModelSpeed(msgspec.Struct, frozen=True, tag="speed"):
    """Hold the result of a Benchmark."""

    model: str
    device: str
    parameters: int
    loaded: float
    """Seconds that loading took; near 0 if it was loaded already."""
    decode: TokenRate
    prefill: TokenRate
    beside: PackageSpeed | None = None
    """The other engine that was asked for."""


class Evicted(msgspec.Struct, frozen=True, tag="left"):
    """Say that the process ends because somebody else needs the GPU.

    The client asks again with the same id, and the text goes on where it was.
    """

    reason: Message


class AssistantState(msgspec.Struct, frozen=True, tag="state"):
    """Say what the assistant does now."""

    answering: int
    """Requests that are worked on."""
    waiting: int
    """Requests that wait for a benchmark, or a benchmark that waits for the others."""
    model: str = ""
    """The loaded model; empty if there is none."""
    error: Message = ""
    """The reason why the configured model could not be loaded."""


class Proposals(msgspec.Struct, frozen=True, tag="proposed"):
    """List the proposals of programs that wait for a person."""

    waiting: tuple[Proposal, ...] = ()
    outcome: str = ""
    """What became of the one that was asked for; empty while it waits, or if it has expired."""


class Acknowledged(msgspec.Struct, frozen=True, tag="ok"):
    """Reply to Cancel and UseCpu."""

    found: bool = True
    """The request that they named exists."""


class Failed(msgspec.Struct, frozen=True, tag="error"):
    """Say why a request failed."""

    message: Message
    kind: Literal["user", "missing", "too long", "refused", "cancelled", "bug"] = "user"


class PromptTooLong(UserError):
    """Signal that a program's prompt has too many tokens."""


class WantedRefused(UserError):
    """Signal that the model cannot answer such a request, for example with this grammar."""


Event = Waiting | Chunk
Result = Answer | Completion | ModelSpeed
"""The last reply to a piece of work."""
Reply = Waiting | Chunk | Result | Evicted | AssistantState | Proposals | Acknowledged | Failed
