"""One device in the strip on top."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QToolTip, QWidget

from app.strip.tile_model import QUIET, Metric, Tile
from app.widgets import theme

Form = Literal["wide", "compact", "slim"]
"""Five captioned columns; two rows whose units speak for themselves; one row of what matters most."""
NARROWEST: dict[Form, int] = {"wide": 540, "compact": 272, "slim": 216}
"""Pixels of width that each form needs."""
_BAR, _GAP = 3, 2
"""Height of the line under a value, and what is between them."""
_WITH_BAR = ("Utilisation", "Memory")
_COLUMNS = ((0.0, 0.18), (0.18, 0.45), (0.45, 0.66), (0.66, 0.84), (0.84, 1.0))
_TWO_ROWS = ((0.0, 0.45), (0.45, 1.0), (0.0, 0.45), (0.45, 0.71), (0.71, 1.0))
_ONE_ROW = ((0.0, 0.2), (0.2, 0.54), (0.54, 0.54), (0.54, 0.77), (0.77, 1.0))
_PLACES = {"wide": _COLUMNS, "compact": _TWO_ROWS, "slim": _ONE_ROW}
"""Where each of the five values lies, as shares of the width."""


_LEFT, _RIGHT, _MIDDLE = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (
        Qt.AlignmentFlag.AlignLeft,
        Qt.AlignmentFlag.AlignRight,
        Qt.AlignmentFlag.AlignHCenter,
    )
)


@dataclass(frozen=True)
class Cell:
    """One piece of text in its place. `meaning` is what `theme.meaning_color` takes, or muted, or badge."""

    box: QRectF
    text: str
    font: QFont
    meaning: str = ""
    tooltip: str = ""
    side: int = _LEFT
    share: float | None = None
    """Of the thin line under it, which there is where `bar` is set."""
    bar: bool = False

    @cached_property
    def area(self) -> QRect:
        """All that is painted of it."""
        return self.box.adjusted(0, 0, 0, _GAP + _BAR if self.bar else 0).toAlignedRect()


class TileView(QFrame):
    """Name, note and holder in the first line; the five headline values below.

    Painted, not made of labels: every label whose text changes has the whole strip laid out anew, and eight tiles are 200 of them.
    Only the cells that changed are painted again. Emits `opened` on a click, and on Return.
    """

    opened = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.tile: Tile | None = None
        self.form: Form = "compact"
        self.header: list[Cell] = []
        self.values: list[Cell] = []
        self._bold, self._small, self._badge = (
            theme.font(strong=True),
            theme.font(theme.SMALL),
            theme.font(theme.SMALL, strong=True),
        )
        self._line, self._caption = (
            QFontMetricsF(self._bold).height(),
            QFontMetricsF(self._small).height(),
        )

    def show_tile(self, tile: Tile) -> None:
        if tile == self.tile:
            return
        before, self.tile = self.tile, tile
        self.setAccessibleName(tile.title)
        self.setAccessibleDescription(
            ", ".join((tile.holder, *(f"{m.caption} {m.text}" for m in tile.metrics)))
        )
        if before is None or _head(before) != _head(tile):
            self._place()
            return
        for at, (old, new) in enumerate(zip(before.metrics, tile.metrics, strict=True)):
            if old != new:
                self.values[at] = self._value(at, new)
                self.update(self.values[at].area)

    def set_form(self, form: Form) -> None:
        if form != self.form:
            self.form = form
            self.updateGeometry()
            self._place()

    @property
    def cells(self) -> list[Cell]:
        """Everything that is written."""
        return self.header + self.values

    def sizeHint(self) -> QSize:
        return QSize(NARROWEST["compact"], self.height_as(self.form))

    def height_as(self, form: Form) -> int:
        """Pixels that it needs in this form."""
        if form == "slim":
            return round(2 * theme.XS + self._line + self._caption + _BAR + _GAP)
        values = (
            self._caption + self._line + _BAR + 5 if form == "wide" else 2 * self._line + _BAR + 6
        )
        return round(2 * theme.S + self._line + 6 + values)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, t, region = QPainter(self), theme.tokens(), event.region()
        for cell in self.cells:
            if region.intersects(cell.area):
                _paint(painter, cell, t)
        if self.hasFocus():
            painter.setPen(QColor(t.accent))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self.rect().contains(event.position().toPoint()):
            self.opened.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.opened.emit()
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            QToolTip.showText(
                event.globalPos(),
                next((c.tooltip for c in self.cells if c.area.contains(event.pos())), ""),
                self,
            )
            return True
        return super().event(event)

    def _place(self) -> None:
        if self.tile is not None:
            self.header = self._header(self.tile)
            self.values = [self._value(at, metric) for at, metric in enumerate(self.tile.metrics)]
        self.update()

    def _header(self, tile: Tile) -> list[Cell]:
        """Title and badge as wide as they are, the holder on the right, and the name in what is left."""
        left, right = float(theme.M), self.width() - float(theme.M)
        found = [Cell(self._box(left, _advance(self._bold, tile.title)), tile.title, self._bold)]
        if tile.replay:
            box = self._box(found[-1].box.right() + theme.S, _advance(self._badge, "REPLAY") + 12)
            found.append(Cell(box, "REPLAY", self._badge, "badge", side=_MIDDLE))
        left = found[-1].box.right() + theme.S
        held = min(_advance(self._small, tile.holder), 0.7 * (right - left))
        holder, quiet = (
            _elided(self._small, tile.holder, held),
            "muted" if tile.holder in QUIET else "",
        )
        found.append(
            Cell(
                self._box(right - held, held),
                holder,
                self._small,
                quiet,
                f"{tile.holder}: {tile.holder_tooltip}",
                _RIGHT,
            )
        )
        room, name = (
            max(right - held - theme.S - left, 0.0),
            " · ".join(t for t in (tile.name, tile.note) if t),
        )
        found.append(
            Cell(
                self._box(left, room), _elided(self._small, name, room), self._small, "muted", name
            )
        )
        if self.form == "wide":
            values = [self._value(at, metric) for at, metric in enumerate(tile.metrics)]
            boxes = (
                QRectF(v.box.left(), v.box.top() - self._caption, v.box.width(), self._caption)
                for v in values
            )
            captions = zip(boxes, tile.metrics, values, strict=True)
            found += [
                Cell(box, m.caption, self._small, "muted", v.tooltip) for box, m, v in captions
            ]
        return found

    def _value(self, at: int, metric: Metric) -> Cell:
        words = (
            f"{metric.caption}: {metric.meaning}\n{metric.tooltip}"
            if metric.meaning
            else f"{metric.caption}: {metric.tooltip}"
        )
        start, end = _PLACES[self.form][at]
        room, gap = (
            self.width() - 2 * theme.M,
            0 if end == 1.0 else theme.XS if self.form == "slim" else theme.S,
        )
        look = metric.meaning or ("muted" if metric.text == "N/A" else "")
        bar = metric.caption in _WITH_BAR
        box = self._box(theme.M + start * room, max((end - start) * room - gap, 0.0))
        if self.form == "slim":
            box = QRectF(box.left(), box.bottom(), box.width(), self._caption)
            return Cell(box, metric.short, self._small, look, words, share=metric.share, bar=bar)
        down = (
            self._line
            + 6
            + (self._caption if self.form == "wide" else self._line + _BAR + 6 if at > 1 else 0)
        )
        return Cell(
            box.translated(0, down),
            metric.text,
            self._bold,
            look,
            words,
            share=metric.share,
            bar=bar,
        )

    def _box(self, left: float, width: float) -> QRectF:
        return QRectF(left, theme.XS if self.form == "slim" else theme.S, width, self._line)


def _head(tile: Tile) -> tuple[object, ...]:
    """All but its values."""
    return tile.title, tile.name, tile.note, tile.replay, tile.holder, tile.holder_tooltip


def _advance(font: QFont, text: str) -> float:
    return QFontMetricsF(font).horizontalAdvance(text) + 1


def _elided(font: QFont, text: str, room: float) -> str:
    return QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideRight, room)


def _paint(painter: QPainter, cell: Cell, t: theme.Tokens) -> None:
    if cell.meaning == "badge":
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(t.text))
        painter.drawRoundedRect(cell.box, 3, 3)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
    painter.setFont(cell.font)
    painter.setPen(
        QColor(t.surface if cell.meaning == "badge" else getattr(t, cell.meaning or "text"))
    )
    painter.drawText(cell.box, cell.side, cell.text)
    if cell.bar:
        line = QRectF(cell.box.left(), cell.box.bottom() + _GAP, cell.box.width(), _BAR)
        painter.fillRect(line, QColor(t.line))
        line.setWidth(line.width() * (cell.share or 0.0))
        painter.fillRect(line, QColor(t.accent))
