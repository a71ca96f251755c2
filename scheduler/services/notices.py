"""What the user should know, by topic, until it is so no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scheduler.protocol.errors import UserError


class Notices:
    """`changed` is called whenever there is something else to show."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._of: dict[str, str] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._of

    @property
    def words(self) -> tuple[str, ...]:
        """All of them, the newest last."""
        return tuple(self._of.values())

    def tell(self, topic: str, words: str) -> None:
        """What everybody sees from now on; empty words: nothing."""
        if words != self._of.pop(topic, ""):
            self._changed()
        if words:
            self._of[topic] = words

    @contextmanager
    def about(self, topic: str) -> Iterator[None]:
        """What the environment refuses meanwhile becomes a notice, until it works again."""
        try:
            yield
        except UserError as e:
            self.tell(topic, str(e))
        else:
            self.tell(topic, "")
