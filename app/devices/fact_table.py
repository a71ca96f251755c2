"""Paint captions on the left and values on the right, each with a tooltip that explains it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter
from PySide6.QtWidgets import QSizePolicy

from gpudeck.app.devices.device_facts import DeviceFact
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart

_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)
_PADDING = 4


class FactTable(MarkChart):
    """Show the facts of one group."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.facts: tuple[DeviceFact, ...] = ()
        self.unfolded = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def shown(self) -> tuple[DeviceFact, ...]:
        """Return the facts that are painted."""
        return tuple(fact for fact in self.facts if self.unfolded or not fact.minor)

    def unfold(self, unfolded: bool) -> None:
        """Paint also the facts that few people look at, or leave them out again."""
        self.unfolded = unfolded
        self.renew()
        self.updateGeometry()

    def show_facts(self, facts: tuple[DeviceFact, ...]) -> None:
        """Paint the lines that changed."""
        before, self.facts = self.shown, facts
        if [f.label for f in before] != [f.label for f in self.shown]:
            self.renew()
            self.updateGeometry()
            return
        for at, (old, new) in enumerate(zip(before, self.shown, strict=True)):
            if old != new:
                self.update(self._line(at).toAlignedRect())
        if self.current is not None:
            self.setAccessibleDescription(self.marks()[self.current].tooltip)

    def sizeHint(self) -> QSize:
        return QSize(260, round(sum(self._height(fact) for fact in self.shown)))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.sizeHint().height())

    def marks(self) -> list[ChartMark]:
        return [
            ChartMark(self._line(at), f"{fact.label} {fact.value}\n{fact.tooltip}")
            for at, fact in enumerate(self.shown)
        ]

    def draw(self, painter: QPainter) -> None:
        t, plain = theme.tokens(), theme.font()
        large = theme.font(theme.LARGE, strong=True)
        for at, fact in enumerate(self.shown):
            line = self._line(at).adjusted(2, 0, -2, 0)
            painter.setFont(plain)
            painter.setPen(QColor(t.muted))
            painter.drawText(line, _LEFT, fact.label)
            room = line.width() - painter.fontMetrics().horizontalAdvance(fact.label) - theme.M
            painter.setFont(large if fact.lead else plain)
            if not fact.absent and not fact.zero:
                painter.setPen(QColor(theme.meaning_color(fact.meaning)))
            elide = Qt.TextElideMode.ElideRight
            value = painter.fontMetrics().elidedText(fact.value, elide, int(room))
            painter.drawText(line, _RIGHT, value)

    def _height(self, fact: DeviceFact) -> float:
        size = theme.font(theme.LARGE, strong=True) if fact.lead else theme.font()
        return float(QFontMetrics(size).height() + _PADDING)

    def _line(self, at: int) -> QRectF:
        shown = self.shown
        above = sum(self._height(fact) for fact in shown[:at])
        return QRectF(0, above, self.width(), self._height(shown[at]))
