"""One message of a conversation, as it is shown and kept."""

from __future__ import annotations

from typing import Literal

import msgspec

from assistant.intents.choices import Choice
from assistant.intents.tool_call import ToolCall
from assistant.tools.proposal import Proposal

Author = Literal["you", "assistant"]
Stage = Literal["waiting", "writing", "done", "stopped", "failed"]
Wanted = Literal["answer", "brief", "decision", "chat"]
UNCHECKED = "free chat, not checked against facts"


class Curve(msgspec.Struct, frozen=True):
    """How a value that an answer tells went over the time that it tells of: the device's own readings, decimated."""

    title: str
    unit: str
    times: tuple[float, ...]
    """Seconds since the epoch."""
    values: tuple[float | None, ...]
    """None where nothing was read: a gap."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one of the two said."""

    author: Author
    text: str
    state: Stage = "done"
    note: str = ""
    """Why it waits, or why it failed."""
    cpu: bool = False
    """It waits for a GPU, and would go on with the CPU."""
    writer: str = ""
    facts: tuple[tuple[str, str, str], ...] = ()
    """Name, value and source of each fact the text rests on."""
    curves: tuple[Curve, ...] = ()
    report: bytes = b""
    """All of a brief, with its tables and charts, packed (see `assistant.reports.report`)."""
    tokens: int = 0
    """Tokens the model wrote; 0 for the template, and while they are not known."""
    seconds: float = 0.0
    """From the request to the answer."""
    device: str = ""
    """Where the model ran: cpu or cuda."""
    wants: Wanted = "answer"
    """What a message of yours asks for, and one of the assistant gives."""
    tool: str = ""
    """The tool that was used, with its arguments, and who found it."""
    proposal: Proposal | None = None
    """What would be done, once you allow it."""
    decision: str = ""
    """Your answer to that: once, session or never; empty until you gave one."""
    at: float = 0.0
    """When it was said, seconds since the epoch."""
    choices: tuple[Choice, ...] = ()
    """It asks back which of these you mean."""
    meant: ToolCall | None = None
    """Which of them you chose by this message of yours."""

    @property
    def pending(self) -> bool:
        """Whether it is awaited or being written."""
        return self.state in ("waiting", "writing")
