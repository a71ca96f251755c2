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
    QResizeEvent,
)
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.strip.summary import REPLAY, StripSummary, SummaryRow
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, draw_share, elided, row, set_text
from gpudeck.app.widgets.icon_button import IconButton

_BAR = 60
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


_HEADINGS = (tr_noop("Load"), tr_noop("Memory"), tr_noop("Heat"), tr_noop("Power"))


def _cells(device: SummaryRow) -> tuple[str, ...]:
    """Return the values below these headings."""
    load, _, temperature, power = device.values
    return load, device.memory, temperature, power


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
        self.title = elided("GPU Deck", size="small", strong=True)
        open_window = IconButton("enlarge", tr("Open the window"))
        open_window.clicked.connect(self.opened)
        leave = IconButton("close", tr("Close"))
        leave.clicked.connect(self.close)
        for made in (open_window, leave):
            made.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # Return and Esc do the same
        self._bar = QWidget(self)
        self._bar.setLayout(
            row(
                Stretch(self.title),
                open_window,
                leave,
                spacing=0,
                margins=(theme.M, 0, theme.XS, 0),
            )
        )

    def show_summary(self, summary: StripSummary) -> None:
        """Show another summary."""
        if summary == self.summary:
            return
        self.summary = summary
        self.setAccessibleDescription(summary.text)
        set_text(self.title, REPLAY if summary.replay else summary.free or "GPU Deck")
        if self.size() != self.sizeHint():
            self.setFixedSize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        summary = self.summary
        lines = 1 if summary is None else len(summary.rows) + bool(summary.more) or 1
        widths = (*self._widths(), theme.px(_BAR))
        width = sum(widths) + (len(widths) - 1) * theme.M + 2 * theme.M
        return QSize(width, self._head() + lines * self._line() + theme.S)

    def _widths(self) -> tuple[int, ...]:
        """Return the pixels that the titles and each of the values need."""
        rows = self.summary.rows if self.summary else ()
        advance = QFontMetricsF(theme.font(theme.SMALL)).horizontalAdvance
        titles = [advance(device.title) for device in rows]
        # as wide as values can become, so that the window keeps its width
        full = ("100 %", "100 %", "100 °C", "1000 W")
        values = zip(*map(_cells, rows), strict=True) if rows else ((),) * len(full)
        columns = (
            max(map(advance, (most, tr(name), *texts)))
            for most, name, texts in zip(full, _HEADINGS, values, strict=True)
        )
        return tuple(ceil(width) for width in (max(titles, default=0.0), *columns))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t, summary = QPainter(self), theme.tokens(), self.summary
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.hot if summary and summary.alarm else t.line))
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.setFont(theme.font(theme.SMALL))
        widths, top = self._widths(), float(self._head())
        rows = summary.rows if summary else ()
        if rows:
            self._draw_headings(painter, top - self._line(), widths)
        for device in rows:
            self._draw(painter, device, top, widths)
            top += self._line()
        if summary is None or summary.more or not summary.rows:
            more = summary.more if summary else 0
            text = tr("and {n} more", n=more) if more else tr("Waiting for a reading…")
            self._note(painter, text, top)

    def _note(self, painter: QPainter, text: str, top: float) -> None:
        painter.setPen(QColor(theme.tokens().muted))
        painter.drawText(QRectF(theme.M, top, self.width(), self._line()), _LEFT, text)

    def _draw_headings(self, painter: QPainter, top: float, widths: tuple[int, ...]) -> None:
        painter.setPen(QColor(theme.tokens().muted))
        for (left, width), name in zip(self._columns(widths), _HEADINGS, strict=True):
            painter.drawText(QRectF(left, top, width, self._line()), _RIGHT, tr(name))

    def _columns(self, widths: tuple[int, ...]) -> list[tuple[float, int]]:
        """Return the left edge and the width of each column of values."""
        title, *columns = widths
        left, found = float(theme.M + title + theme.M + theme.px(_BAR)), []
        for width in columns:
            left += theme.M
            found.append((left, width))
            left += width
        return found

    def _draw(
        self, painter: QPainter, device: SummaryRow, top: float, widths: tuple[int, ...]
    ) -> None:
        line, left, bar = self._line(), float(theme.M), theme.px(_BAR)
        painter.setPen(QColor(theme.tokens().text))
        painter.drawText(QRectF(left, top, widths[0], line), _LEFT, device.title)
        draw_share(
            painter, QRectF(left + widths[0] + theme.M, top + line / 2 - 2, bar, 4), device.share
        )
        places = self._columns(widths)
        for (at, width), text, meaning in zip(places, _cells(device), device.meanings, strict=True):
            painter.setPen(QColor(theme.meaning_color(meaning)))
            painter.drawText(QRectF(at, top, width, line), _RIGHT, text)

    def _head(self) -> int:
        """Return the pixels above the first device: the title line, and the headings."""
        rows = self.summary.rows if self.summary else ()
        return self._bar.sizeHint().height() + theme.S + (self._line() if rows else 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._bar.setGeometry(0, theme.XS, self.width(), self._bar.sizeHint().height())

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
