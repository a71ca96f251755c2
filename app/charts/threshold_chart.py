"""Show the last minutes of a value with the threshold of its alert, which can be dragged."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QSizePolicy

from gpudeck.app.charts.scales import ticks
from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.sparkline import draw_sparkline
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme

_GRIP = 9
"""Pixels beside the line where it can be taken hold of."""
_LEAST_WIDTH, _LEAST_HEIGHT = 180, 150
_STEPS = 4
_SHADE = 0.13
"""Opacity of the times in which alerts were active."""
_CAPTION = 64
"""Pixels right of the curves, for what the threshold is, which would hide them."""
_SCALE = 34
"""Pixels left of the curves, for the values of the scale."""


class ThresholdChart(QFrame):
    """Paint title, present value, curves and threshold in a card."""

    dragged = Signal(float, bool)
    """Carries the value that the threshold was dragged to, and whether it was let go there."""
    stepped = Signal(int)
    """The user moved the threshold by this number of steps with the keys Up and Down."""

    def __init__(self, title: str, span: str) -> None:
        """Make a chart without values.

        Args:
            span: What the time axis shows: 10 min.
        """
        super().__init__()
        self.setProperty("card", "true")
        self.title, self.text, self._span = title, "", span
        self._lines: tuple[Floats, ...] = ()
        self._top = 1.0
        self.spans: tuple[tuple[float, float], ...] = ()
        """When alerts were active: begin and end as shares of the time axis."""
        self.level: float | None = None
        """Where the line is; None for a chart without one."""
        self.caption = ""
        self._held = False
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(tr("{title}: threshold of the alert", title=title))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_values(self, lines: Sequence[Floats], top: float, text: str) -> None:
        """Show these curves, [bins] each with NaN in gaps, of which the last one stands out."""
        self._lines, self._top, self.text = tuple(lines), top, text
        self.update()

    def show_spans(self, spans: Sequence[tuple[float, float]]) -> None:
        """Shade the times in which alerts were active, as shares of the time axis."""
        if tuple(spans) != self.spans:
            self.spans = tuple(spans)
            self.update()

    def show_threshold(self, level: float | None, caption: str) -> None:
        """Show the threshold at a value, unless it is being dragged; None shows none."""
        if not self._held:
            self.level, self.caption = level, caption
            self.setAccessibleDescription(f"{caption}. {self.text}" if self.text else caption)
            self.setToolTip(
                tr(
                    "Drag the line, or press Up and Down, to set the alert; "
                    "above the limit it is off"
                )
                if level is not None
                else caption
            )
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(340), theme.px(190))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(_LEAST_WIDTH), theme.px(_LEAST_HEIGHT))

    def _plot(self) -> QRectF:
        line = theme.px(theme.SMALL) + theme.S
        edge = theme.M
        return QRectF(self.rect()).adjusted(
            edge + theme.px(_SCALE), edge + line + theme.S, -edge - theme.px(_CAPTION), -edge - line
        )

    def line_y(self) -> float:
        """Return where the line is, in pixels from the top."""
        plot = self._plot()
        share = min(max((self.level or 0.0) / self._top, 0.0), 1.0)
        return plot.bottom() - share * plot.height()

    def value_at(self, y: float) -> float:
        """Return the value at a place, in pixels from the top."""
        plot = self._plot()
        return max(self._top * (plot.bottom() - y) / max(plot.height(), 1.0), 0.0)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, t, plot = QPainter(self), theme.tokens(), self._plot()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._write(painter, plot)
        painter.setPen(QPen(QColor(t.grid), 1))
        for value in ticks(self._top, _STEPS):
            y = plot.bottom() - value / self._top * plot.height()
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
        for begin, end in self.spans:
            left, right = (plot.left() + share * plot.width() for share in (begin, end))
            shade = QColor(t.hot)
            shade.setAlphaF(_SHADE)
            painter.fillRect(QRectF(left, plot.top(), max(right - left, 1.0), plot.height()), shade)
            shade.setAlphaF(1.0)
            painter.fillRect(QRectF(left, plot.top() - 4, max(right - left, 2.0), 3), shade)
        faint = theme.blend(QColor(t.muted), QColor(t.surface), 0.35).name()
        for at, values in enumerate(self._lines):
            last = at == len(self._lines) - 1
            draw_sparkline(painter, plot, values, self._top, "" if last else faint, last)
        if self.level is not None:
            self._draw_line(painter, plot)
        if self.hasFocus():
            painter.setPen(QPen(QColor(t.accent), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)

    def _write(self, painter: QPainter, plot: QRectF) -> None:
        """Write the title, the present value, the scale and the time axis."""
        t, flag = theme.tokens(), Qt.AlignmentFlag
        upper = QRectF(theme.M, theme.M, self.width() - 2 * theme.M, theme.px(theme.BASE) + 6)
        painter.setFont(theme.font(strong=True))
        painter.setPen(QColor(t.text))
        painter.drawText(upper, int(flag.AlignLeft | flag.AlignVCenter), self.title)
        painter.setFont(theme.font())
        painter.drawText(upper, int(flag.AlignRight | flag.AlignVCenter), self.text)
        painter.setFont(theme.font(theme.SMALL))
        painter.setPen(QColor(t.muted))
        height = painter.fontMetrics().height()
        for value in ticks(self._top, _STEPS):
            y = plot.bottom() - value / self._top * plot.height()
            box = QRectF(theme.S, y - height / 2, plot.left() - theme.S - 6, height)
            painter.drawText(box, int(flag.AlignRight), tr_decimal(f"{value:g}"))
        lower = QRectF(plot.left(), plot.bottom() + 6, plot.width(), height)
        painter.drawText(lower, int(flag.AlignLeft), tr("{time} ago", time=self._span))
        painter.drawText(lower, int(flag.AlignRight), tr("now"))
        if not self._lines or self.level is None:
            painter.drawText(plot, int(flag.AlignCenter) | Qt.TextFlag.TextWordWrap, self.caption)

    def _draw_line(self, painter: QPainter, plot: QRectF) -> None:
        t, y = theme.tokens(), self.line_y()
        painter.setPen(QPen(QColor(t.hot), 1.5, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
        painter.setPen(QColor(t.hot))
        painter.setFont(theme.font(theme.SMALL))
        height = 2 * painter.fontMetrics().height()
        top = min(max(y - height / 2, plot.top() - theme.S), plot.bottom() - height)
        beside = QRectF(plot.right() + theme.XS, top, theme.px(_CAPTION) - theme.XS, height)
        flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        words, _, unit = self.caption.rpartition(" ")  # the unit stays beside its number
        text = f"{words}\u00a0{unit}" if words else unit
        painter.drawText(beside, int(flags) | Qt.TextFlag.TextWordWrap, text)

    def _grips(self, y: float) -> bool:
        return self.level is not None and abs(y - self.line_y()) <= _GRIP

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._held = event.button() == Qt.MouseButton.LeftButton and self._grips(
            event.position().y()
        )
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        y = event.position().y()
        if self._held:
            self._drag(y, done=False)
        over = self._held or self._grips(y)
        self.setCursor(Qt.CursorShape.SplitVCursor if over else Qt.CursorShape.ArrowCursor)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._held:
            self._held = False
            self._drag(event.position().y(), done=True)
        super().mouseReleaseEvent(event)

    def _drag(self, y: float, done: bool) -> None:
        self.level = self.value_at(y)
        self.update()
        self.dragged.emit(self.level, done)

    def show_caption(self, caption: str) -> None:
        """Show what the value means that the threshold is dragged to."""
        self.caption = caption
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: 1, Qt.Key.Key_Down: -1}.get(Qt.Key(event.key()))
        if step is not None and self.level is not None:
            self.stepped.emit(step)
        else:
            super().keyPressEvent(event)
