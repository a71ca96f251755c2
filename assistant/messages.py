"""What goes over the assistant's door: JSON, one message a line. Free of torch and Qt."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from assistant.facts import Fact
from assistant.intents.choices import Choice
from assistant.intents.roles import Role
from assistant.intents.tool_call import ToolCall
from assistant.reports.report import Report as Written
from assistant.tools.proposal import Decision, Proposal
from scheduler.protocol.errors import UserError

MAX_COMPLETION_TOKENS = 8192
"""Tokens that one completion may ask for."""
MAX_PROMPT_TOKENS = 8192
"""Tokens of a program's prompt. A person who asks meanwhile waits until they are read: 2.4 s by the shipped model on one core of a CPU."""

When = Literal["now", "idle"]
"""Write now, or once the devices are idle."""

DeviceChoice = Literal["auto", "cpu"]
"""auto: where the settings have the model run, waiting for that GPU where somebody else needs it. cpu: on the CPU, without a wait."""


def slow_note(by: str) -> str:
    """What is to be said of what computes, where it is not the fastest there is."""
    return " (torch, until compiled for this machine)" if by == "torch" else ""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    text: str
    when: When = "now"
    id: str = ""
    """Made by the client; Cancel and UseCpu name it. What is asked again by the same id goes on where it was when its process ended."""
    folder: str = ""
    """Where a job runs that is submitted so; empty: the user's home folder."""
    device: DeviceChoice = "auto"
    meant: ToolCall | None = None
    """What the person chose where they were asked back; None: it is to be found out."""


class Approve(msgspec.Struct, frozen=True, tag="approve"):
    """A person's word on a proposal. Answered by an Answer that says what was done."""

    proposal: str
    """Its id."""
    how: Decision = "once"
    env: dict[str, str] = {}
    """Environment of a job that is submitted so; empty: the assistant's own."""


class Report(msgspec.Struct, frozen=True, tag="report"):
    """A brief: of one job, or of all that happened since a time (seconds since the epoch; None: the last ten minutes)."""

    job: int | None = None
    since: float | None = None
    daily: bool = False
    """It is the report on a day, and called so."""
    when: When = "idle"
    id: str = ""
    device: DeviceChoice = "auto"


class CompletionRequest(msgspec.Struct, frozen=True, tag="complete"):
    """Text that follows `prompt`, by the model alone: nothing in it is checked. The pieces come as Chunks, then Completion."""

    prompt: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_COMPLETION_TOKENS)] = 256
    """Tokens at most."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    """0: greedy."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    seed: int = 0
    stop: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(max_length=16)
    ] = ()
    """The text ends before the first of these."""
    id: str = ""
    device: DeviceChoice = "auto"
    program: bool = False
    """Another program asks, not the person, whose requests go before it; of its prompt no more than MAX_PROMPT_TOKENS tokens are read."""


class Benchmark(msgspec.Struct, frozen=True, tag="benchmark"):
    """How fast a model is. It is loaded in place of the one in use, which is loaded again for the next answer."""

    model: str
    """Its folder or file."""
    on: Literal["cpu", "cuda"] = "cpu"
    id: str = ""
    device: DeviceChoice = "auto"


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    id: str


class UseCpu(msgspec.Struct, frozen=True, tag="use cpu"):
    """The request is to wait no more, and to go on with the CPU."""

    id: str


class Status(msgspec.Struct, frozen=True, tag="status"):
    pass


Work = Ask | Report | CompletionRequest | Benchmark
Request = Work | Approve | Cancel | UseCpu | Status


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """What the answer waits for, or what is being done; said again every second as a sign of life."""

    reason: str
    cpu: bool = False
    """Whether it would go on at once with the CPU, if UseCpu said so."""
    device: str = ""
    """Where the model runs, cpu or cuda; empty while that is open."""


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """The next piece of the text; all of them together are the answer's text."""

    text: str


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    text: str
    """Markdown."""
    writer: str
    """`template` or `model NAME`: who wrote the text."""
    role: Role
    facts: tuple[Fact, ...] = ()
    seconds: float = 0.0
    """From the request to the answer, waiting included."""
    tokens: int = 0
    """Tokens the model wrote, those of refused texts included; 0 for the template."""
    report: Written | None = None
    """Of the role report: all of it, with tables, charts and sources; its first words are `text`."""
    call: ToolCall | None = None
    """The tool that the request was found to need, with its arguments; None where it was named outright."""
    routed: str = ""
    """Who found it: `rules` or `model NAME`."""
    proposal: Proposal | None = None
    """What would be done once a person approves it. Nothing was done yet."""
    device: str = ""
    """Where the model ran: cpu or cuda; empty for the template."""
    by: str = ""
    """What computed it there: compiled, torch (while a new machine's code is compiled), triton; empty for the template."""
    choices: tuple[Choice, ...] = ()
    """The text asks back which of these is meant: ask again with `meant`. Nothing was looked up yet."""

    @property
    def where(self) -> str:
        """In words: cpu (torch, until compiled for this machine)."""
        return self.device + slow_note(self.by)


class Completion(msgspec.Struct, frozen=True, tag="completed"):
    model: str
    device: str
    """Where the model ran: cpu or cuda."""
    by: str
    """What computed it there, as in Answer."""
    reason: Literal["stop", "length"]
    """It came to an end or to a stop text, or to the limit."""
    prompt_tokens: int
    tokens: int
    seconds: float


class TokenRate(msgspec.Struct, frozen=True):
    """Tokens a second: the median of some rounds, the lowest and the highest."""

    median: float
    low: float
    high: float
    rounds: int


class ModelSpeed(msgspec.Struct, frozen=True, tag="speed"):
    """What a benchmark found."""

    model: str
    device: str
    parameters: int
    loaded: float
    """Seconds to load it; near 0 where it was loaded already."""
    decode: TokenRate
    prefill: TokenRate


class Left(msgspec.Struct, frozen=True, tag="left"):
    """Somebody else needs the GPU, and the process ends. Ask again by the same id: the text goes on where it was."""

    reason: str


class State(msgspec.Struct, frozen=True, tag="state"):
    answering: bool
    waiting: int
    """Requests that wait for the one being answered."""
    model: str = ""
    """The model that is loaded, empty where none is."""
    error: str = ""
    """Why the configured model could not be loaded."""


class Ok(msgspec.Struct, frozen=True, tag="ok"):
    found: bool = True
    """Whether there was such a request."""


class Error(msgspec.Struct, frozen=True, tag="error"):
    message: str
    kind: Literal["user", "missing", "too long", "cancelled", "bug"] = "user"


class PromptTooLong(UserError):
    """A program's prompt has more tokens than are read."""


Event = Waiting | Chunk
Done = Answer | Completion | ModelSpeed
"""The last word on a piece of work."""
Reply = Waiting | Chunk | Done | Left | State | Ok | Error
