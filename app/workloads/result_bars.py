"""Paint the newest results of a workload as bars, one below the other, the newest on top."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter

from gpudeck.app.format.results import EarlierResult
from gpudeck.app.format.values import significant
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.mark_chart import ChartMark, MarkChart

_ROW, _HIGHEST, _BAR = 26, 40, 12
"""Pixels of height of a row, of a row where there is much room, and of the bar in it."""
_NARROW, _WIDE = 460, 560
"""Pixels of width below which the backend is left out, and from which on it is shown in which
parameters the results differ."""
_COLUMNS = (46, 92, 84)
"""Pixels of the job's number, the time and the backend."""
_VALUE, _LEAST_BAR = 52, 90
"""Pixels of the value, and of the longest bar where the parameters need much room."""
_LEFT, _RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)


class ResultBars(MarkChart):
    """Show TFLOP/s as the length of a bar; of a failed result, that its check failed."""

    def __init__(self) -> None:
        super().__init__(tr("Earlier results"))
        self.bars: tuple[EarlierResult, ...] = ()
        self._row = _ROW
        self.setMinimumHeight(3 * theme.px(_ROW))

    def show_bars(self, bars: tuple[EarlierResult, ...]) -> None:
        """Show other results, the newest first."""
        if bars != self.bars:
            self.bars = bars
            self.updateGeometry()
            self.renew()

    def spread(self, *, wanted: bool) -> None:
        """Let rows be higher than they need to be, where there is much room."""
        height = _HIGHEST if wanted else _ROW
        if height != self._row:
            self._row = height
            self.updateGeometry()

    def sizeHint(self) -> QSize:
        return QSize(400, max(len(self.bars), 3) * theme.px(self._row))

    def marks(self) -> list[ChartMark]:
        most = self.height() // theme.px(_ROW)
        shown = max(min(len(self.bars), most), 1)
        high = min(self.height() // shown, theme.px(self._row))
        return [
            ChartMark(QRectF(0, at * high, self.width(), high), bar.tooltip)
            for at, bar in enumerate(self.bars[:most])
        ]

    def draw(self, painter: QPainter) -> None:
        highest = max((bar.tflops for bar in self.bars), default=0.0) or 1.0
        for mark, bar in zip(self.marks(), self.bars, strict=False):
            self._draw_row(painter, mark.box, bar, bar.tflops / highest)

    def _draw_row(self, painter: QPainter, row: QRectF, bar: EarlierResult, share: float) -> None:
        t, newest = theme.tokens(), bar is self.bars[0]
        texts = (str(bar.job), bar.when, bar.backend)[
            : 2 if self.width() < theme.px(_NARROW) else 3
        ]
        left = row.left()
        for at, text in enumerate(texts):
            width = theme.px(_COLUMNS[at])
            painter.setPen(QColor(t.text if newest or not at else t.muted))
            painter.drawText(QRectF(left, row.top(), width - theme.S, row.height()), _LEFT, text)
            left += width
        if self.width() >= theme.px(_WIDE) and any(each.params for each in self.bars):
            longest = max(painter.fontMetrics().horizontalAdvance(b.params) for b in self.bars)
            most = row.right() - left - theme.px(_VALUE + _LEAST_BAR)
            width = min(longest + 1 + theme.L, int(most))
            cut = painter.fontMetrics().elidedText(
                bar.params, Qt.TextElideMode.ElideRight, width - theme.L
            )
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(left, row.top(), width, row.height()), _LEFT, cut)
            left += width
        room = row.right() - theme.px(_VALUE) - left
        box = QRectF(left, row.center().y() - theme.px(_BAR) / 2, room * share, theme.px(_BAR))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        color = QColor(
            t.accent if newest else theme.blend(QColor(t.accent), QColor(t.surface), 0.35)
        )
        why = tr("check failed")
        told = not bar.passed and painter.fontMetrics().horizontalAdvance(why) < room
        if not told:
            painter.setPen(QColor(t.failed) if not bar.passed else Qt.PenStyle.NoPen)
            painter.setBrush(Qt.BrushStyle.NoBrush if not bar.passed else color)
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
        painter.setPen(QColor(t.failed if not bar.passed else t.text if newest else t.muted))
        if told:
            painter.drawText(QRectF(left, row.top(), room, row.height()), _LEFT, why)
        painter.drawText(
            QRectF(row.right() - theme.px(_VALUE), row.top(), theme.px(_VALUE), row.height()),
            _RIGHT,
            significant(bar.tflops),
        )
