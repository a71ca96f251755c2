"""Show the curves of values that a job printed or left, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtWidgets import QWidget

from gpudeck.app.charts.series import Floats
from gpudeck.app.charts.spark_card import SparkCard
from gpudeck.app.format.values import precise
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import row


class CurveStrip(QWidget):
    """Show a card for each curve; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.cards: dict[str, SparkCard] = {}
        self._row = row(spacing=theme.S)
        self.setLayout(self._row)
        self.hide()

    def show_curves(self, curves: Mapping[str, Floats]) -> None:
        """Show values by name, oldest first, each with its newest value."""
        if list(curves) != list(self.cards):
            self._make_cards(curves)
        for name, values in curves.items():
            self.cards[name].show_values(values, None, precise(float(values[-1])))
        self.setVisible(bool(curves))

    def _make_cards(self, curves: Mapping[str, Floats]) -> None:
        for card in self.cards.values():
            self._row.removeWidget(card)
            card.deleteLater()
        self.cards = {name: SparkCard(tr(name)) for name in curves}
        for name, card in self.cards.items():
            card.setToolTip(tr(name))
            self._row.addWidget(card)
