"""Write the text of one answer by the model, or by the template if the model cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from assistant.facts import Fact
from assistant.host.context import RequestContext
from assistant.idle import Cancelled
from assistant.messages import Answer
from assistant.tools.tool import ToolResult
from assistant.writing.writer import Written, by_template, write
from scheduler.protocol.errors import UserError
from scheduler.protocol.settings import Settings

if TYPE_CHECKING:
    from assistant.engine.engine import EngineAuthor


class AnswerWriter:
    """Write one answer, and record which model wrote it and on which device."""

    def __init__(self, context: RequestContext, settings: Settings) -> None:
        self._residency, self._channel, self._settings = (
            context.residency,
            context.channel,
            settings,
        )
        self._author: EngineAuthor | None = None
        if not settings.model:
            self._residency.drop()

    def available_model(self) -> EngineAuthor | None:
        """Return the model if it needs no wait for the GPU; the request may not need it at all.

        Raises Cancelled.
        """
        if self._settings.model and self._residency.is_available(self._settings, self._channel):
            try:
                self._author = self._residency.author(self._settings, self._channel)
            except Cancelled:
                raise
            except UserError:
                pass  # the answer will say why the template wrote it
        return self._author

    def write(
        self, facts: tuple[Fact, ...], question: str | None = None, result: ToolResult | None = None
    ) -> tuple[Written, tuple[Fact, ...]]:
        """Write a brief, or the answer to a question, and return it with the facts that it uses.

        If an earlier process has begun the text, these are the facts that it began with. Waits for
        the GPU if the model needs one. Raises Cancelled.
        """
        render = result.render if result is not None else None
        if not self._settings.model:
            return write(facts, question, sections=render), facts
        facts = self._channel.keep(facts, tuple[Fact, ...])
        names = {fact.name for fact in facts}
        required = [name for name in result.required if name in names] if result else []
        try:
            author = self._author or self._residency.author(self._settings, self._channel)
            self._author = author
            progress = self._channel.emit_waiting
            return write(facts, question, author, progress, render, required), facts
        except Cancelled:
            raise
        except UserError as e:
            return by_template(facts, question, str(e), render), facts

    def sign(self, answer: Answer, seconds: float) -> Answer:
        """Return the answer with its duration, and what the model did for it."""
        if self._author is None:
            return msgspec.structs.replace(answer, seconds=seconds)
        return msgspec.structs.replace(
            answer,
            seconds=seconds,
            tokens=self._author.tokens,
            device=self._author.device,
            by=self._author.by,
        )
