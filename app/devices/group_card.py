"""Show a group of facts in a card, of which the rarely needed ones are unfolded on demand."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from gpudeck.app.devices.device_facts import FactGroup
from gpudeck.app.devices.fact_table import FactTable
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import button, card, column, label

_LEAST_FOLDED = 3
"""Fewer facts are not worth a button."""


class GroupCard(QWidget):
    """Show the title, the facts, and a button that unfolds the others."""

    unfolded = Signal(bool)
    """The user wants to see all facts, or only the usual ones."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.table = FactTable(title)
        self.more = button("", lambda: self.unfolded.emit(not self.table.unfolded), kind="quiet")
        inner = column(label(title, strong=True), self.table, self.more, spacing=theme.XS)
        outer = column(card(inner))
        inner.setContentsMargins(theme.M, theme.S, theme.M, theme.S)
        self.setLayout(outer)

    def show_group(self, group: FactGroup, unfolded: bool) -> None:
        """Show these facts."""
        minor = sum(fact.minor for fact in group.facts)
        worth = minor >= _LEAST_FOLDED
        if self.table.unfolded != (unfolded or not worth):
            self.table.unfold(unfolded or not worth)
        self.table.show_facts(group.facts)
        self.more.setText(tr("Fewer") if unfolded else tr("{n} more…", n=minor))
        self.more.setVisible(worth and self.more.isEnabled())
