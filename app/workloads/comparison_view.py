"""Contenders side by side: a group of bars a sequence length, with whiskers from P5 to P95."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter

from app.charts.scales import ticks
from app.widgets import theme
from app.widgets.mark_chart import ChartMark, MarkChart
from app.workloads.comparison import Bar, Comparison
from app.workloads.legend import contender_color, draw_legend

_HEADROOM = 1.02
_LEFT, _BELOW, _ABOVE, _WIDEST, _BETWEEN = 44.0, 20.0, 18.0, 40.0, 20.0
_CENTER = int(Qt.AlignmentFlag.AlignCenter)


class ComparisonView(MarkChart):
    def __init__(self) -> None:
        super().__init__("Comparison of backends")
        self.contest = Comparison((), (), 0.0, "")
        self._top = 0.0
        self.setMinimumHeight(140)

    def show_contest(self, contest: Comparison) -> None:
        if contest != self.contest:
            self.contest = contest
            self.renew()

    def sizeHint(self) -> QSize:
        return QSize(600, 400)

    def marks(self) -> list[ChartMark]:
        return [
            ChartMark(box.adjusted(-1, -2, 1, 0), bar.tooltip) for box, bar, _ in self._placed()
        ]

    def draw(self, painter: QPainter) -> None:
        t = theme.tokens()
        self._top = draw_legend(painter, self.contest.contenders, self.width()) + _ABOVE
        self._draw_axis(painter)
        for box, bar, which in self._placed():
            if not bar.tflops or bar.failed:
                painter.setPen(QColor(t.failed if bar.failed else t.muted))
                painter.drawText(
                    box.adjusted(-4, -14, 4, 0),
                    int(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop),
                    "×",
                )
                continue
            painter.fillRect(box, contender_color(which))
            painter.setPen(QColor(t.text))
            x = box.center().x()
            painter.drawLine(int(x), int(self._y(bar.low)), int(x), int(self._y(bar.high)))
        for i, group in enumerate(self.contest.groups):
            left, wide = self._group(i)
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(left, self._base, wide, _BELOW), _CENTER, group.label)
            if group.ratio:
                painter.setPen(QColor(t.warm if group.behind else t.text))
                painter.drawText(
                    QRectF(left, self._top - _ABOVE, wide, _ABOVE), _CENTER, f"auto {group.ratio}"
                )

    def _draw_axis(self, painter: QPainter) -> None:
        t = theme.tokens()
        for at in ticks(self._highest):
            y = self._y(at)
            painter.fillRect(
                QRectF(_LEFT, y, self.width() - _LEFT, 1), QColor(t.line if not at else t.grid)
            )
            painter.setPen(QColor(t.muted))
            painter.drawText(
                QRectF(0, y - 8, _LEFT - 6, 16),
                int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter),
                f"{at:g}",
            )

    @property
    def _highest(self) -> float:
        return self.contest.highest * _HEADROOM or 1.0

    @property
    def _base(self) -> float:
        return self.height() - _BELOW

    def _y(self, tflops: float) -> float:
        return self._base - (self._base - self._top) * tflops / self._highest

    def _group(self, index: int) -> tuple[float, float]:
        """Left edge and width of a group's share of the plot."""
        wide = (self.width() - _LEFT) / max(len(self.contest.groups), 1)
        return _LEFT + index * wide, wide

    def _placed(self) -> list[tuple[QRectF, Bar, int]]:
        """Each bar's box, and which contender it is."""
        found = []
        for i, group in enumerate(self.contest.groups):
            left, wide = self._group(i)
            bar_wide = min((wide - _BETWEEN) / max(len(group.bars), 1), _WIDEST)
            start = left + (wide - bar_wide * len(group.bars)) / 2
            for j, bar in enumerate(group.bars):
                top = self._y(bar.tflops)
                box = QRectF(
                    start + j * bar_wide, top, max(bar_wide - 1, 1), max(self._base - top, 1)
                )
                found.append((box, bar, self.contest.contenders.index(bar.contender)))
        return found
