"""Paint contenders side by side: a group of bars a sequence length, with lines from P5 to P95."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter

from gpudeck.app.charts.scales import ticks
from gpudeck.app.language.texts import tr, tr_decimal
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart
from gpudeck.app.workloads.comparison import TARGET, Comparison, ComparisonBar
from gpudeck.app.workloads.legend import contender_color, draw_legend

_HEADROOM = 1.02
_LEAST_LEFT, _BELOW, _ABOVE, _WIDEST, _BETWEEN = 44.0, 20.0, 18.0, 40.0, 20.0
_CAPTION = 16.0
_CENTER = int(Qt.AlignmentFlag.AlignCenter)
_TOP_CENTER = int(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
_RIGHT = int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)


class ComparisonView(MarkChart):
    """Show a comparison; a cross stands for a contender that failed or was not measured."""

    def __init__(self) -> None:
        super().__init__(tr("Comparison of backends"))
        self.comparison = Comparison((), (), 0.0, "")
        self._top = 0.0
        self.setMinimumHeight(140)

    def show_comparison(self, comparison: Comparison) -> None:
        """Show another comparison."""
        if comparison != self.comparison:
            self.comparison = comparison
            self.renew()

    def sizeHint(self) -> QSize:
        return QSize(600, 400)

    def marks(self) -> list[ChartMark]:
        return [ChartMark(box.adjusted(-1, -2, 1, 0), bar.tooltip) for box, bar in self._placed()]

    def draw(self, painter: QPainter) -> None:
        contenders = self.comparison.contenders
        self._top = draw_legend(painter, contenders, self.width()) + _ABOVE
        self._draw_axis(painter)
        for box, bar in self._placed():
            self._draw_bar(painter, box, bar)
        t = theme.tokens()
        for i, group in enumerate(self.comparison.groups):
            left, width = self._group_place(i)
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(left, self._base, width, _BELOW), _CENTER, group.label)
            if group.ratio is not None:
                painter.setPen(QColor(t.warm if group.ratio < TARGET else t.text))
                box = QRectF(left, self._top - _ABOVE, width, _ABOVE)
                ratio = tr_decimal(f"{group.ratio:.2f}")
                painter.drawText(box, _CENTER, tr("auto = {ratio} × best", ratio=ratio))

    def _draw_bar(self, painter: QPainter, box: QRectF, bar: ComparisonBar) -> None:
        t = theme.tokens()
        if not bar.tflops or bar.failed:
            painter.setPen(QColor(t.failed if bar.failed else t.muted))
            painter.drawText(box.adjusted(-4, -14, 4, 0), _TOP_CENTER, "×")
            return
        color = contender_color(self.comparison.contenders, bar.contender)
        painter.fillRect(box, color)
        painter.setPen(QColor(t.text))
        x = int(box.center().x())
        painter.drawLine(x, int(self._y(bar.low)), x, int(self._y(bar.high)))

    def _draw_axis(self, painter: QPainter) -> None:
        t, left = theme.tokens(), self._left
        for at in ticks(self._highest):
            y = self._y(at)
            line = QRectF(left, y, self.width() - left, 1)
            painter.fillRect(line, QColor(t.grid if at else t.line))
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(0, y - 8, left - 6, 16), _RIGHT, tr_decimal(f"{at:g}"))
        caption = (
            tr("{unit}, by sequence length", unit="TFLOP/s")
            if self.comparison.of_tokens
            else tr("{unit}, by size", unit="TFLOP/s")
        )
        box = QRectF(left, self._base + _BELOW, self.width() - left, _CAPTION)
        painter.drawText(box, _CENTER, caption)

    @property
    def _left(self) -> float:
        """Return the left edge of the bars, right of the widest number."""
        numbers = (tr_decimal(f"{at:g}") for at in ticks(self._highest))
        return max(_LEAST_LEFT, 8 + max(map(self.fontMetrics().horizontalAdvance, numbers)))

    @property
    def _highest(self) -> float:
        return self.comparison.highest * _HEADROOM or 1.0

    @property
    def _base(self) -> float:
        return self.height() - _BELOW - _CAPTION

    def _y(self, tflops: float) -> float:
        return self._base - (self._base - self._top) * tflops / self._highest

    def _group_place(self, index: int) -> tuple[float, float]:
        """Return the left edge and the width of a group."""
        left = self._left
        width = (self.width() - left) / max(len(self.comparison.groups), 1)
        return left + index * width, width

    def _placed(self) -> list[tuple[QRectF, ComparisonBar]]:
        """Return each bar with its rectangle."""
        found = []
        for i, group in enumerate(self.comparison.groups):
            left, width = self._group_place(i)
            bar_width = min((width - _BETWEEN) / max(len(group.bars), 1), _WIDEST)
            start = left + (width - bar_width * len(group.bars)) / 2
            for j, bar in enumerate(group.bars):
                top = self._y(bar.tflops)
                height = max(self._base - top, 1)
                x = start + j * bar_width
                found.append((QRectF(x, top, max(bar_width - 1, 1), height), bar))
        return found
