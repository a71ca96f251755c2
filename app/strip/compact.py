"""Show a line a device in a small strip that stays on top of all windows."""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QColor,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.strip.summary import REPLAY, StripSummary, SummaryRow
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import draw_share

_BAR = 60
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
        summary = self.summary
        lines = 1
        if summary is not None:
            lines = len(summary.rows) + bool(summary.more) + summary.replay or 1
        widths = (*self._widths(), theme.px(_BAR))
        width = sum(widths) + (len(widths) - 1) * theme.S + 2 * theme.M
        return QSize(width, lines * self._line() + 2 * theme.S)

    def _widths(self) -> tuple[int, ...]:
        """Return the pixels that the titles and each of the values need."""
        rows = self.summary.rows if self.summary else ()
        advance = QFontMetricsF(theme.font(theme.SMALL)).horizontalAdvance
        titles = [advance(row.title) for row in rows]
        # as wide as values can become, so that the window keeps its width
        full = ("100 %", tr("{share} % mem", share=100), "100 °C", "1000 W")
        values = zip(*(row.values for row in rows), strict=True) if rows else ((),) * len(full)
        columns = (
            max(map(advance, (most, *texts))) for most, texts in zip(full, values, strict=True)
        )
        return tuple(ceil(width) for width in (max(titles, default=0.0), *columns))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t, summary = QPainter(self), theme.tokens(), self.summary
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.hot if summary and summary.alarm else t.line))
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.setFont(theme.font(theme.SMALL))
        top = float(theme.S)
        if summary is not None and summary.replay:
            self._note(painter, REPLAY, top)
            top += self._line()
        widths = self._widths()
        for row in summary.rows if summary else ():
            self._draw(painter, row, top, widths)
            top += self._line()
        if summary is None or summary.more or not summary.rows:
            more = summary.more if summary else 0
            text = tr("and {n} more", n=more) if more else tr("Waiting for a reading…")
            self._note(painter, text, top)

    def _note(self, painter: QPainter, text: str, top: float) -> None:
        painter.setPen(QColor(theme.tokens().muted))
        painter.drawText(QRectF(theme.M, top, self.width(), self._line()), _LEFT, text)

    def _draw(
        self, painter: QPainter, row: SummaryRow, top: float, widths: tuple[int, ...]
    ) -> None:
        line, left, bar = self._line(), float(theme.M), theme.px(_BAR)
        title, *columns = widths
        painter.setPen(QColor(theme.tokens().muted))
        painter.drawText(QRectF(left, top, title, line), _LEFT, row.title)
        left += title + theme.S
        draw_share(painter, QRectF(left, top + line / 2 - 2, bar, 4), row.share)
        left += bar
        for width, text, meaning in zip(columns, row.values, row.meanings, strict=True):
            left += theme.S
            painter.setPen(QColor(theme.meaning_color(meaning)))
            painter.drawText(QRectF(left, top, width, line), _RIGHT, text)
            left += width

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
