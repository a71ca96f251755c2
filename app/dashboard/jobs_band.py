"""A band above a chart that says which job ran when."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolTip, QWidget

from app.dashboard.job_spans import Span
from app.widgets import theme

_HEIGHT = 16
_GAP = 1
_PALE = 0.16
_WITH_TEXT = 13
"""Pixels from which a lane has room for a label."""


class JobSpans(QWidget):
    """One bar a job, in the colour of the device it held or of failure. Emits `chosen` with a job's id when its bar is clicked."""

    chosen = Signal(int)

    def __init__(self, left: int, right: int) -> None:
        """`left`, `right`: pixels at both sides that do not belong to the time axis."""
        super().__init__()
        self._left, self._right = left, right
        self.spans: tuple[Span, ...] = ()
        self._limits = (0.0, 1.0)
        self._colors: dict[str, str] = {}
        self._font = theme.font(theme.SMALL)
        self.setFixedHeight(_HEIGHT)
        self.setAccessibleName("Jobs over time")

    def show_spans(
        self, spans: tuple[Span, ...], limits: tuple[float, float], colors: dict[str, str]
    ) -> None:
        """`limits`: both ends of the time axis, seconds since the epoch; `colors`: of each device."""
        if spans or self.spans:
            self.spans, self._limits, self._colors = spans, limits, colors
            self.update()

    def boxes(self) -> list[tuple[QRectF, Span]]:
        """Where each span is drawn: at least three pixels wide, so that a short job can be seen."""
        start, end = self._limits
        width = self.width() - self._left - self._right
        high = _HEIGHT / max((s.lane + 1 for s in self.spans), default=1)
        found = []
        for span in self.spans:
            x, right = (
                self._left + width * min(max((t - start) / (end - start), 0.0), 1.0)
                for t in (span.start, span.end)
            )
            found.append(
                (
                    QRectF(
                        min(x, self._left + width - 3),
                        span.lane * high,
                        max(right - x, 3),
                        max(high - _GAP, 1),
                    ),
                    span,
                )
            )
        return found

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setFont(self._font)
        for box, span in self.boxes():
            color = QColor(
                t.failed if span.meaning == "failed" else self._colors.get(span.device, t.accent)
            )
            painter.fillRect(QRectF(box.left(), box.top(), 2, box.height()), color)
            color.setAlphaF(_PALE if box.height() >= _WITH_TEXT else 0.5)
            painter.fillRect(box, color)
            room = box.adjusted(6, 0, -2, 0)
            if (
                box.height() >= _WITH_TEXT
                and room.width() >= painter.fontMetrics().horizontalAdvance(str(span.job))
            ):
                text = painter.fontMetrics().elidedText(
                    span.label, Qt.TextElideMode.ElideRight, int(room.width())
                )
                painter.setPen(QColor(t.failed if span.meaning == "failed" else t.text))
                painter.drawText(
                    room, int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine), text
                )

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if (span := self._at(event.position())) is not None:
            self.chosen.emit(span.job)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            span = self._at(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), span.tooltip if span else "", self)
            return True
        return super().event(event)

    def _at(self, point: QPointF) -> Span | None:
        return next((span for box, span in reversed(self.boxes()) if box.contains(point)), None)
