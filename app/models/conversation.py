"""The conversation with the assistant: what was said, by whom, and how far the answer is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from app.models.requests import Answered

MOST = 200
"""Messages kept; older ones go."""


@dataclass(frozen=True)
class Message:
    author: Literal["you", "assistant"]
    text: str
    state: Literal["waiting", "writing", "done", "stopped", "failed"] = "done"
    note: str = ""
    """Why it waits, or why it failed."""
    writer: str = ""
    facts: tuple[tuple[str, str, str], ...] = ()
    """Name, value and source of each fact the text rests on."""


class Conversation:
    """Messages in order; at most the last one is being written."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._number = 0

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self.messages) and self.messages[-1].state in ("waiting", "writing")

    def ask(self, text: str) -> int:
        """The user's words, and room for the answer, whose number is returned. Raises ValueError while another answer is awaited."""
        if self.busy:
            raise ValueError("one answer at a time: stop the one that is being written first")
        self.messages += [Message("you", text), Message("assistant", "", "waiting", "asks the assistant")]
        del self.messages[:-MOST]
        self._number += 1
        return self._number

    def waits(self, reason: str, number: int) -> None:
        self._change(number, state="waiting", note=reason)

    def wrote(self, text: str, number: int) -> None:
        self._change(number, state="writing", note="", text=self.messages[-1].text + text)

    def answered(self, answer: Answered) -> None:
        self._change(answer.id, state="done", note="", text=answer.text, writer=answer.writer, facts=answer.facts)

    def stopped(self) -> None:
        self._change(self._number, state="stopped", note="stopped")

    def failed(self, reason: str, number: int) -> None:
        self._change(number, state="failed", note=reason)

    def _change(self, number: int, **changes: object) -> None:
        """What comes after Stop, for an answer nobody waits for any more, is dropped."""
        if self.busy and number == self._number:
            self.messages[-1] = replace(self.messages[-1], **changes)  # type: ignore[arg-type]
