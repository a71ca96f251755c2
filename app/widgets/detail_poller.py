"""Asks for what is too costly to be read all the time, while a page that shows it is seen."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.link.requests import Inspect, Inspected, Refused, Reply

_EVERY_MS = 2000


class DetailPoller(QTimer):
    """Emits `wanted` with an `Inspect` at once and every two seconds while `page` is shown; one at a time."""

    wanted = Signal(object)

    def __init__(self, page: QWidget) -> None:
        super().__init__(page)
        self._waits = False
        self.setInterval(_EVERY_MS)
        self.timeout.connect(self.ask)
        page.installEventFilter(self)

    def ask(self) -> None:
        if not self._waits:
            self._waits = True
            self.wanted.emit(Inspect())

    def heard(self, reply: Reply) -> None:
        """Tell it of every reply."""
        if isinstance(reply, Inspected) or (
            isinstance(reply, Refused) and isinstance(reply.request, Inspect)
        ):
            self._waits = False

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show:
            self.ask()
            self.start()
        elif event.type() == QEvent.Type.Hide:
            self.stop()
        return False
