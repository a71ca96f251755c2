"""Paint the queue on a time axis, and let the user choose and drag its jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QBrush,
    QColor,
    QKeyEvent,
    QLinearGradient,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.jobs.queue_timeline import Bar, Kind, QueueTimeline, drop_target, ticks
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import show_tooltip
from gpudeck.scheduler.protocol.schedule import Moved

_NAMES, _HEAD, _LANE, _HIGH, _PAD, _GAP = 76, 26, 22, 104, 3, 2
"""Pixels of the names of rows, the times, a lane at least and at most, above and below lanes, and
between them."""
_NARROWEST, _TEXT, _TICK, _PILL = 4, 30, 90, 150
"""The least width of a bar, of one with text, of a tick, and the width of a job without a time."""
_OPEN_SHARE = 0.2
"""The share of the axis for which a running job is drawn whose end is unknown."""
_LEFT = int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)


@dataclass(frozen=True)
class Placed:
    """A bar with its place in the field and the number of its row; -1 for one without a time."""

    bar: Bar
    box: QRectF
    row: int
    rows_to: int = -2
    """The last of the rows that it fills; -2 where it shares its row with others."""


class TimelineField(QWidget):
    """Show a `QueueTimeline`. A bar that waits can be dragged to another place in the queue."""

    chosen = Signal(int)
    """The user chose the job with this number."""
    aimed = Signal(object)
    """The user drags a job: carries where it would be moved (`Moved`), or None for nowhere."""
    dropped = Signal(object)
    """The user let go of a job: carries the `Moved`."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: QueueTimeline | None = None
        self.selected: int | None = None
        self._preview: QueueTimeline | None = None
        self._pressed: tuple[Placed, QPointF] | None = None
        self._dragging = False
        self._aim: Moved | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(tr("Timeline of the queue"))

    def show_timeline(self, shown: QueueTimeline, preview: QueueTimeline | None = None) -> None:
        """Show the queue, or how it would be after the move that the user aims at."""
        self.shown, self._preview = shown, preview
        self.setMinimumHeight(self.sizeHint().height())
        self.update()

    def sizeHint(self) -> QSize:
        shown = self.shown
        lanes, rows = (0, 0) if shown is None else _counts(shown)
        height = lanes * theme.px(_LANE) + 2 * rows * theme.px(_PAD)
        return QSize(theme.px(480), theme.px(_HEAD) + height)

    @property
    def _lane(self) -> int:
        """Return the pixels of a lane: all lanes share the height of the field."""
        lanes, rows = (0, 0) if self.shown is None else _counts(self.shown)
        room = self.height() - theme.px(_HEAD) - 2 * rows * theme.px(_PAD)
        return int(min(max(room / max(lanes, 1), theme.px(_LANE)), theme.px(_HIGH)))

    def placed(self, shown: QueueTimeline) -> list[Placed]:
        """Return all bars in their places, bookings first, as jobs lie on top of them.

        A job on several devices, one below the other, is one block.
        """
        bars, top, lane = list[Placed](), float(theme.px(_HEAD)), self._lane
        for number, row in enumerate(shown.rows):
            height = self._height(row.lanes)
            for bar in row.bars:
                open_end = shown.end if bar.kind == "waiting" else self._open_end(shown)
                left = self._x(shown, bar.start)
                right = self._x(shown, open_end if bar.end is None else bar.end)
                at, high = top, height
                if bar.kind != "booked":
                    at += theme.px(_PAD) + bar.lane * lane
                    high = lane - theme.px(_GAP)
                box = QRectF(left, at, max(right - left, _NARROWEST), high)
                bars.append(Placed(bar, box, number, number if row.lanes == 1 else -2))
            top += height
        found = _blocks(bars)
        for at, one in enumerate(shown.unplaced):
            left = theme.px(_NAMES) + at * theme.px(_PILL)
            high = lane - theme.px(_GAP)
            box = QRectF(left, top + theme.px(_PAD), theme.px(_PILL - 6), high)
            bar = Bar("waiting", one.key, one.label, f"{one.label}\n{one.why}", shown.end, None)
            if box.right() <= self.width():
                found.append(Placed(bar, box, -1))
        return found

    def bar_at(self, point: QPointF) -> Placed | None:
        """Return the topmost bar at a point."""
        found = [] if self.shown is None else self.placed(self.shown)
        return next((one for one in reversed(found) if one.box.contains(point)), None)

    def event(self, event: QEvent) -> bool:
        return show_tooltip(self, event, self._tooltip) or super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        found = self.bar_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and found and found.bar.kind != "booked":
            self._pressed = found, event.position()
            self.chosen.emit(found.bar.key)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed is None or self.shown is None:
            return
        pressed, start = self._pressed
        far = (event.position() - start).manhattanLength() >= QApplication.startDragDistance()
        if pressed.bar.kind == "waiting" and far and not self._dragging:
            self._dragging = True
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
        if self._dragging:
            self._take_aim(self._target(event.position()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        aim, dragging = self._aim, self._dragging
        self.cancel()
        if dragging and aim is not None:
            self.dropped.emit(aim)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Leave the drag with Esc; go through the jobs with the arrows."""
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if event.key() == Qt.Key.Key_Escape and self._dragging:
            self.cancel()
        elif step is not None and self.shown is not None:
            self._step(self.shown, step)
        else:
            super().keyPressEvent(event)

    def cancel(self) -> None:
        """Leave the drag without a move."""
        self._pressed, self._dragging = None, False
        self.unsetCursor()
        self._take_aim(None)

    def paintEvent(self, event: QPaintEvent) -> None:
        shown = self._preview or self.shown
        if shown is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font(theme.SMALL))
        painter.fillRect(self.rect(), QColor(theme.tokens().surface))
        self._paint_grid(painter, shown)
        placed = self.placed(shown)
        for one in placed:
            self._paint_bar(painter, shown, one)
        self._paint_now(painter, shown)
        for one in placed:  # over the line, so that it can be read
            self._paint_label(painter, shown, one)

    def _take_aim(self, aim: Moved | None) -> None:
        if aim != self._aim:
            self._aim = aim
            self.aimed.emit(aim)

    def _target(self, point: QPointF) -> Moved | None:
        """Return where the dragged job would be moved, by the places before the move."""
        assert self.shown is not None and self._pressed is not None
        top, shown = float(theme.px(_HEAD)), self.shown
        for row in shown.rows:
            height = self._height(row.lanes)
            if top <= point.y() < top + height:
                time = self._time(shown, point.x())
                return drop_target(row, self._pressed[0].bar.key, time, shown.end)
            top += height
        return None

    def _step(self, shown: QueueTimeline, step: int) -> None:
        placed = [one for one in self.placed(shown) if one.bar.kind != "booked"]
        order = sorted(placed, key=lambda one: (one.bar.start, one.row))
        keys = list(dict.fromkeys(one.bar.key for one in order))
        at = keys.index(self.selected) + step if self.selected in keys else 0
        if 0 <= at < len(keys):
            self.chosen.emit(keys[at])

    def _tooltip(self, point: QPointF) -> str:
        found = self.bar_at(point)
        return "" if found is None or self._dragging else found.bar.tooltip

    def _height(self, lanes: int) -> int:
        return lanes * self._lane + 2 * theme.px(_PAD)

    @property
    def _bottom(self) -> int:
        """Return the pixels down to the lower edge of the last row."""
        lanes, rows = (0, 0) if self.shown is None else _counts(self.shown)
        return theme.px(_HEAD) + lanes * self._lane + 2 * rows * theme.px(_PAD)

    def _x(self, shown: QueueTimeline, at: float) -> float:
        share = (at - shown.start) / (shown.end - shown.start)
        left = theme.px(_NAMES)
        return left + (self.width() - left) * min(max(share, 0.0), 1.0)

    def _time(self, shown: QueueTimeline, x: float) -> float:
        left = theme.px(_NAMES)
        return shown.start + (x - left) / (self.width() - left) * (shown.end - shown.start)

    def _open_end(self, shown: QueueTimeline) -> float:
        return shown.now + _OPEN_SHARE * (shown.end - shown.start)

    def _paint_grid(self, painter: QPainter, shown: QueueTimeline) -> None:
        colors, width, head = theme.tokens(), self.width(), theme.px(_HEAD)
        near = theme.px(_TICK) / 2
        for at, text in ticks(shown.start, shown.end, max(width // theme.px(_TICK), 2)):
            x = round(self._x(shown, at))
            painter.setPen(QColor(colors.grid))
            painter.drawLine(x, head, x, self._bottom)
            if abs(x - self._x(shown, shown.now)) > near and x < width - near:
                painter.setPen(QColor(colors.muted))
                painter.drawText(QRectF(x + 5, 0, near * 2, head), _LEFT, text)
        top, names = head, theme.px(_NAMES)
        rows = [(row.title, row.lanes) for row in shown.rows]
        for title, lanes in (*rows, *([(tr("Start unknown"), 1)] if shown.unplaced else ())):
            painter.setPen(QColor(colors.grid))
            painter.drawLine(0, top, width, top)
            box = QRectF(4, top, names - 8, self._height(1))
            self._write(painter, title, box, QColor(colors.muted))
            top += self._height(lanes)

    def _paint_now(self, painter: QPainter, shown: QueueTimeline) -> None:
        colors, text = theme.tokens(), tr("now")
        x = self._x(shown, shown.now)
        painter.setPen(QPen(QColor(colors.accent), 2))
        painter.drawLine(QPointF(x, theme.px(_HEAD) - 4), QPointF(x, self._bottom))
        width = painter.fontMetrics().horizontalAdvance(text) + theme.px(14)
        pill = QRectF(x - width / 2, 3, width, theme.px(18))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.accent))
        painter.drawRoundedRect(pill, pill.height() / 2, pill.height() / 2)
        painter.setPen(QColor(colors.on_accent))
        painter.drawText(pill, int(Qt.AlignmentFlag.AlignCenter), text)

    def _paint_bar(self, painter: QPainter, shown: QueueTimeline, one: Placed) -> None:
        bar, box, colors = one.bar, one.box, theme.tokens()
        if bar.kind == "booked":
            painter.fillRect(box, hatch())
            return
        fill, edge, _ = look(bar)
        if bar.key == self.selected or (self._aim is not None and bar.key == self._aim.job):
            edge = QColor(colors.accent)
        style = Qt.PenStyle.DashLine if bar.kind == "waiting" else Qt.PenStyle.SolidLine
        painter.setPen(QPen(edge, 1.5 if bar.key == self.selected else 1, style))
        painter.setBrush(_fading(fill, box) if bar.end is None and one.row >= 0 else fill)
        before = _begins_before(shown, one)
        shape = box.adjusted(-8 if before else 0.5, 0.5, -0.5, -0.5)
        painter.save()
        painter.setClipRect(box)
        painter.drawRoundedRect(shape, 4, 4)
        painter.restore()
        if bar.share is not None:  # a line, as the filled part of a bar would be a time
            low = box.adjusted(6, box.height() - 7, -6, -4)
            painter.fillRect(low, QColor(colors.line))
            low.setWidth(bar.share * low.width())
            painter.fillRect(low, QColor(colors.accent))

    def _paint_label(self, painter: QPainter, shown: QueueTimeline, one: Placed) -> None:
        """Write what a bar is, and below it how far it is or when it starts if there is room."""
        bar, box = one.bar, one.box
        if bar.kind == "booked":
            inside = box.adjusted(self._x(shown, bar.text_at) - box.left() + 6, 0, -4, 0)
            self._write(painter, bar.label, inside, QColor(theme.tokens().throttled))
            return
        metrics, inside = painter.fontMetrics(), box.adjusted(6, 0, -4, 0)
        label = f"‹ {bar.label}" if _begins_before(shown, one) else bar.label
        if metrics.horizontalAdvance(label) > inside.width():
            label = str(bar.key)  # the tooltip has the name
        fill, _, text = look(bar)
        line = metrics.height()
        if bar.detail and box.height() >= 3 * line:
            second = inside.adjusted(0, line, 0, 0 if bar.share is None else -4)
            if metrics.horizontalAdvance(bar.detail) <= inside.width():
                self._write(painter, bar.detail, second, QColor(theme.tokens().muted), fill)
                inside = inside.adjusted(0, 0, 0, -line - (0 if bar.share is None else 4))
        self._write(painter, label, inside, text, fill)

    def _write(
        self, painter: QPainter, text: str, box: QRectF, color: QColor, ground: QColor | None = None
    ) -> None:
        """Write a text as far as there is room, on a ground that hides the line of the present."""
        if box.width() >= min(theme.px(_TEXT), painter.fontMetrics().horizontalAdvance(text)):
            shown = painter.fontMetrics().elidedText(
                text, Qt.TextElideMode.ElideRight, int(box.width())
            )
            if ground is not None:
                width, height = painter.fontMetrics().horizontalAdvance(shown), _line(painter)
                top = box.center().y() - height / 2
                painter.fillRect(QRectF(box.left(), top, width, height), ground)
            painter.setPen(color)
            painter.drawText(box, _LEFT, shown)


def _line(painter: QPainter) -> int:
    """Return the pixels of the height of a line of text."""
    return painter.fontMetrics().height()


def _counts(shown: QueueTimeline) -> tuple[int, int]:
    """Return the number of all lanes, and of rows, with the one of jobs without a known start."""
    extra = int(bool(shown.unplaced))
    return sum(row.lanes for row in shown.rows) + extra, len(shown.rows) + extra


def _blocks(bars: Iterable[Placed]) -> list[Placed]:
    """Return bars, with those of one job in rows one below the other as one block."""
    found: list[Placed] = []
    ends = defaultdict[tuple[object, Kind, int], list[int]](list)
    """The blocks of a job whose last row is this one."""
    for one in bars:
        above, at = ends[one.bar.key, one.bar.kind, one.rows_to - 1], len(found)
        if above:
            above.remove(at := min(above))
            block = found[at]
            bar = replace(block.bar, text_at=min(block.bar.text_at, one.bar.text_at))
            found[at] = Placed(bar, block.box.united(one.box), block.row, one.row)
        else:
            found.append(one)
        ends[one.bar.key, one.bar.kind, one.rows_to].append(at)
    return found


def _begins_before(shown: QueueTimeline, one: Placed) -> bool:
    """Return whether a job began left of the axis."""
    return one.bar.start < shown.start and one.row >= 0


def hatch() -> QBrush:
    """Return what bookings are filled with."""
    tint = QColor(theme.tokens().throttled)
    tint.setAlphaF(0.35)
    return QBrush(tint, Qt.BrushStyle.BDiagPattern)


def look(bar: Bar) -> tuple[QColor, QColor, QColor]:
    """Return the colours of a bar: its ground, its edge and its text."""
    colors = theme.tokens()
    if bar.kind == "running":
        edge = theme.blend(QColor(colors.accent), QColor(colors.surface), 0.55)
        return QColor(colors.accent_soft), edge, QColor(colors.text)
    if bar.kind == "waiting":
        return QColor(colors.surface), QColor(colors.muted), QColor(colors.muted)
    if bar.meaning == "failed":
        ground = theme.blend(QColor(colors.failed), QColor(colors.surface), 0.16)
        return ground, ground, QColor(colors.failed)
    return QColor(colors.grid), QColor(colors.grid), QColor(colors.muted)


def _fading(color: QColor, box: QRectF) -> QBrush:
    """Return the colour, which fades to the right where the end is unknown."""
    clear = QColor(color)
    clear.setAlpha(0)
    made = QLinearGradient(box.topLeft(), box.topRight())
    made.setColorAt(0.5, color)
    made.setColorAt(1.0, clear)
    return QBrush(made)
