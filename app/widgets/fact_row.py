"""Show facts side by side in columns of one width, so that those of several cards are aligned."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import Stretch, column, elided, row, set_text, set_tooltip

WIDTH = 112
"""Pixels of a column."""
Facts = Sequence[tuple[str, str]]
"""Captions and values, the most important ones first."""


class FactRow(QWidget):
    """Show values below their captions; those without room are in the tooltip."""

    def __init__(self, most: int) -> None:
        """Show up to `most` facts."""
        super().__init__()
        self.facts: Facts = ()
        self._cells = [
            (QWidget(), elided(size="small", meaning="muted"), elided()) for _ in range(most)
        ]
        for cell, caption, value in self._cells:
            cell.setFixedWidth(theme.px(WIDTH))
            cell.setLayout(column(caption, value, spacing=1))
        self.setLayout(row(*(cell for cell, _, _ in self._cells), Stretch(), spacing=theme.M))

    def show_facts(self, facts: Facts) -> None:
        """Show other facts, or none."""
        if facts == self.facts:
            return
        self.facts = facts
        for (_, caption, value), (name, text) in zip(self._cells, facts, strict=False):
            set_text(caption, name)
            set_text(value, text)
        lines = [f"{name}: {text}" for name, text in facts]
        self.setAccessibleDescription(", ".join(lines))
        set_tooltip(self, "\n".join(lines))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()
        super().resizeEvent(event)

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(WIDTH), super().minimumSizeHint().height())

    def _fit(self) -> None:
        """Leave out the facts that have no room."""
        fitting = (self.width() + theme.M) // (theme.px(WIDTH) + theme.M)
        for at, (cell, _, _) in enumerate(self._cells):
            cell.setVisible(at < min(len(self.facts), max(fitting, 1)))
