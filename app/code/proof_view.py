"""Paint a proof: the errors of each comparison, and time and memory before and after."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from gpudeck.app.code.proof_marks import Bar, ErrorMark, place
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme

_ROW, _BAR = 26, 44
"""Pixels of the height of a comparison, and of a quantity."""
_LABEL, _WORDS = 0.36, 132
"""The share of the width for labels, and the pixels for the words of a comparison."""
_NARROW = 360
"""Pixels of width below which the words are left to the tooltip."""
_TICKS = ((1e-8, "1e-8"), (1e-5, "1e-5"), (1e-2, "1e-2"))


class ProofView(QWidget):
    """Show the errors and costs of a proof."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: Sequence[ErrorMark] = ()
        self.bars: Sequence[Bar] = ()
        self.setAccessibleName(tr("Proof"))

    def show_proof(self, errors: Sequence[ErrorMark], bars: Sequence[Bar]) -> None:
        """Show other marks."""
        self.errors, self.bars = errors, bars
        words = [f"{m.label}: {m.words}" for m in errors] + [f"{b.label}: {b.words}" for b in bars]
        self.setAccessibleDescription("\n".join(words))
        self.setToolTip("\n".join(words))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        rows = len(self.errors) + (2 if self.errors else 0)
        return QSize(480, theme.px(rows * _ROW + len(self.bars) * _BAR + theme.M))

    def minimumSizeHint(self) -> QSize:
        return QSize(200, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font(theme.SMALL))
        top = 0.0
        for bar in self.bars:
            self._paint_bar(painter, bar, top)
            top += theme.px(_BAR)
        if self.errors:
            self._paint_errors(painter, top + theme.S)

    def _paint_bar(self, painter: QPainter, bar: Bar, top: float) -> None:
        t, height = theme.tokens(), theme.px(_BAR)
        _write(painter, QRectF(0, top, self.width(), height / 2), f"{bar.label}: {bar.words}")
        thick = height * 0.16
        for n, (share, colour) in enumerate(((bar.before, t.muted), (bar.after, t.accent))):
            box = QRectF(0, top + height * 0.5 + n * (thick + 2), self.width() * share, thick)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colour))
            painter.drawRoundedRect(box, 2, 2)

    def _paint_errors(self, painter: QPainter, top: float) -> None:
        t, height, width = theme.tokens(), theme.px(_ROW), self.width()
        wide = width >= theme.px(_NARROW)
        left, right = width * _LABEL, width - (theme.px(_WORDS) if wide else theme.S)
        _write(painter, QRectF(0, top, width, height), tr("Error against float64"), strong=True)
        if wide:
            legend = QRectF(right, top, width - right, height)
            _write(painter, legend, "  " + tr("○ before  ● after"), colour=t.muted)
        bottom = top + height * (len(self.errors) + 1)
        for tick, name in _TICKS:
            x = left + place(tick) * (right - left)
            painter.setPen(QPen(QColor(t.grid), 1))
            painter.drawLine(QPointF(x, top + height), QPointF(x, bottom))
            box = QRectF(x - 40, bottom, 80, height)
            _write(painter, box, name, Qt.AlignmentFlag.AlignHCenter, colour=t.muted)
        for n, mark in enumerate(self.errors, 1):
            y = top + n * height
            label = painter.fontMetrics().elidedText(
                mark.label, Qt.TextElideMode.ElideRight, int(left - theme.M)
            )
            _write(painter, QRectF(0, y, left, height), label)
            colour = t.accent if mark.passed else t.failed
            middle, ends = y + height / 2, (mark.before, mark.after)
            a, b = (left + end * (right - left) for end in ends)
            painter.setPen(QPen(QColor(t.line), 2))
            painter.drawLine(QPointF(a, middle), QPointF(b, middle))
            painter.setPen(QPen(QColor(t.muted), 2))
            painter.setBrush(QColor(t.surface))
            painter.drawEllipse(QPointF(a, middle), 5, 5)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colour))
            painter.drawEllipse(QPointF(b, middle), 4, 4)
            _write(painter, QRectF(right, y, width - right, height), f"  {mark.short}",
                   colour=t.muted if mark.passed else t.failed)  # fmt: skip


def _write(
    painter: QPainter, box: QRectF, text: str,
    side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft, *, colour: str = "", strong: bool = False,
) -> None:  # fmt: skip
    painter.setFont(theme.font(theme.SMALL, strong=strong))
    painter.setPen(QColor(colour or theme.tokens().text))
    painter.drawText(box, int(side | Qt.AlignmentFlag.AlignVCenter), text)
