"""Show the last ten minutes of the most important values of one device, side by side."""

from __future__ import annotations

import numpy as np
from PySide6.QtWidgets import QWidget

from app.charts.chart_model import LIMITS, scale, title
from app.charts.history import History
from app.charts.spark_card import HEIGHT, SparkCard
from app.format.values import format_field
from app.widgets import theme
from app.widgets.controls import Stretch, row
from scheduler.protocol.fields import HEADLINE
from scheduler.protocol.snapshot import DeviceState

_RECENT = (600.0, 200)
"""Seconds of the curves, and their points."""


class SparkRow(QWidget):
    """Show a card for each field that has a history."""

    def __init__(self, highest: int) -> None:
        """Let no card become higher than `highest` pixels."""
        super().__init__()
        self._highest = highest
        self.cards = {field: SparkCard(title(field)) for field in HEADLINE}
        self.setLayout(row(*(Stretch(card) for card in self.cards.values())))

    def show_device(self, state: DeviceState, history: History) -> None:
        """Show the values of a device."""
        for field, card in self.cards.items():
            values = history.recent(state.device.id, field, *_RECENT)
            card.setVisible(not bool(np.isnan(values).all()))
            text = str(format_field(field, state.reading.get(field))) if state.reading else ""
            limit = state.reading.values.get(LIMITS.get(field, "")) if state.reading else None
            top = 100.0 if field == "util" else limit
            card.show_values(values, top, text, scale(field))

    @property
    def empty(self) -> bool:
        """Report if no field has a history."""
        return not any(card.isVisibleTo(self) for card in self.cards.values())

    def fit(self, room: int) -> None:
        """Take as much of this height as makes sense."""
        for card in self.cards.values():
            card.setFixedHeight(max(theme.px(HEIGHT), min(room, theme.px(self._highest))))
