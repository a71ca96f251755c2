"""A small strip that stays on top of all windows: a line a device."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.strip.summary import Brief, Row
from app.widgets import theme

_TITLE, _COLUMNS, _BAR = 62, (52, 76, 52, 52), 60
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


class CompactStrip(QWidget):
    """Drag it anywhere; Esc closes it; a double click, or Return, emits `opened`. Emits `closed` when it goes."""

    opened = Signal()
    closed = Signal()

    def __init__(self) -> None:
        super().__init__(
            None,
            Qt.WindowType.Tool
            | Qt.WindowType.FramelessWindowHint
            | Qt.WindowType.WindowStaysOnTopHint,
        )
        self.setAttribute(Qt.WidgetAttribute.WA_QuitOnClose, on=False)
        self.setWindowTitle("GPU Deck")
        self.setAccessibleName("GPU Deck, compact")
        self.setToolTip("Drag to move, double click for the window, Esc to close")
        self.brief: Brief | None = None

    def show_brief(self, brief: Brief) -> None:
        """Nothing is painted while it is hidden."""
        if brief == self.brief:
            return
        self.brief = brief
        self.setAccessibleDescription(brief.text)
        if self.size() != self.sizeHint():
            self.setFixedSize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        lines = (len(self.brief.rows) + bool(self.brief.more) if self.brief else 0) or 1
        return QSize(
            _TITLE + _BAR + sum(_COLUMNS) + 2 * theme.M, lines * self._line() + 2 * theme.S
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.hot if self.brief and self.brief.alarm else t.line))
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.setFont(theme.font(theme.SMALL))
        top = float(theme.S)
        for row in self.brief.rows if self.brief else ():
            self._draw(painter, row, top)
            top += self._line()
        if self.brief is None or self.brief.more or not self.brief.rows:
            painter.setPen(QColor(t.muted))
            words = (
                f"and {self.brief.more} more"
                if self.brief and self.brief.more
                else "waits for a reading"
            )
            painter.drawText(QRectF(theme.M, top, self.width(), self._line()), _LEFT, words)

    def _draw(self, painter: QPainter, row: Row, top: float) -> None:
        t, line = theme.tokens(), self._line()
        painter.setPen(QColor(t.muted))
        painter.drawText(QRectF(theme.M, top, _TITLE, line), _LEFT, row.title)
        bar = QRectF(theme.M + _TITLE, top + line / 2 - 2, _BAR, 4)
        painter.fillRect(bar, QColor(t.line))
        bar.setWidth(_BAR * (row.share or 0.0))
        painter.fillRect(bar, QColor(t.accent))
        left = theme.M + _TITLE + _BAR
        for width, text in zip(_COLUMNS, row.values, strict=True):
            painter.setPen(QColor(theme.meaning_color(row.meaning)))
            painter.drawText(QRectF(left, top, width, line), _RIGHT, text)
            left += width

    def _line(self) -> int:
        return int(self.fontMetrics().height() + 3)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if (
            event.button() == Qt.MouseButton.LeftButton
            and (handle := self.windowHandle()) is not None
        ):
            handle.startSystemMove()  # the compositor moves it: under Wayland nobody else can

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.opened.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit()
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()
