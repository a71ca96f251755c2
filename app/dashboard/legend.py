"""Show which curve belongs to which device, and bring one device into focus."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from gpudeck.app.charts.lanes import FROM as LANES_FROM
from gpudeck.app.format.values import shortest_label
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import label, row

_PADDING, _LINE = 8, 12
"""Pixels beside the text of a chip, and the length of the line in the curve's colour."""


class LegendChip(QAbstractButton):
    """Show a device's name, with a line in the curve's colour where each has its own."""

    def __init__(self, text: str, name: str, color: str | None) -> None:
        super().__init__()
        self.color = color
        self.setText(text)
        self.setCheckable(True)
        self.setAccessibleName(name)
        self.setToolTip(tr("Show {device} in front; click again to show all equally", device=name))
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def sizeHint(self) -> QSize:
        line = _LINE + _PADDING if self.color else 0
        width = self.fontMetrics().horizontalAdvance(self.text()) + line + 2 * _PADDING
        return QSize(max(width, theme.px(26)), theme.px(24))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(QColor(t.accent if self.isChecked() or self.hasFocus() else t.line))
        if self.isChecked() or self.underMouse():
            painter.setBrush(QColor(t.accent_soft if self.isChecked() else t.surface))
        painter.drawRoundedRect(box, 6, 6)
        left = _PADDING
        if self.color:
            line = QRectF(left, self.height() / 2 - 1, _LINE, 2)
            painter.fillRect(line, QColor(self.color))
            left += _LINE + _PADDING
        painter.setPen(QColor(t.text))
        side = Qt.AlignmentFlag.AlignVCenter
        side |= Qt.AlignmentFlag.AlignLeft if self.color else Qt.AlignmentFlag.AlignHCenter
        right = 0 if self.color else -_PADDING
        painter.drawText(self.rect().adjusted(left, 0, right, 0), int(side), self.text())


class Legend(QWidget):
    """Show a chip a device. Emits `changed` when another device is in focus, or none."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.chips: dict[str, LegendChip] = {}
        self.caption = label("GPU", size="small", meaning="muted")
        self.caption.hide()
        self._layout = row(self.caption, spacing=2)
        self.setLayout(self._layout)

    @property
    def focus(self) -> str | None:
        """Return the device whose curves are in front of all others; None if all are equal."""
        return next((device for device, chip in self.chips.items() if chip.isChecked()), None)

    def show_devices(self, labels: dict[str, str], colors: dict[str, str]) -> None:
        """Show a chip for each device, if there are several."""
        wanted = labels if len(labels) > 1 else {}
        many = len(wanted) >= LANES_FROM
        self.caption.setVisible(many)
        if tuple(self.chips) != tuple(wanted):
            for chip in self.chips.values():
                self._layout.removeWidget(chip)
                chip.hide()  # now, since it is deleted later
                chip.deleteLater()
            self.chips = {
                device: LegendChip(
                    shortest_label(text) if many else text, text, None if many else colors[device]
                )
                for device, text in wanted.items()
            }
            for chip in self.chips.values():
                chip.clicked.connect(lambda _=False, chosen=chip: self._choose(chosen))
                self._layout.addWidget(chip)
        for device, chip in self.chips.items():
            color = None if many else colors[device]
            if chip.color != color:
                chip.color = color
                chip.update()

    def _choose(self, chosen: LegendChip) -> None:
        for chip in self.chips.values():
            if chip is not chosen:
                chip.setChecked(False)
        self.changed.emit()
