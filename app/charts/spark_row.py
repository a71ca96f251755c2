"""Show the last ten minutes of the most important values of one device, side by side.

Where not all have room in one line, they take more lines, each of them full.
"""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QSize
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.chart_model import LIMITS, scale, title
from gpudeck.app.charts.history import History
from gpudeck.app.charts.spark_card import HEIGHT, WIDTH, SparkCard
from gpudeck.app.format.values import format_field
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import grid_layout
from gpudeck.scheduler.protocol.fields import HEADLINE
from gpudeck.scheduler.protocol.snapshot import DeviceState

_RECENT = (600.0, 200)
"""Seconds of the curves, and their points."""


class SparkRow(QWidget):
    """Show a card for each field that has a history."""

    def __init__(self, highest: int) -> None:
        """Let no card become higher than `highest` pixels."""
        super().__init__()
        self._highest = highest
        self.cards = {field: SparkCard(title(field)) for field in HEADLINE}
        self._room, self._most = 0, len(HEADLINE)
        self._placed: list[SparkCard] = []
        self._lines = 1
        self._grid = grid_layout(self)
        for card in self.cards.values():
            self._grid.addWidget(card)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def minimumSizeHint(self) -> QSize:
        """Return the width of one card, since more of them wrap."""
        return QSize(theme.px(WIDTH), super().minimumSizeHint().height())

    def show_device(self, state: DeviceState, history: History) -> None:
        """Show the values of a device."""
        for field, card in self.cards.items():
            values = history.recent(state.device.id, field, *_RECENT)
            card.setVisible(not bool(np.isnan(values).all()))
            shown = format_field(field, state.reading.get(field)) if state.reading else None
            same = shown is not None and shown.unit == card.title  # TFLOP/s, once
            text = "" if shown is None else shown.text if same else str(shown)
            limit = state.reading.values.get(LIMITS.get(field, "")) if state.reading else None
            top = 100.0 if field == "util" else limit
            card.show_values(values, top, text, scale(field))
        self._place()

    @property
    def empty(self) -> bool:
        """Report if no field has a history."""
        return not any(card.isVisibleTo(self) for card in self.cards.values())

    @property
    def lines(self) -> int:
        """Return the number of lines that the cards take."""
        return self._lines

    def limit(self, most: int) -> None:
        """Put at most this number of cards side by side."""
        if most != self._most:
            self._most = most
            self._place()

    def fit(self, room: int) -> None:
        """Take as much of this height as makes sense."""
        self._room = room
        each = (room - (self._lines - 1) * theme.S) // self._lines
        for card in self.cards.values():
            card.setFixedHeight(max(theme.px(HEIGHT), min(each, theme.px(self._highest))))

    def _place(self) -> None:
        """Put the cards that are shown into as few lines as have room for them."""
        shown = [card for card in self.cards.values() if not card.isHidden()]
        fitting = max((self.width() + theme.S) // (theme.px(WIDTH) + theme.S), 1)
        fitting = min(fitting, self._most)
        lines = max(-(-len(shown) // fitting), 1)
        if (shown, lines) == (self._placed, self._lines):
            return
        self._placed, self._lines = shown, lines
        for card in self.cards.values():
            self._grid.removeWidget(card)
        counts = [len(shown) // lines + (at < len(shown) % lines) for at in range(lines)]
        parts = math.lcm(*filter(None, counts))  # cells of the grid, so that all lines are full
        left = iter(shown)
        for line, count in enumerate(counts):
            for at in range(count):
                span = parts // count
                self._grid.addWidget(next(left), line, at * span, 1, span)
        for at in range(self._grid.columnCount()):
            self._grid.setColumnStretch(at, int(at < parts))
        self.fit(self._room)
