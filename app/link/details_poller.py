"""Read the parts and processes of the devices, which is costly, while a page shows them."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.link.link import Link
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.verbs.devices import GetDetails

_EVERY_MS = 2000
_SECOND_MS = 700
"""The pause before the second reading, from which on the loads of processes are known."""


class DetailsPoller(QTimer):
    """Reads the details while `page` is shown, with one request at a time."""

    read = Signal(object)
    """Carries a tuple of `Detail`, one for each device."""
    failed = Signal(str)

    def __init__(self, page: QWidget, link: Link) -> None:
        super().__init__(page)
        self._link = link
        self._waits = False
        self.setInterval(_EVERY_MS)
        self.timeout.connect(self.request)
        self.second = QTimer(self)
        self.second.setSingleShot(True)
        self.second.setInterval(_SECOND_MS)
        self.second.timeout.connect(self.request)
        page.installEventFilter(self)

    def request(self) -> None:
        """Read the details now, unless a request is on its way."""
        if not self._waits:
            self._waits = True
            self._link.send(self, GetDetails(), self._take, self._fail, background=True)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show:
            self.request()
            self.second.start()
            self.start()
        elif event.type() == QEvent.Type.Hide:
            self.stop()
            self.second.stop()
        return False

    def _take(self, details: tuple[Detail, ...]) -> None:
        self._waits = False
        self.read.emit(details)

    def _fail(self, message: str) -> None:
        self._waits = False
        self.failed.emit(message)
