"""Show how full the memory of each of several devices is, as bars side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.format.values import memory
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import draw_share

_WIDTH, _BAR, MOST = 200, 4, 16
"""The least pixels of a device, those of its bar, and the most devices that are shown."""


@dataclass(frozen=True)
class DeviceUse:
    """Hold the memory of one device in bytes."""

    label: str
    used: float
    total: float


class DeviceBars(QWidget):
    """Paint a name, an amount and a bar for each device; hidden for one device or very many."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: tuple[DeviceUse, ...] = ()
        self.setAccessibleName(tr("Memory of each device"))

    def show_devices(self, devices: Sequence[DeviceUse]) -> None:
        """Show these devices."""
        self.setVisible(1 < len(devices) <= MOST)
        if tuple(devices) != self.devices:
            self.devices = tuple(devices)
            self.setAccessibleDescription(
                ", ".join(f"{one.label} {memory(one.used)}" for one in devices)
            )
            self.setFixedHeight(self._lines() * self._line())
            self.update()

    def resizeEvent(self, event: QEvent) -> None:
        self.setFixedHeight(self._lines() * self._line())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(_WIDTH), self._line())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setFont(theme.font(theme.SMALL))
        across, high = self._across(), painter.fontMetrics().height()
        wide = (self.width() + theme.L) / across - theme.L
        for at, one in enumerate(self.devices):
            line, place = divmod(at, across)
            box = QRectF(place * (wide + theme.L), line * self._line() + theme.S, wide, high)
            painter.setPen(QColor(t.muted))
            painter.drawText(box, int(Qt.AlignmentFlag.AlignLeft), one.label)
            painter.setPen(QColor(t.text))
            text = tr("{used} of {total}", used=memory(one.used), total=memory(one.total))
            painter.drawText(box, int(Qt.AlignmentFlag.AlignRight), text)
            bar = QRectF(box.left(), box.bottom() + 3, wide, theme.px(_BAR))
            draw_share(painter, bar, one.used / one.total if one.total else 0.0)

    def _across(self) -> int:
        """Return how many devices are side by side: equally many in all lines where possible."""
        most = max((self.width() + theme.L) // (theme.px(_WIDTH) + theme.L), 1)
        lines = -(-len(self.devices) // most) or 1
        return max(-(-len(self.devices) // lines), 1)

    def _lines(self) -> int:
        return -(-len(self.devices) // self._across())

    def _line(self) -> int:
        return self.fontMetrics().height() + theme.px(_BAR) + theme.M
