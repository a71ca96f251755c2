"""Keep the processes of the time that the user has chosen, and read them from time to time."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, Signal

from gpudeck.app.link.link import Link
from gpudeck.app.processes.past import RENEW_S, ReadPast
from gpudeck.scheduler.protocol.devices import Detail


class PastReader(QObject):
    """Read the processes since a moment, one chosen time after the other."""

    read = Signal()

    def __init__(self, owner: QObject, link: Link) -> None:
        super().__init__(owner)
        self._link = link
        self._asked: ReadPast | None = None
        self.details: tuple[Detail, ...] | None = None
        """The processes of the chosen time; None while they are not read."""

    def forget(self) -> None:
        """Drop what was read: another time is chosen. A reply that is on its way is ignored."""
        self._asked = self.details = None

    def request(self, since: float) -> None:
        """Request the processes since a moment, again once they are some seconds old."""
        if self._asked is None or since - self._asked.since >= RENEW_S:
            self._asked = ReadPast(since)
            self._link.send(self, self._asked, partial(self._take, self._asked))

    def _take(self, asked: ReadPast, details: tuple[Detail, ...]) -> None:
        if asked is self._asked:
            self.details = details
            self.read.emit()
