"""Draw FlexAttention's matrix: how fast `accel.flex_attention` is beside each of its peers.

    python -m tests.benchmarks.attention_flex_picture [FILE]

Reads results/attention_flex.csv and writes docs/pictures/attention-flex.png.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QWidget

from gpudeck.accel.result import Direction
from gpudeck.app.widgets import theme
from tests.benchmarks.attention_flex_cells import HEADS, KINDS, LENGTHS, cells
from tests.benchmarks.attention_flex_judged import REQUIRED, ratios
from tests.benchmarks.attention_pictures import PICTURES
from tests.benchmarks.rows import RESULTS

HIGHEST = 2.5
"""The ratio that has the fullest colour."""
NAMES = {"flex": "compiled FlexAttention", "flex FLASH": "its backend FLASH"}
_NAME, _CELL, _ROW, _GAP, _HEAD, _EDGE = 216, 48, 20, 26, 88, 16
Ratios = Mapping[tuple[str, ...], float]


class MatrixChart(QWidget):
    """Paint a table for each peer and direction, with a row for each mask, head size and number of
    key heads, and a column for each length."""

    def __init__(self, ratios: Mapping[str, Ratios], device: str) -> None:
        super().__init__()
        self._ratios, self._device = ratios, device
        self._rows = sorted(
            {(cell.kind, cell.head_dim, cell.kv_heads) for cell in cells()},
            key=lambda row: (KINDS.index(row[0]), *row[1:]),
        )
        tables = len(ratios) * len(get_args(Direction))
        width = _NAME + tables * (len(LENGTHS) * _CELL + _GAP) - _GAP
        height = _HEAD + len(self._rows) * _ROW + (len(KINDS) - 1) * _ROW // 2
        self.setFixedSize(width + 2 * _EDGE, height + 2 * _EDGE)

    def paintEvent(self, event: object) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.text))
        painter.drawText(
            _EDGE, _EDGE + 12,
            "Speed of accel.flex_attention over that of its peers on FlexAttention's own matrix,"
            f" {self._device}. Red: less than is required. Empty: no time, or the peer was wrong.",
        )  # fmt: skip
        self._names(painter)
        left = _EDGE + _NAME
        for name in self._ratios:
            for direction in get_args(Direction):
                self._table(painter, left, name, direction)
                left += len(LENGTHS) * _CELL + _GAP
        painter.end()

    def _top(self, row: int) -> int:
        kinds = KINDS.index(self._rows[row][0])
        return _EDGE + _HEAD + row * _ROW + kinds * _ROW // 2

    def _names(self, painter: QPainter) -> None:
        for at, (kind, dim, kv_heads) in enumerate(self._rows):
            painter.drawText(
                _EDGE, self._top(at) + 14, f"{kind}, d={dim}, {HEADS}/{kv_heads} heads"
            )

    def _table(self, painter: QPainter, left: int, name: str, direction: str) -> None:
        t, found = theme.tokens(), self._ratios[name]
        those = [ratio for at, ratio in found.items() if at[-1] == direction]
        mean = math.exp(sum(map(math.log, those)) / len(those)) if those else 0.0
        painter.setPen(QColor(t.text))
        painter.drawText(left, _EDGE + 40, f"{direction}, over {NAMES[name]}")
        painter.setPen(QColor(t.muted))
        painter.drawText(
            left, _EDGE + 58, f"mean {mean:.2f} of {len(those)}, required {REQUIRED[name]:g}"
        )
        for column, length in enumerate(sorted(LENGTHS)):
            x = left + column * _CELL
            painter.setPen(QColor(t.muted))
            box = QRectF(x, _EDGE + _HEAD - 20, _CELL - 2, 16)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, str(length))
            for at, (kind, dim, kv_heads) in enumerate(self._rows):
                cell = (kind, str(dim), str(length), str(kv_heads), direction)
                box = QRectF(x, self._top(at), _CELL - 2, _ROW - 2)
                self._cell(painter, box, found.get(cell), REQUIRED[name])

    def _cell(self, painter: QPainter, box: QRectF, ratio: float | None, required: float) -> None:
        t = theme.tokens()
        if ratio is None:
            return
        enough = ratio >= required
        color = QColor(t.accent if enough else t.failed)
        color.setAlphaF(0.12 + 0.4 * min(1.0, abs(math.log(ratio / required)) / math.log(HIGHEST)))
        painter.fillRect(box, color)
        painter.setPen(QColor(t.text if enough else t.failed))
        painter.drawText(box, Qt.AlignmentFlag.AlignCenter, f"{ratio:.2f}")


def main(arguments: Sequence[str]) -> None:
    file = Path(arguments[0]) if arguments else RESULTS / "attention_flex.csv"
    with file.open(newline="") as f:
        rows = list(csv.DictReader(f))
    app = theme.application()
    theme.apply(app, "light")
    chart = MatrixChart({name: ratios(rows, name) for name in REQUIRED}, rows[0]["device"])
    picture = PICTURES / "attention-flex.png"
    chart.grab().save(str(picture))
    print(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
