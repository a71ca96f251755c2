"""One device in the strip on top."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.models.tiles import Metric, Tile
from app.views.widgets import Bar, elided, label, row, set_text, set_tooltip

WIDE = 440
"""Pixels from which a tile has room for captions."""


class MetricView(QWidget):
    """A caption, a value, and a thin bar where the value is a share."""

    def __init__(self) -> None:
        super().__init__()
        self.caption = label(size="small", meaning="muted")
        self.value = label(strong=True)
        self.bar = Bar()
        self.has_share = False
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        for widget in (self.caption, self.value, self.bar):
            layout.addWidget(widget)
        layout.addStretch()

    def show_metric(self, metric: Metric, name: str) -> None:
        set_text(self.caption, metric.caption)
        set_text(self.value, metric.text)
        theme.mark(self.value, "meaning", metric.meaning or ("muted" if metric.text == "N/A" else ""))
        words = f"{metric.caption}: {metric.meaning}\n{metric.tooltip}" if metric.meaning else f"{metric.caption}: {metric.tooltip}"
        set_tooltip(self, words)
        self.bar.set_share(metric.share)
        self.bar.setVisible(metric.caption in ("Utilisation", "Memory"))
        self.setAccessibleName(f"{name} {metric.caption} {metric.text}")


class TileView(QFrame):
    """Name, note and holder in the first line; the five headline values below."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("card", "true")
        self.title = label(strong=True)
        self.badge = QLabel("REPLAY")
        self.badge.setProperty("badge", "true")
        self.name = elided(size="small", meaning="muted")
        self.holder = elided(size="small")
        self.holder.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.metrics = [MetricView() for _ in range(5)]
        header = row(self.title, self.badge, self.name, self.holder)
        header.setStretch(2, 1)
        self.holder.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(theme.M)
        self._grid.setVerticalSpacing(theme.XS)
        self._wide: bool | None = None
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.M, theme.S, theme.M, theme.S)
        layout.setSpacing(6)
        layout.addLayout(header)
        layout.addLayout(self._grid)
        self._arrange(wide=True)

    def show_tile(self, tile: Tile) -> None:
        set_text(self.title, tile.title)
        self.badge.setVisible(tile.replay)
        set_text(self.name, " · ".join(t for t in (tile.name, tile.note) if t))
        set_tooltip(self.name, self.name.text())
        set_text(self.holder, tile.holder)
        set_tooltip(self.holder, tile.holder_tooltip)
        theme.mark(self.holder, "meaning", "muted" if tile.holder == "idle" else "")
        for view, metric in zip(self.metrics, tile.metrics, strict=True):
            view.show_metric(metric, tile.title)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange(wide=event.size().width() >= WIDE)
        super().resizeEvent(event)

    def _arrange(self, *, wide: bool) -> None:
        """Five captioned columns, or two rows whose units speak for themselves."""
        if wide == self._wide:
            return
        self._wide = wide
        places = (
            ((0, 0, 6), (0, 6, 6), (0, 12, 6), (0, 18, 6), (0, 24, 6))
            if wide
            else ((0, 0, 12), (0, 12, 18), (1, 0, 12), (1, 12, 9), (1, 21, 9))
        )
        for view, (line, at, span) in zip(self.metrics, places, strict=True):
            self._grid.removeWidget(view)
            self._grid.addWidget(view, line, at, 1, span)
            view.caption.setVisible(wide)
        for at in range(30):
            self._grid.setColumnStretch(at, 1)
