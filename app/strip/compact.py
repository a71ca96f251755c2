"""Show a line a device in a small strip that stays on top of all windows."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.strip.summary import StripSummary, SummaryRow
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import draw_share

_TITLE, _COLUMNS, _BAR = 62, (52, 76, 52, 52), 60
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


class CompactStrip(QWidget):
    """Show a summary; the user drags it anywhere and closes it with Esc.

    Emits `opened` on a double click and on Return, and `closed` when it is closed.
    """

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
        self.setAccessibleName(tr("GPU Deck, compact"))
        self.setToolTip(tr("Drag to move, double-click to open the window, Esc to close"))
        self.summary: StripSummary | None = None

    def show_summary(self, summary: StripSummary) -> None:
        """Show another summary."""
        if summary == self.summary:
            return
        self.summary = summary
        self.setAccessibleDescription(summary.text)
        if self.size() != self.sizeHint():
            self.setFixedSize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        lines = (len(self.summary.rows) + bool(self.summary.more) if self.summary else 0) or 1
        width = sum(map(theme.px, (_TITLE, _BAR, *_COLUMNS))) + 2 * theme.M
        return QSize(width, lines * self._line() + 2 * theme.S)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t, summary = QPainter(self), theme.tokens(), self.summary
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.hot if summary and summary.alarm else t.line))
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.setFont(theme.font(theme.SMALL))
        top = float(theme.S)
        for row in summary.rows if summary else ():
            self._draw(painter, row, top)
            top += self._line()
        if summary is None or summary.more or not summary.rows:
            more = summary.more if summary else 0
            text = tr("and {n} more", n=more) if more else tr("Waiting for a reading…")
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(theme.M, top, self.width(), self._line()), _LEFT, text)

    def _draw(self, painter: QPainter, row: SummaryRow, top: float) -> None:
        line, title, bar = self._line(), theme.px(_TITLE), theme.px(_BAR)
        painter.setPen(QColor(theme.tokens().muted))
        painter.drawText(QRectF(theme.M, top, title, line), _LEFT, row.title)
        draw_share(painter, QRectF(theme.M + title, top + line / 2 - 2, bar, 4), row.share)
        left = theme.M + title + bar
        painter.setPen(QColor(theme.meaning_color(row.meaning)))
        for width, text in zip(_COLUMNS, row.values, strict=True):
            painter.drawText(QRectF(left, top, theme.px(width), line), _RIGHT, text)
            left += theme.px(width)

    def _line(self) -> int:
        return int(self.fontMetrics().height() + 3)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        handle = self.windowHandle()
        if event.button() == Qt.MouseButton.LeftButton and handle is not None:
            handle.startSystemMove()  # under Wayland only the compositor can move a window

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
