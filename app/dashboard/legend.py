"""Show which curve belongs to which device, and hide the curves of one."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.widgets import theme
from app.widgets.controls import row

_MANY = 8
"""The most devices whose names have room; of more only the numbers are shown."""


class LegendChip(QAbstractButton):
    """Show a line in the curve's colour beside the device's name."""

    def __init__(self, text: str, name: str, color: str) -> None:
        super().__init__()
        self.color = color
        self.setText(text)
        self.setCheckable(True)
        self.setChecked(True)
        self.setAccessibleName(name)
        self.setToolTip(f"Show or hide {name}")

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(self.text()) + 30, 24)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(
            QRectF(4, self.height() / 2 - 1, 12, 2),
            QColor(self.color if self.isChecked() else t.line),
        )
        painter.setPen(QColor(t.text if self.isChecked() else t.muted))
        painter.drawText(
            self.rect().adjusted(22, 0, 0, 0), int(Qt.AlignmentFlag.AlignVCenter), self.text()
        )
        if self.hasFocus():
            painter.setPen(QColor(t.accent))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))


class Legend(QWidget):
    """Show a chip a device. Emits `changed` when a device is hidden or shown."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.chips: dict[str, LegendChip] = {}
        self._layout = row(spacing=theme.XS)
        self.setLayout(self._layout)

    def show_devices(self, labels: dict[str, str], colors: dict[str, str]) -> None:
        """Show a chip for each device, if there are several."""
        wanted = labels if len(labels) > 1 else {}
        if tuple(self.chips) != tuple(wanted):
            for chip in self.chips.values():
                self._layout.removeWidget(chip)
                chip.hide()  # now, since it is deleted later
                chip.deleteLater()
            many = len(wanted) > _MANY
            self.chips = {
                device: LegendChip(text.split()[-1] if many else text, text, colors[device])
                for device, text in wanted.items()
            }
            for chip in self.chips.values():
                chip.toggled.connect(self.changed)
                self._layout.addWidget(chip)
        for device, chip in self.chips.items():
            if chip.color != colors[device]:
                chip.color = colors[device]
                chip.update()

    def hidden_devices(self) -> set[str]:
        """Return the devices whose curves are hidden."""
        return {device for device, chip in self.chips.items() if not chip.isChecked()}
