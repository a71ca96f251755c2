"""Captions on the left, values on the right, painted: each can be pointed at for what it means and how it came about."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QSizePolicy

from app.devices.parts import Fact
from app.widgets import theme
from app.widgets.mark_chart import ChartMark, MarkChart

_LEFT = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextSingleLine)
_RIGHT = int(
    Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight | Qt.TextFlag.TextSingleLine
)
_PADDING = 7


class Facts(MarkChart):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.facts: tuple[Fact, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_facts(self, facts: tuple[Fact, ...]) -> None:
        """Paint the lines that changed."""
        before, self.facts = self.facts, facts
        if [f.label for f in before] != [f.label for f in facts]:
            self.renew()
            self.updateGeometry()
            return
        for at, (old, new) in enumerate(zip(before, facts, strict=True)):
            if old != new:
                self.update(self._line(at).toAlignedRect())
        if self.current is not None:
            self.setAccessibleDescription(self.marks()[self.current].tooltip)

    def sizeHint(self) -> QSize:
        return QSize(260, round(len(self.facts) * self._height()))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.sizeHint().height())

    def marks(self) -> list[ChartMark]:
        return [
            ChartMark(self._line(at), f"{fact.label} {fact.value}\n{fact.tooltip}")
            for at, fact in enumerate(self.facts)
        ]

    def draw(self, painter: QPainter) -> None:
        t, strong = theme.tokens(), theme.font(strong=True)
        plain = theme.font()
        for at, fact in enumerate(self.facts):
            line = self._line(at).adjusted(2, 0, -2, 0)
            painter.setFont(plain)
            painter.setPen(QColor(t.muted))
            painter.drawText(line, _LEFT, fact.label)
            room = line.width() - painter.fontMetrics().horizontalAdvance(fact.label) - theme.M
            painter.setFont(strong)
            painter.setPen(QColor(t.muted if fact.absent else theme.meaning_color(fact.meaning)))
            painter.drawText(
                line,
                _RIGHT,
                painter.fontMetrics().elidedText(
                    fact.value, Qt.TextElideMode.ElideRight, int(room)
                ),
            )

    def _height(self) -> float:
        return float(self.fontMetrics().height() + _PADDING)

    def _line(self, at: int) -> QRectF:
        return QRectF(0, at * self._height(), self.width(), self._height())
