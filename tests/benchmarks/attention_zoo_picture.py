"""Draw the zoo as bars: the speed of `auto` over that of the best peer, shape by shape.

    python -m tests.benchmarks.attention_zoo_picture [FILE]

Reads results/attention_zoo.csv and writes docs/pictures/attention-zoo.png.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QWidget

from gpudeck.app.widgets import theme
from tests.benchmarks.attention_pictures import PICTURES
from tests.benchmarks.rows import RESULTS

DIRECTIONS = ("forward", "backward")
LOWEST, HIGHEST = 0.5, 2.0
"""The ends of the axis, which is logarithmic; bars beyond them are cut, their numbers are not."""
ENOUGH = 0.97
"""What is required of a learned choice."""
NEWEST = "fa4"
"""The peer that took part in some of the passes only."""
_NAME, _PANEL, _ROW, _HEAD, _EDGE = 270, 400, 17, 84, 16


@dataclass(frozen=True)
class Bar:
    """One shape in one direction."""

    learned: float
    cold: float
    ran: str
    newest: bool
    """Whether flash-attn-4 took part."""


def bars(file: Path) -> dict[str, dict[str, dict[str, Bar]]]:
    """Return the bars by group, shape and direction."""
    with file.open(newline="") as f:
        every = list(csv.DictReader(f))
    newest = {(row["name"], row["direction"]) for row in every if row["contender"] == NEWEST}
    rows = [row for row in every if row["ratio_to_best_peer"]]
    ratios = {
        (row["name"], row["direction"], row["contender"]): float(row["ratio_to_best_peer"])
        for row in rows
    }
    found: dict[str, dict[str, dict[str, Bar]]] = {}
    for row in rows:
        if row["contender"] == "learned":
            at = row["name"], row["direction"]
            learned = ratios[(*at, "learned")]
            cold = ratios.get((*at, "auto"), learned)
            bar = Bar(learned, cold, row["ran"], at in newest)
            shapes = found.setdefault(row["group"], {})
            shapes.setdefault(row["name"], {})[row["direction"]] = bar
    return found


class ZooChart(QWidget):
    """Paint both directions side by side, by groups of shapes."""

    def __init__(self, groups: dict[str, dict[str, dict[str, Bar]]], device: str) -> None:
        super().__init__()
        self._groups, self._device = groups, device
        lines = sum(len(shapes) + 1 for shapes in groups.values())
        self.setFixedSize(_NAME + 2 * _PANEL + 2 * _EDGE, _HEAD + lines * _ROW + 2 * _EDGE)

    def paintEvent(self, event: object) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.text))
        told = (
            "Bars: learned. Ticks: cold. Numbers: learned, and the backend that was chosen; black"
            " where flash-attn-4 took part."
        )
        painter.drawText(
            _EDGE, _EDGE + 12, f"Speed of auto over that of the best peer, {self._device}. {told}"
        )
        for at, direction in enumerate(DIRECTIONS):
            self._axis(painter, _EDGE + _NAME + at * _PANEL, direction)
        y = _HEAD + _EDGE
        for group, shapes in self._groups.items():
            painter.setPen(QColor(t.muted))
            painter.drawText(_EDGE, y + 12, group)
            y += _ROW
            for name, found in shapes.items():
                painter.setPen(QColor(t.text))
                painter.drawText(_EDGE + 8, y + 12, name)
                for at, direction in enumerate(DIRECTIONS):
                    if (bar := found.get(direction)) is not None:
                        self._bar(painter, _EDGE + _NAME + at * _PANEL, y, bar)
                y += _ROW
        painter.end()

    def _axis(self, painter: QPainter, left: int, direction: str) -> None:
        t = theme.tokens()
        ratios = [
            found[direction].learned
            for shapes in self._groups.values()
            for found in shapes.values()
            if direction in found
        ]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0
        painter.setPen(QColor(t.text))
        painter.drawText(left, _EDGE + 38, f"{direction}: {mean:.3f} over {len(ratios)} shapes")
        for value in (0.5, 0.7, 1.0, 1.4, 2.0):
            x = left + _x(value)
            painter.setPen(QColor(t.muted))
            painter.drawText(QRectF(x - 20, _EDGE + 52, 40, 14), Qt.AlignmentFlag.AlignCenter,
                             f"{value:g}")  # fmt: skip
            painter.setPen(QPen(QColor(t.muted if value == 1.0 else t.line), 1))
            painter.drawLine(int(x), _HEAD + _EDGE - 8, int(x), self.height() - _EDGE)

    def _bar(self, painter: QPainter, left: int, y: int, bar: Bar) -> None:
        t = theme.tokens()
        one, end = left + _x(1.0), left + _x(bar.learned)
        color = QColor(t.accent if bar.learned >= ENOUGH else t.failed)
        painter.fillRect(QRectF(min(one, end), y + 4, max(1.0, abs(end - one)), 9), color)
        cold = left + _x(bar.cold)
        painter.fillRect(QRectF(cold - 1, y + 2, 2, 13), QColor(t.text))
        painter.setPen(QColor(t.text if bar.newest else t.muted))
        painter.drawText(left + _PANEL - 96, y + 12, f"{bar.learned:.2f} {bar.ran}")


def _x(ratio: float) -> float:
    """Return where a ratio stands on the axis, in pixels."""
    share = math.log(min(max(ratio, LOWEST), HIGHEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    return 10 + share * (_PANEL - 120)


def main(arguments: Sequence[str]) -> None:
    file = Path(arguments[0]) if arguments else RESULTS / "attention_zoo.csv"
    with file.open(newline="") as f:
        device = next(csv.DictReader(f))["device"]
    app = theme.application()
    theme.apply(app, "light")
    chart = ZooChart(bars(file), device)
    picture = PICTURES / "attention-zoo.png"
    chart.grab().save(str(picture))
    print(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
