"""Show the rail on the left, with one button for each page."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QButtonGroup, QVBoxLayout, QWidget

from app.shell import icons
from app.widgets import theme

WIDTH = 92
_HEIGHT = 62


class RailButton(QAbstractButton):
    """Show an icon over the name of a page; the current page has the accent colour."""

    def __init__(self, name: str, shortcut: str) -> None:
        super().__init__()
        self.name = name
        self.badge = 0
        """The number of new things on the page, painted unless it is 0."""
        self.setText(name.capitalize())
        self.setCheckable(True)
        self.setToolTip(f"{name.capitalize()} ({shortcut})")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFixedSize(WIDTH, _HEIGHT)

    def show_badge(self, count: int) -> None:
        """Show how many things on the page are new."""
        if count != self.badge:
            self.badge = count
            self.setAccessibleName(f"{self.text()}, {count} new" if count else self.text())
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, _HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        color = t.accent if self.isChecked() else t.text if self.underMouse() else t.muted
        if self.isChecked():
            painter.fillRect(QRectF(0, 10, 3, _HEIGHT - 20), QColor(t.accent))
        icons.draw(painter, self.name, QRectF((WIDTH - 22) / 2, 10, 22, 22), color)
        font = self.font()
        font.setPixelSize(theme.SMALL)
        painter.setFont(font)
        painter.setPen(QColor(t.text if self.isChecked() else color))
        painter.drawText(QRectF(0, 36, WIDTH, 18), int(Qt.AlignmentFlag.AlignCenter), self.text())
        if self.badge:
            _draw_badge(painter, str(self.badge) if self.badge < 100 else "99+")
        if self.hasFocus():
            painter.setPen(QColor(t.accent))
            painter.drawRoundedRect(QRectF(6.5, 4.5, WIDTH - 13, _HEIGHT - 9), 6, 6)


def _draw_badge(painter: QPainter, text: str) -> None:
    """Draw a number at the upper right of the icon."""
    t = theme.tokens()
    painter.setFont(theme.font(theme.SMALL, strong=True))
    width = max(painter.fontMetrics().horizontalAdvance(text) + 8, 16)
    box = QRectF(WIDTH / 2 + 5, 5, width, 16)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(t.hot))
    painter.drawRoundedRect(box, 8, 8)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QColor(t.surface))
    painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), text)


class Rail(QWidget):
    """Show the buttons of all pages."""

    chosen = Signal(str)
    """The user chose the page with this name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.setFixedWidth(WIDTH)
        self.buttons = {name: RailButton(name, f"Ctrl+{i}") for i, name in enumerate(names, 1)}
        group = QButtonGroup(self)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, theme.M, 0, theme.M)
        layout.setSpacing(theme.XS)
        for made in self.buttons.values():
            group.addButton(made)
            layout.addWidget(made)
        layout.addStretch()
        group.buttonClicked.connect(self._clicked)

    def show_chosen(self, name: str) -> None:
        """Mark the button of a page."""
        self.buttons[name].setChecked(True)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.fillRect(QRectF(self.width() - 1, 0, 1, self.height()), QColor(t.line))

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.PaletteChange:
            self.update()
        super().changeEvent(event)

    def _clicked(self, made: QAbstractButton) -> None:
        if isinstance(made, RailButton):
            self.chosen.emit(made.name)
