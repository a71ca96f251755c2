"""Paint the tile of one device in the strip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QWidget

from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.sparkline import draw_sparkline
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.app.language.texts import tr
from gpudeck.app.strip.tile_model import UTILISATION, Tile, TileMetric
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import draw_ring, draw_share
from gpudeck.app.widgets.mark_chart import show_tooltip

Form = Literal["wide", "compact", "slim", "tiny"]
"""Five columns with captions; two rows; one row of the most important values; or of three."""
_LOW_FORMS = ("slim", "tiny")
_NARROWEST: dict[Form, int] = {"wide": 560, "compact": 272, "slim": 217, "tiny": 164}
"""Pixels of width that each form needs at the usual size of text."""
_PLACES = {
    "wide": ((0.0, 0.18), (0.18, 0.45), (0.45, 0.66), (0.66, 0.84), (0.84, 1.0)),
    "compact": ((0.0, 0.45), (0.45, 1.0), (0.0, 0.45), (0.45, 0.71), (0.71, 1.0)),
    "slim": ((0.0, 0.218), (0.218, 0.533), (0.533, 0.533), (0.533, 0.76), (0.76, 1.0)),
    "tiny": ((0.0, 0.3), (0.3, 0.7), (0.7, 0.7), (0.7, 1.0), (1.0, 1.0)),
}
"""Left and right end of each value of `tile_model.METRICS`, as shares of the width."""
_NARROWEST_SPARK, _SLIM_GAP = 24, 3
_MOST_HELD = 0.7
"""The share of the first line that who has the device may take."""
_BAR, _GAP = 3, 2
"""Height of the bar under a value, and the distance between them."""
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


def narrowest(form: Form) -> int:
    """Return the pixels of width that a form needs."""
    return 2 * theme.M + theme.px(_NARROWEST[form] - 2 * theme.M)


@dataclass(frozen=True)
class TileText:
    """One text of a tile in its place."""

    box: QRectF
    text: str
    font: QFont
    meaning: str = ""
    """A meaning of `theme.meaning_color`, or "muted"."""
    tooltip: str = ""
    side: int = _LEFT
    share: float | None = None
    """The filled share of the bar under the text."""
    bar: bool = False

    @cached_property
    def area(self) -> QRect:
        """Return the rectangle of all that is painted."""
        return self.box.adjusted(0, 0, 0, _GAP + _BAR if self.bar else 0).toAlignedRect()


class TileView(QFrame):
    """Show the device's name and holder in the first line, and its values below.

    It paints its texts itself: with labels, every text that changes would have the whole strip
    laid out again. Only what changed is painted. Emits `opened` on a click and on Return.
    A free device invites to start a job: `job_wanted` is emitted on a click there, and on N.
    """

    opened = Signal()
    job_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.tile: Tile | None = None
        self.form: Form = "compact"
        self.header: list[TileText] = []
        self.values: list[TileText] = []
        self.load = np.empty(0)
        """The utilisation of the last minute, which is painted beside its value."""
        self._invitation = QRectF()
        """Where a click wants a job; empty unless the device is free."""
        self._ring = QRectF()
        """Where the progress of the job is shown as a ring; empty where it is not known."""
        self._bold, self._small = theme.font(strong=True), theme.font(theme.SMALL)
        self._line = QFontMetricsF(self._bold).height()
        self._caption = QFontMetricsF(self._small).height()

    def show_tile(self, tile: Tile) -> None:
        """Paint what differs from the tile that is shown."""
        if tile == self.tile:
            return
        before, self.tile = self.tile, tile
        self.setAccessibleName(tile.title)
        values = (f"{metric.caption} {metric.text}" for metric in tile.metrics)
        self.setAccessibleDescription(", ".join((tile.holder, *values)))
        if before is None or _without_values(before) != _without_values(tile):
            self._place()
            return
        for at, (old, new) in enumerate(zip(before.metrics, tile.metrics, strict=True)):
            if old != new:
                self.values[at] = self._value(at, new)
                self.update(self.values[at].area)

    def show_load(self, load: Floats) -> None:
        """Paint another sparkline of the utilisation."""
        if not np.array_equal(load, self.load, equal_nan=True):
            self.load = load
            if self.values:
                self.update(self.values[UTILISATION].area)

    def set_form(self, form: Form) -> None:
        """Lay out the tile in another form."""
        if form != self.form:
            self.form = form
            self.updateGeometry()
            self._place()

    @property
    def texts(self) -> list[TileText]:
        """Return everything that is written on the tile."""
        return self.header + self.values

    def sizeHint(self) -> QSize:
        return QSize(narrowest("compact"), self.height_as(self.form))

    def height_as(self, form: Form) -> int:
        """Return the pixels of height that the form needs."""
        match form:
            case "slim" | "tiny":
                return round(2 * theme.XS + self._line + self._caption + _BAR + _GAP)
            case "wide":
                values = self._caption + self._line + _BAR + 5
            case "compact":
                values = 2 * self._line + _BAR + 6
        return round(2 * theme.S + self._line + 6 + values)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        for text in self.texts:
            if event.region().intersects(text.area):
                _paint(painter, text)
        if self.tile is not None and not self._ring.isEmpty():
            draw_ring(painter, self._ring, self.tile.progress or 0.0)
        if self.values and event.region().intersects(self.values[UTILISATION].area):
            self._paint_load(painter, self.values[UTILISATION])
        if self.hasFocus():
            painter.setPen(QColor(theme.tokens().accent))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._invitation.contains(event.position()):
            self.job_wanted.emit()
        elif self.rect().contains(event.position().toPoint()):
            self.opened.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.opened.emit()
        elif event.key() == Qt.Key.Key_N and self.tile is not None and self.tile.free:
            self.job_wanted.emit()
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        return show_tooltip(self, event, self._tooltip_at) or super().event(event)

    def _tooltip_at(self, point: QPointF) -> str:
        return next((t.tooltip for t in self.texts if t.area.contains(point.toPoint())), "")

    def _paint_load(self, painter: QPainter, value: TileText) -> None:
        """Paint the sparkline in the room beside the utilisation."""
        needed = _advance(value.font, "100 %") + theme.S
        room = value.box.adjusted(needed, 2, 0, -1)
        if room.width() >= _NARROWEST_SPARK:
            draw_sparkline(painter, room, self.load, 100.0)

    def _place(self) -> None:
        if self.tile is not None:
            self.header = self._header(self.tile)
            self.values = [self._value(at, metric) for at, metric in enumerate(self.tile.metrics)]
        self.update()

    def _header(self, tile: Tile) -> list[TileText]:
        """Place title and badge on the left, the holder on the right, and the name between them."""
        left, right = float(theme.M), self.width() - float(theme.M)
        title = TileText(self._box(left, _advance(self._bold, tile.title)), tile.title, self._bold)
        texts = [title]
        left = title.box.right() + theme.S
        # the badge above all tiles says that it is recorded
        if tile.warning:
            wide = min(_advance(self._small, tile.warning), right - left)
            shown = _elided(self._small, tile.warning, wide)
            box = self._box(left, wide)
            texts.append(TileText(box, shown, self._small, tile.worst, tile.warning))
            left = box.right() + theme.S
        if tile.alert:
            word = tr("alert")
            box = self._box(left, min(_advance(self._small, word), max(right - left, 0.0)))
            meaning = "muted" if tile.calm else "hot"
            texts.append(TileText(box, word, self._small, meaning, tile.alert))
            left = box.right() + theme.S
        held = self._place_holder(texts, tile, left, right)
        room = max(right - held - (theme.S if held else 0) - left, 0.0)
        note = "" if tile.replay else tile.note
        name = " · ".join(text for text in (tile.name, note) if text)
        shown = _elided(self._small, name, room)
        texts.append(TileText(self._box(left, room), shown, self._small, "muted", name))
        if self.form == "wide":
            for at, metric in enumerate(tile.metrics):
                value = self._value(at, metric)
                box = value.box.translated(0, -self._caption)
                box.setHeight(self._caption)
                texts.append(TileText(box, metric.caption, self._small, "muted", value.tooltip))
        return texts

    def _place_holder(self, texts: list[TileText], tile: Tile, left: float, right: float) -> float:
        """Place on the right who has the device, with a ring, or the invitation of a free one.

        Returns:
            The width that this takes.
        """
        text = "" if tile.replay and tile.usage == "recorded" else tile.holder
        meaning, tooltip = "muted" if tile.quiet else "", f"{tile.holder}: {tile.holder_tooltip}"
        font = self._small
        if tile.free:
            text, meaning = tr("Free · New job"), "accent"
            tooltip = tr("{state}. Click here, or press N, to start a job on it", state=tooltip)
            font = theme.font(theme.SMALL, strong=True)
            if _advance(font, text) > _MOST_HELD * (right - left):
                text = tr("Free")
        held = min(_advance(font, text), _MOST_HELD * (right - left)) if text else 0.0
        box = self._box(right - held, held)
        texts.append(TileText(box, _elided(font, text, held), font, meaning, tooltip, _RIGHT))
        self._invitation = box.adjusted(-theme.S, -theme.XS, theme.S, 0) if tile.free else QRectF()
        self._ring = QRectF()
        if tile.progress is None or not text:
            return held
        size = self._caption - 3
        self._ring = QRectF(box.left() - size - theme.XS, box.center().y() - size / 2, size, size)
        return held + size + theme.XS

    def _value(self, at: int, metric: TileMetric) -> TileText:
        """Place the value at the index `at` of `tile_model.METRICS`."""
        judged = f" {tr(metric.meaning)}\n" if metric.meaning else " "
        tooltip = f"{metric.caption}:{judged}{metric.tooltip}"
        about = self.tile.meaning_of(at) if self.tile is not None else metric.meaning
        meaning = about or ("muted" if metric.text == NOT_AVAILABLE else "")
        slim = self.form in _LOW_FORMS
        start, end = _PLACES[self.form][at]
        room = self.width() - 2 * theme.M
        gap = _SLIM_GAP if slim else theme.S
        width = max((end - start) * room - (gap if end < 1.0 else 0), 0.0)
        box = self._box(theme.M + start * room, width)
        if slim:
            box = QRectF(box.left(), box.bottom(), box.width(), self._caption)
        else:
            box.translate(0, self._line + 6)
        if self.form == "wide":
            box.translate(0, self._caption)
        elif self.form == "compact" and at > 1:
            box.translate(0, self._line + _BAR + 6)
        text = metric.slim_text if slim else metric.text
        if start == end:
            text = ""
        elif metric.short_text and not slim and _advance(self._bold, text) > box.width():
            text = metric.short_text
        return TileText(
            box,
            text,
            self._small if slim else self._bold,
            meaning,
            tooltip,
            share=metric.share,
            bar=metric.bar,
        )

    def _box(self, left: float, width: float) -> QRectF:
        top = theme.XS if self.form in _LOW_FORMS else theme.S
        return QRectF(left, top, width, self._line)


def _without_values(tile: Tile) -> tuple[object, ...]:
    return (
        *(tile.title, tile.name, tile.note, tile.replay, tile.holder, tile.holder_tooltip),
        *(tile.warning, tile.meaning, tile.free, tile.progress, tile.alert, tile.calm),
        tile.alerted,
    )


def _advance(font: QFont, text: str) -> float:
    return QFontMetricsF(font).horizontalAdvance(text) + 1


def _elided(font: QFont, text: str, room: float) -> str:
    return QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideRight, room - 1)


def _paint(painter: QPainter, text: TileText) -> None:
    painter.setFont(text.font)
    painter.setPen(QColor(theme.meaning_color(text.meaning)))
    painter.drawText(text.box, text.side, text.text)
    if text.bar:
        box = QRectF(text.box.left(), text.box.bottom() + _GAP, text.box.width(), _BAR)
        draw_share(painter, box, text.share)
