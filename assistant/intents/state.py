"""What a conversation is about: what `it`, `them` and `the second one` stand for."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.query.request import Order, Query
from gpudeck.language.languages import Language


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold what the last turns named. It belongs to one conversation, whose client keeps it."""

    jobs: tuple[int, ...] = ()
    """The jobs of the last answer or order, in the order in which they were shown."""
    devices: tuple[int, ...] = ()
    last: Query | None = None
    """The last query."""
    about: str = ""
    """`job` or `device`: what `it` stands for."""
    language: Language = "en"
    group: str = ""
    """The group that the last request named."""
    order: Order | None = None
    """The last order, if the last request was one."""
    earlier: tuple[int, ...] = ()
    """The GPUs of the turn before, for `which one is cooler`."""
    before: str = ""
    """The last request with its meaning, as the reader gets it (`labels.described`)."""
    planned: Order | None = None
    """The order whose effect the last answer told, which a yes proposes."""

    @property
    def empty(self) -> bool:
        """Return whether nothing was said yet."""
        return self.last is None and not self.about
