"""What a view asks for, and what comes back. Views emit requests; the feeds carry them out and deliver replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from app.assistant.session_requests import SessionReply, SessionRequest
from app.models.model_requests import ModelReply, ModelRequest

if TYPE_CHECKING:
    from app.assistant.message import Curve
    from assistant.intents.choices import Choice
    from assistant.intents.tool_call import ToolCall
    from assistant.tools.proposal import Decision, Proposal


class Configure(msgspec.Struct, frozen=True):
    changes: dict[str, str | float | bool]


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


AssistantRequest = Ask | Report | Approve | Chat | StopAnswer | UseCpu | Wake | SaveReport
Request = Configure | AssistantRequest | SessionRequest | ModelRequest


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


Reply = Accepted | Refused | Waits | Wrote | Answered | SessionReply | ModelReply


class LinkStatus(msgspec.Struct, frozen=True):
    """The connection to the daemon, as the status line tells it."""

    connected: bool
    text: str
