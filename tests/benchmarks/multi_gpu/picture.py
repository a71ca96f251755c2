"""Draw what two GPUs did during a step: attention, copies to the peer, and small work.

    python -m tests.benchmarks.multi_gpu.picture

Reads results/distributed_timeline.csv and writes docs/pictures/several-gpus.png.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QWidget

from gpudeck.app.widgets import theme
from tests.benchmarks.attention_pictures import PICTURES
from tests.benchmarks.rows import RESULTS

Event = dict[str, str]
_NAME, _WIDTH, _ROW, _EDGE, _HEAD = 220, 1000, 22, 16, 56
_TICK_MS = 10
ATTENTION = ("attention", "hopper", "sdpa", "backward_keys", "backward_queries")
LANES = ("attention", "copies to the other GPU", "own rows and results")


def lane_of(event: Event) -> str:
    """Return the lane in which an event stands."""
    if event["name"].startswith("Memcpy PtoP"):
        return LANES[1]
    is_attention = any(part in event["name"] for part in ATTENTION)
    return LANES[0] if is_attention else LANES[2]


class Timeline(QWidget):
    """Paint the lanes of each rank, from its first event on."""

    def __init__(self, events: Sequence[Event], title: str) -> None:
        super().__init__()
        self._title = title
        self._ranks = sorted({e["rank"] for e in events})
        self._events = events
        self._end = max(float(e["start_us"]) + float(e["microseconds"]) for e in events)
        height = _HEAD + len(self._ranks) * (len(LANES) + 1) * _ROW + 2 * _EDGE
        self.setFixedSize(_NAME + _WIDTH + 2 * _EDGE, height)

    def paintEvent(self, event: object) -> None:
        painter, t = QPainter(self), theme.tokens()
        painter.fillRect(self.rect(), QColor(t.surface))
        painter.setPen(QColor(t.text))
        painter.drawText(_EDGE, _EDGE + 12, self._title)
        for ms in range(0, int(self._end / 1e3) + 1, _TICK_MS):
            x = self._x(1e3 * ms)
            painter.setPen(QColor(t.muted))
            box = QRectF(x - 30, _EDGE + 24, 60, 14)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, f"{ms} ms")
            painter.setPen(QPen(QColor(t.line), 1))
            painter.drawLine(int(x), _HEAD + _EDGE - 8, int(x), self.height() - _EDGE)
        y = _HEAD + _EDGE
        for rank in self._ranks:
            for lane in LANES:
                self._lane(painter, y, rank, lane)
                y += _ROW
            y += _ROW
        painter.end()

    def _lane(self, painter: QPainter, y: int, rank: str, lane: str) -> None:
        t = theme.tokens()
        painter.setPen(QColor(t.text))
        painter.drawText(_EDGE, y + 14, f"GPU {rank}: {lane}")
        color = QColor(t.failed if lane == LANES[1] else t.accent)
        color.setAlpha(170)  # kernels on two streams overlap
        for e in self._events:
            if e["rank"] == rank and lane_of(e) == lane:
                begin = self._x(float(e["start_us"]))
                wide = max(1.0, self._x(float(e["start_us"]) + float(e["microseconds"])) - begin)
                painter.fillRect(QRectF(begin, y + 3, wide, _ROW - 6), color)

    def _x(self, microseconds: float) -> float:
        return _EDGE + _NAME + _WIDTH * microseconds / self._end


def read(file: Path) -> list[Event]:
    """Return the events of the first recording in the file."""
    with file.open(newline="") as f:
        events = list(csv.DictReader(f))
    return [event for event in events if event["what"] == events[0]["what"]]


def main() -> None:
    """Draw the picture."""
    app = theme.application()
    theme.apply(app, "light")
    events = read(RESULTS / "distributed_timeline.csv")
    Timeline(events, events[0]["what"]).grab().save(str(PICTURES / "several-gpus.png"))


if __name__ == "__main__":
    main()
