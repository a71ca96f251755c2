"""Show all devices in a line or two, above the pages that are not about the devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.format.values import Meaning, lane_label, shortest_label
from app.strip.tile_model import TEMPERATURE, UTILISATION, Tile
from app.widgets import theme
from app.widgets.mark_chart import ChartMark, MarkChart

_WIDTH, _HEIGHT, _GAP = 128, 26, 4
_NARROW, _WIDEST_CHIP = 58, 190
"""The least width of a chip with nothing but a number and the utilisation, and the most of any."""
_MOST_LINES = 2
"""Lines of chips; more devices become cells."""
_DENSE_WIDTH, _DENSE_HEIGHT, _DENSE_GAP = 11, 20, 2
"""The size of a cell that has room for nothing but its colour, or for a number."""
_NUMBER = 26
"""The least width of a dense cell that shows the number of its device."""
_DOT = 7
_FULL = "100 %"
_WIDEST = f"{_FULL}  100 °C"
_LEFT, _RIGHT, _CENTER = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (
        Qt.AlignmentFlag.AlignLeft,
        Qt.AlignmentFlag.AlignRight,
        Qt.AlignmentFlag.AlignHCenter,
    )
)


@dataclass(frozen=True)
class Chip:
    """Describe one device in a few characters."""

    device: str
    title: str
    text: str
    share: float | None
    """Utilisation, 0 to 1; None if it is not known."""
    meaning: Meaning
    tooltip: str


def chip(tile: Tile) -> Chip:
    """Return the chip of a device."""
    util, temperature = tile.metrics[UTILISATION], tile.metrics[TEMPERATURE]
    parts = [util.text] if temperature.share is None else [util.text, temperature.text]
    values = (f"{m.caption} {m.text}" for m in tile.metrics)
    tooltip = "\n".join((f"{tile.title} · {tile.name}", tile.holder, *values))
    return Chip(tile.device, tile.title, "  ".join(parts), util.share, tile.meaning, tooltip)


class ChipLine(MarkChart):
    """Paint a chip for each device; for many, small cells in the colour of their utilisation.

    Emits `opened` with a device on a click, and on Return for the current one.
    """

    opened = Signal(str)

    def __init__(self) -> None:
        super().__init__("Devices")
        self.chips: tuple[Chip, ...] = ()
        self._dense = False
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_tiles(self, tiles: tuple[Tile, ...]) -> None:
        """Paint the chips that changed."""
        before, self.chips = self.chips, tuple(chip(tile) for tile in tiles)
        if [c.device for c in before] != [c.device for c in self.chips]:
            self.renew()
            return
        for at, (old, new) in enumerate(zip(before, self.chips, strict=True)):
            if old != new:
                self.update(self._box(at).toAlignedRect())

    def fit(self, width: int, room: int) -> int:
        """Choose chips, or small cells where chips are higher than `room`; return the height."""
        columns, height, gap = self._columns(width, dense=False)
        lines = -(-len(self.chips) // columns)
        dense = lines > _MOST_LINES or lines * (height + gap) - gap > room
        if dense != self._dense:
            self._dense = dense
            self.update()
        if dense:
            columns, height, gap = self._columns(width, dense=True)
            lines = min(-(-len(self.chips) // columns), max((room + gap) // (height + gap), 1))
        return max(lines * (height + gap) - gap, height)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, 0)

    def marks(self) -> list[ChartMark]:
        return [ChartMark(self._box(at), c.tooltip) for at, c in enumerate(self.chips)]

    @property
    def whole(self) -> bool:
        """Report if every chip has room for all its values, whatever they become."""
        if not self.chips:
            return True
        return self._has_room(_WIDEST)

    @property
    def named(self) -> bool:
        """Report if every chip has room for its whole title and the utilisation."""
        return self._has_room(_FULL)

    def _has_room(self, widest: str) -> bool:
        title = QFontMetricsF(theme.font(theme.SMALL, strong=True)).horizontalAdvance(
            max((made.title for made in self.chips), key=len, default="")
        )
        values = QFontMetricsF(theme.font(theme.SMALL)).horizontalAdvance(widest)
        needed = title + values + 2 * theme.S + _DOT + 2 * theme.XS
        return needed <= self._box(0).width()

    def draw(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for at, made in enumerate(self.chips):
            if self._dense:
                _draw_cell(painter, self._box(at), made)
            else:
                title = made.title if self.named else shortest_label(made.title)
                _draw_chip(painter, self._box(at), made, title, self.whole)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        at = self.mark_at(event.position())
        if at is not None:
            self.opened.emit(self.chips[at].device)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
        if event.key() in keys and self.current is not None:
            self.opened.emit(self.chips[self.current].device)
        else:
            super().keyPressEvent(event)

    def _columns(self, width: int, *, dense: bool) -> tuple[int, int, int]:
        """Return how many cells a line has, their height and the gap between them."""
        narrowest, height, gap = (
            (_DENSE_WIDTH, theme.px(_DENSE_HEIGHT), _DENSE_GAP)
            if dense
            else (theme.px(_WIDTH), theme.px(_HEIGHT), _GAP)
        )
        count = max(len(self.chips), 1)
        if not dense and (width + gap) // (theme.px(_NARROW) + gap) >= count:
            narrowest = theme.px(_NARROW)  # one line of small chips rather than two
        fit = max((width + gap) // (narrowest + gap), 1)
        lines = -(-count // fit)
        return -(-count // lines), height, gap

    def _box(self, at: int) -> QRectF:
        columns, height, gap = self._columns(self.width(), dense=self._dense)
        width = (self.width() + gap) / columns
        if not self._dense:
            width = min(width, theme.px(_WIDEST_CHIP) + gap)
        left, top = at % columns * width, at // columns * (height + gap)
        return QRectF(left, top, width - gap, height).adjusted(0.5, 0.5, -0.5, -0.5)


def _draw_chip(painter: QPainter, box: QRectF, made: Chip, title: str, whole: bool) -> None:
    """Paint the title on the left and the values on the right, over a line as long as the load.

    Args:
        whole: There is room for all values; else only the first one is shown.
    """
    t = theme.tokens()
    painter.setPen(QColor(t.line))
    painter.setBrush(QColor(t.surface))
    painter.drawRoundedRect(box, 6, 6)
    pad = theme.S if whole or title == made.title else theme.XS
    left = box.left() + pad
    if made.meaning and title == made.title:  # else the colour of the value says it
        dot = QRectF(left, box.center().y() - _DOT / 2, _DOT, _DOT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(theme.meaning_color(made.meaning)))
        painter.drawEllipse(dot)
        left = dot.right() + theme.XS
    room = QRectF(left, box.top(), box.right() - pad - left, box.height() - 2)
    strong, small = theme.font(theme.SMALL, strong=True), theme.font(theme.SMALL)
    need = QFontMetricsF(strong).horizontalAdvance(title)
    painter.setFont(strong)
    painter.setPen(QColor(t.text))
    painter.drawText(room, _LEFT, title)
    painter.setFont(small)
    painter.setPen(QColor(theme.meaning_color(made.meaning) if made.meaning else t.muted))
    left_over, metrics = room.width() - need - theme.XS, QFontMetricsF(small)
    texts = (made.text, made.text.split("  ")[0]) if whole else (made.text.split("  ")[0],)
    fitting = (text for text in texts if metrics.horizontalAdvance(text) <= left_over)
    painter.drawText(room, _RIGHT, next(fitting, ""))
    if made.share is not None:
        line = QRectF(box.left() + 6, box.bottom() - 3, (box.width() - 12) * made.share, 2)
        painter.fillRect(line, QColor(t.accent))


def _draw_cell(painter: QPainter, box: QRectF, made: Chip) -> None:
    """Paint a cell in the colour of the load; its lower edge has the colour of its meaning."""
    t = theme.tokens()
    ground = QColor(t.line) if made.share is None else _shade(round(made.share, 2), t.scheme)
    painter.fillRect(box, ground)
    if made.meaning:
        painter.fillRect(
            QRectF(box.left(), box.bottom() - 3, box.width(), 3),
            QColor(theme.meaning_color(made.meaning)),
        )
    if box.width() >= theme.px(_NUMBER):
        painter.setPen(theme.readable_on(ground))
        metrics = painter.fontMetrics()
        # the number alone would not tell devices of other machines from those of this one
        texts = (shortest_label(made.title), lane_label(made.title))
        fitting = (text for text in texts if metrics.horizontalAdvance(text) <= box.width() - 2)
        painter.drawText(box, _CENTER, next(fitting, ""))


@cache
def _shade(share: float, scheme: str) -> QColor:
    """Return the colour of a share in the current scheme, by which the cache tells them apart."""
    return theme.shade(share)
