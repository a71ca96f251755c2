"""Notices: what the user should know, one text a topic, until it no longer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.errors import UserError


class NoticeBoard:
    """Hold the notices, and call `changed` whenever one is set or cleared."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._texts: dict[str, Message] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._texts

    @property
    def texts(self) -> tuple[Message, ...]:
        """Return all notices, the newest last."""
        return tuple(self._texts.values())

    def set(self, topic: str, text: Message | None) -> None:
        """Replace the notice of a topic, or clear it."""
        if text != self._texts.pop(topic, None):
            self._changed()
        if text is not None:
            self._texts[topic] = text

    @contextmanager
    def catch(self, topic: str) -> Iterator[None]:
        """Turn a UserError into a notice, which the next success clears."""
        try:
            yield
        except UserError as e:
            self.set(topic, e.message)
        else:
            self.set(topic, None)
