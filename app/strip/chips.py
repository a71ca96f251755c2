"""Show all devices in one line, above the pages that are not about the devices."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QSizePolicy

from gpudeck.app.format.values import shortest_label
from gpudeck.app.language.texts import tr
from gpudeck.app.strip.chip_model import Chip, device_chip, fleet_chip, machine_chips
from gpudeck.app.strip.tile_model import Tile
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart

_HEIGHT, _GAP = 26, 4
_NARROW, _WIDEST_CHIP = 58, 190
"""The least width of a chip with nothing but a number and one value, and the most of any."""
_DOT = 7
_FULL = "100 °C"
_WIDEST = f"100 %  {_FULL}"
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (
        Qt.AlignmentFlag.AlignLeft,
        Qt.AlignmentFlag.AlignRight,
    )
)


class ChipLine(MarkChart):
    """Paint a chip for each device; where a line has no room for all, one for each machine.

    Emits `opened` with a device on a click, and on Return for the current one; for the chip of
    several devices `overviewed` with their machine.
    """

    opened = Signal(str)
    overviewed = Signal(str)

    def __init__(self) -> None:
        super().__init__(tr("Devices"))
        self.chips: tuple[Chip, ...] = ()
        self._tiles: tuple[Tile, ...] = ()
        self.shown = ""
        """The device whose page is shown; empty on all other pages."""
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_tiles(self, tiles: tuple[Tile, ...]) -> None:
        """Paint the chips that changed."""
        self._tiles = tiles
        self._choose_chips(self.width())

    def mark_shown(self, device: str) -> None:
        """Mark the chip of the device whose page is shown; none if it is empty."""
        if device != self.shown:
            self.shown = device
            self.update()

    def fit(self, width: int) -> int:
        """Choose chips that have room in a line; return its height."""
        self._choose_chips(width)
        return theme.px(_HEIGHT)

    def _choose_chips(self, width: int) -> None:
        before, self.chips = self.chips, self._fitting(width)
        if [(c.device, c.host) for c in before] != [(c.device, c.host) for c in self.chips]:
            self.renew()
            return
        for at, (old, new) in enumerate(zip(before, self.chips, strict=True)):
            if old != new:
                self.update(self._box(at).toAlignedRect())

    def _fitting(self, width: int) -> tuple[Chip, ...]:
        """Return a chip for each device, for each machine, or one for all: what has room."""
        short = max((shortest_label(tile.title) for tile in self._tiles), key=len, default="")
        narrowest = max(theme.px(_NARROW), _advance(short, _FULL) + 3 * theme.XS)
        if len(self._tiles) * (narrowest + _GAP) - _GAP <= width:
            return tuple(device_chip(tile) for tile in self._tiles)
        machines = machine_chips(self._tiles)
        if sum(_needed(made) + _GAP for made in machines) - _GAP <= width:
            return machines
        return (fleet_chip(self._tiles),)

    @property
    def summed(self) -> bool:
        """Report if a chip stands for several devices."""
        return bool(self.chips) and not self.chips[0].device

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
        """Report if every chip has room for its whole title and one value."""
        return self._has_room(_FULL)

    def _has_room(self, widest: str) -> bool:
        title = max((made.title for made in self.chips), key=len, default="")
        needed = _advance(title, widest) + 2 * theme.S + _DOT + 2 * theme.XS
        return needed <= self._box(0).width()

    def draw(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for at, made in enumerate(self.chips):
            named = self.summed or self.named
            title = made.title if named else shortest_label(made.title)
            box = self._box(at)
            _draw_frame(painter, box, chosen=bool(made.device) and made.device == self.shown)
            _draw_chip(painter, box, made, title, self.summed or self.whole)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        at = self.mark_at(event.position())
        if at is not None:
            self._open(self.chips[at])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
        if event.key() in keys and self.current is not None:
            self._open(self.chips[self.current])
        else:
            super().keyPressEvent(event)

    def _open(self, made: Chip) -> None:
        if made.device:
            self.opened.emit(made.device)
        else:
            self.overviewed.emit(made.host)

    def _box(self, at: int) -> QRectF:
        if self.summed:
            left = sum(_needed(made) + _GAP for made in self.chips[:at])
            pitch = min(_needed(self.chips[at]) + _GAP, self.width() - left + _GAP)
        else:
            widest = theme.px(_WIDEST_CHIP) + _GAP
            pitch = min((self.width() + _GAP) / max(len(self.chips), 1), widest)
            left = at * pitch
        return QRectF(left, 0, pitch - _GAP, theme.px(_HEIGHT)).adjusted(0.5, 0.5, -0.5, -0.5)


def _advance(title: str, text: str) -> float:
    """Return the pixels that a title and the text of its values take."""
    strong, small = theme.font(theme.SMALL, strong=True), theme.font(theme.SMALL)
    width = QFontMetricsF(strong).horizontalAdvance(title)
    return width + QFontMetricsF(small).horizontalAdvance(text)


def _needed(made: Chip) -> float:
    """Return the width of a chip that shows everything."""
    return _advance(made.title, made.text) + 2 * theme.S + _DOT + theme.XS + theme.M


def _draw_frame(painter: QPainter, box: QRectF, *, chosen: bool) -> None:
    t = theme.tokens()
    painter.setPen(QColor(t.accent if chosen else t.line))
    painter.setBrush(QColor(t.accent_soft if chosen else t.surface))
    painter.drawRoundedRect(box, 6, 6)


def _draw_chip(painter: QPainter, box: QRectF, made: Chip, title: str, whole: bool) -> None:
    """Paint the title on the left and the values on the right, over a line as long as the load.

    Args:
        whole: There is room for all values; else only the one that is coloured, or the first.
    """
    t = theme.tokens()
    pad = theme.S if whole or title == made.title else theme.XS
    left, right = box.left() + pad, box.right() - pad
    spare = right - left - _advance(title, made.cause.text) - theme.XS
    dotted = bool(made.meaning) and spare >= _DOT + theme.XS
    if dotted:
        dot = QRectF(left, box.center().y() - _DOT / 2, _DOT, _DOT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(theme.meaning_color(made.meaning)))
        painter.drawEllipse(dot)
        left = dot.right() + theme.XS
    strong, small = theme.font(theme.SMALL, strong=True), theme.font(theme.SMALL)
    line = QRectF(left, box.top(), right - left, box.height() - 2)
    painter.setFont(strong)
    painter.setPen(QColor(t.text if dotted else theme.meaning_color(made.meaning)))
    painter.drawText(line, _LEFT, title)
    left += QFontMetricsF(strong).horizontalAdvance(title) + theme.XS
    painter.setFont(small)
    metrics = QFontMetricsF(small)
    everything = whole and metrics.horizontalAdvance(made.text) <= right - left
    for value in reversed(made.values) if everything else (made.cause,):
        painter.setPen(QColor(theme.meaning_color(value.meaning or "muted")))
        line.setRight(right)
        painter.drawText(line, _RIGHT, value.text)
        right -= metrics.horizontalAdvance(f"  {value.text}")
    if made.share is not None:
        load = QRectF(box.left() + 6, box.bottom() - 3, (box.width() - 12) * made.share, 2)
        painter.fillRect(load, QColor(t.muted))  # in the accent colour it would look selected
