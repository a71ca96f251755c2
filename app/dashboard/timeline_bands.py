"""Paint the bands on the time axis of the charts: the jobs of each device, and other events."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.dashboard.timeline import BookingSpan, EventMark, JobSpan
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import show_tooltip

_JOB_HEIGHT, _ROW_HEIGHT, _EVENT_HEIGHT, _EVENT_LINE = 18, 13, 15, 5
"""Pixels of a row if there is one device, of a row if there are several, of the events with
their names, and of an event."""
_HIGHEST, _LOWEST_ROW = 8 * _ROW_HEIGHT, 2
"""Pixels from which on more rows make each row lower, and the least height of a row."""
_GAP = 1
_NARROWEST = 3
"""The least width of an item in pixels, so that a short one can be seen."""
_PALE, _HATCHED = 0.16, 0.5
_WITH_NAME = 84
"""Pixels below which a bar has only the number of its job: half a word says nothing."""
_WITH_TEXT = 12
"""The least height of a lane, in pixels, that leaves room for a label."""
_TITLE = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
_NAME = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
_FAILED = "×"
"""Before the number of a job that failed, which its colour alone would not tell everybody."""
_REACH = 3
"""The tooltip of an event is also shown this many pixels beside it."""


class TimeBand(QWidget):
    """Place items on the time axis of the charts; subclasses paint them."""

    def __init__(self, name: str, height: int, left: int, right: int) -> None:
        """Leave `left` and `right` pixels free at the sides, where the charts have their axes."""
        super().__init__()
        self._left, self._right = left, right
        self._edge = right
        self.limits = (0.0, 1.0)
        """The two ends of the time axis, in seconds since the epoch."""
        self.setFixedHeight(height)
        self.setAccessibleName(name)

    def leave_room(self, width: int) -> None:
        """Leave `width` more pixels free on the right, where the charts have values."""
        if self._right != self._edge + width:
            self._right = self._edge + width
            self.update()

    def box(self, start: float, end: float) -> QRectF:
        """Return the rectangle of a period."""
        first, last = self.limits
        width = self.width() - self._left - self._right
        x, right = (
            self._left + width * min(max((t - first) / (last - first), 0.0), 1.0)
            for t in (start, end)
        )
        left = min(x, self._left + width - _NARROWEST)
        return QRectF(left, 0, max(right - x, _NARROWEST), self.height())

    def event(self, event: QEvent) -> bool:
        return show_tooltip(self, event, self.tooltip_at) or super().event(event)

    def tooltip_at(self, point: QPointF) -> str:
        """Return the tooltip of the items at a point."""
        raise NotImplementedError


class JobBand(TimeBand):
    """Paint a row for each device, with a bar for each of its jobs, in the colour of its state.

    A time for which a device is reserved is hatched behind its jobs.

    A click on a job emits `chosen` with its id.
    """

    chosen = Signal(int)

    def __init__(self, left: int, right: int) -> None:
        super().__init__(tr("Jobs over time"), _JOB_HEIGHT, left, right)
        self.spans: tuple[JobSpan, ...] = ()
        self.bookings: tuple[BookingSpan, ...] = ()
        self.rows: dict[str, str] = {}
        """The devices in their order, and the names of their rows."""
        self._font = theme.font(theme.SMALL)

    def show_spans(
        self,
        spans: tuple[JobSpan, ...],
        limits: tuple[float, float],
        rows: dict[str, str],
        bookings: tuple[BookingSpan, ...] = (),
    ) -> None:
        """Show these jobs and bookings between `limits`, in a row for each device."""
        if rows != self.rows:
            self.rows = rows
            self.setFixedHeight(theme.px(_band_height(len(rows))))
        if spans or self.spans or bookings or self.bookings:
            self.spans, self.bookings, self.limits = spans, bookings, limits
            self.update()

    @property
    def titled(self) -> bool:
        """Report if there is room for a title beside the names of the rows."""
        return len(self.rows) <= 1 or all(len(name) <= 1 for name in self.rows.values())

    def boxes(self) -> list[tuple[QRectF, JobSpan]]:
        """Return the rectangle of each job."""
        row_height = self.height() / max(len(self.rows), 1)
        places = {device: at for at, device in enumerate(self.rows)}
        lanes: dict[str, int] = {}
        for span in self.spans:
            lanes[span.device] = max(lanes.get(span.device, 0), span.lane + 1)
        found = []
        for span in self.spans:
            height = row_height / lanes[span.device]
            box = self.box(span.start, span.end)
            box.moveTop(places.get(span.device, 0) * row_height + span.lane * height)
            box.setHeight(max(height - _gap(height), 1))
            found.append((box, span))
        return found

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.setFont(self._font)
        if len(self.rows) > 1:
            height = self.height() / len(self.rows)
            every = math.ceil(_WITH_TEXT / height)
            for at, name in enumerate(self.rows.values()):
                line = QRectF(0, at * height, self._left - theme.XS, height - _gap(height))
                ground = QRectF(self._left, line.top(), self.width() - self._left, line.height())
                painter.fillRect(ground.adjusted(0, 0, -self._right, 0), QColor(t.sunken))
                if at % every == 0:
                    line.setHeight(max(line.height(), _WITH_TEXT))
                    painter.setPen(QColor(t.muted))
                    painter.drawText(line, _NAME, name)
        if self.titled:
            painter.setFont(theme.font(strong=True))
            painter.setPen(QColor(t.text))
            high = self.height() / max(len(self.rows), 1)
            painter.drawText(QRectF(0, 0, self._left, high), _TITLE, tr("Jobs"))
            painter.setFont(self._font)
        for box, booking in self.booking_boxes():
            self._paint_booking(painter, box, booking)
        for box, span in self.boxes():
            self._paint(painter, box, span)

    def booking_boxes(self) -> list[tuple[QRectF, BookingSpan]]:
        """Return the rectangle of each booking."""
        height = self.height() / max(len(self.rows), 1)
        places = {device: at for at, device in enumerate(self.rows)}
        found = []
        for booking in self.bookings:
            box = self.box(booking.start, booking.end)
            box.moveTop(places.get(booking.device, 0) * height)
            box.setHeight(max(height - _GAP, 1))
            found.append((box, booking))
        return found

    def _paint_booking(self, painter: QPainter, box: QRectF, booking: BookingSpan) -> None:
        color = QColor(theme.tokens().muted)
        painter.setPen(color)
        painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        color.setAlphaF(_HATCHED)
        painter.fillRect(box, QBrush(color, Qt.BrushStyle.BDiagPattern))

    def _paint(self, painter: QPainter, box: QRectF, span: JobSpan) -> None:
        t, failed = theme.tokens(), span.meaning == "failed"
        color = QColor(t.failed if failed else t.accent)
        painter.fillRect(QRectF(box.left(), box.top(), 2, box.height()), color)
        with_text = box.height() >= _WITH_TEXT
        color.setAlphaF(_PALE if with_text else 0.5)
        painter.fillRect(box, color)
        room, metrics = box.adjusted(6, 0, -2, 0), painter.fontMetrics()
        number, label = str(span.job), span.label
        if failed and room.width() >= metrics.horizontalAdvance(f"{_FAILED} {number}"):
            number, label = f"{_FAILED} {number}", f"{_FAILED} {label}"
        if with_text and room.width() >= metrics.horizontalAdvance(number):
            elide = Qt.TextElideMode.ElideRight
            text = metrics.elidedText(label, elide, int(room.width()))
            if room.width() < _WITH_NAME or not text.startswith(number):
                text = number
            flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
            painter.setPen(QColor(t.failed if failed else t.text))
            painter.drawText(room, flags, text)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        span = self._span_at(event.position())
        if span is not None:
            self.chosen.emit(span.job)

    def tooltip_at(self, point: QPointF) -> str:
        if (span := self._span_at(point)) is not None:
            return span.tooltip
        reserved = (booking.tooltip for box, booking in self.booking_boxes() if box.contains(point))
        return "\n".join(reserved)

    def _span_at(self, point: QPointF) -> JobSpan | None:
        return next((span for box, span in reversed(self.boxes()) if box.contains(point)), None)


def _band_height(rows: int) -> int:
    """Return the height of a band: the more rows, the lower they are."""
    if rows <= 1:
        return _JOB_HEIGHT
    return round(rows * max(min(_ROW_HEIGHT, _HIGHEST / rows), _LOWEST_ROW))


def _gap(height: float) -> int:
    """Return the pixels between two rows or lanes of this height."""
    return _GAP if height > _LOWEST_ROW + 1 else 0


class EventBand(TimeBand):
    """Paint throttling, alerts and Xid events. The band is hidden while there are none."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(tr("Events over time"), theme.px(_EVENT_HEIGHT), left, right)
        self.marks: tuple[EventMark, ...] = ()
        self.hide()

    def show_marks(self, marks: tuple[EventMark, ...], limits: tuple[float, float]) -> None:
        """Show these events between `limits`."""
        if marks or self.marks:
            self.marks, self.limits = marks, limits
            self.setVisible(bool(marks))
            newest = (mark.tooltip.replace("\n", ", ") for mark in marks[-5:])
            self.setAccessibleDescription("; ".join(newest))
            self.update()

    def boxes(self) -> list[tuple[QRectF, EventMark]]:
        """Return the rectangle of each event."""
        return [(self.box(mark.start, mark.end), mark) for mark in self.marks]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(theme.font(theme.SMALL))
        boxes, taken = self.boxes(), self._left
        for at, (box, mark) in enumerate(boxes):
            color = QColor(theme.meaning_color(mark.meaning))
            middle = (self.height() - _EVENT_LINE) / 2
            painter.fillRect(QRectF(box.left(), middle, box.width(), _EVENT_LINE), color)
            wide = painter.fontMetrics().horizontalAdvance(mark.label)
            next_ = boxes[at + 1][0].left() if at + 1 < len(boxes) else self.width() - self._right
            left = box.right() + theme.XS
            if left + wide > next_:  # before the mark, if there is more room
                left = box.left() - theme.XS - wide
            if left >= taken and (left > box.left() or left + wide <= box.left()):
                painter.setPen(color)
                side = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
                painter.drawText(QRectF(left, 0, wide + 1, self.height()), side, mark.label)
                taken = round(left + wide + theme.XS)
            taken = max(taken, round(box.right() + theme.XS))

    def tooltip_at(self, point: QPointF) -> str:
        return "\n".join(
            mark.tooltip
            for box, mark in self.boxes()
            if box.adjusted(-_REACH, 0, _REACH, 0).contains(point)
        )
