"""The lists of the pages: a table of rows to choose from, in a card, and words in its place where there are none."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractItemModel, Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QStackedLayout,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.widgets import theme
from app.widgets.controls import card
from app.widgets.whole_rows import WholeRows

_ROW = 30


class _Table(QTableView):
    def selectAll(self) -> None:
        """Nothing: no page does anything with all rows, and Qt looks at each of a hundred thousand."""


def list_table(
    model: QAbstractItemModel, widths: Sequence[int], name: str, description: str = ""
) -> QTableView:
    """One row at a time is chosen. `widths`: pixels of each column, 0: what is left. The rest is what a screen reader says of it."""
    table = _Table()
    table.setModel(model)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(_ROW)
    table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    header = table.horizontalHeader()
    header.setHighlightSections(False)
    header.setSectionsClickable(False)
    for at, width in enumerate(widths):
        if width:
            header.resizeSection(at, width)
        header.setSectionResizeMode(
            at, QHeaderView.ResizeMode.Interactive if width else QHeaderView.ResizeMode.Stretch
        )
    table.setAccessibleName(name)
    table.setAccessibleDescription(description)
    return table


def list_card(table: QTableView, empty: QWidget) -> tuple[QFrame, QStackedLayout]:
    """The card, and which of the two it shows: 0 the table, 1 `empty`."""
    body, inner = QWidget(), QVBoxLayout()
    stack = QStackedLayout(body)
    stack.addWidget(WholeRows(table))
    stack.addWidget(empty)
    inner.addWidget(body)
    frame = card(inner)
    inner.setContentsMargins(1, theme.XS, 1, theme.XS)
    return frame, stack
