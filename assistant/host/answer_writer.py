"""Write the text of a brief by a model that is able to, or by the template."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.host.context import RequestContext
from gpudeck.assistant.host_protocol import Answer
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.library.describe import describe
from gpudeck.assistant.writing.writer import Written, by_template, write
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings

if TYPE_CHECKING:
    from gpudeck.assistant.engine.author import EngineAuthor


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

    def write(self, facts: tuple[Fact, ...]) -> tuple[Written, tuple[Fact, ...]]:
        """Write a brief, and return it with the facts that it uses.

        If an earlier process has begun the text, these are the facts that it began with. Waits for
        the GPU if the model needs one. Raises Cancelled.
        """
        model = self._settings.model
        if not model:
            return write(facts), facts
        described = describe(model)
        if described.problem:
            return by_template(facts, str(described.problem)), facts
        if not described.able:
            return write(facts), facts
        facts = self._channel.keep(facts, tuple[Fact, ...])
        try:
            self._author = self._residency.author(self._settings, self._channel)
            return write(facts, self._author, self._channel.emit_waiting), facts
        except Cancelled:
            raise
        except UserError as e:
            return by_template(facts, str(e)), facts

    def sign(self, answer: Answer, seconds: float) -> Answer:
        """Return the answer with its duration, and what the model did for it."""
        if self._author is None:
            return msgspec.structs.replace(answer, seconds=seconds)
        return msgspec.structs.replace(
            answer,
            seconds=seconds,
            tokens=self._author.tokens,
            device=self._author.device,
        )
