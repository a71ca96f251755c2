"""Show the rows of a page as a table in a card, or a text while there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractTableModel,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QStackedLayout,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from gpudeck.app.language.texts import tr, translating
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import NO_LIMIT, card, plain_tooltip
from gpudeck.scheduler.protocol.progress import printable

Index = QModelIndex | QPersistentModelIndex
NO_PARENT = QModelIndex()
LEFT, RIGHT = (
    int(side | Qt.AlignmentFlag.AlignVCenter)
    for side in (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight)
)
_ROW_HEIGHT = 30


class TableColumn(NamedTuple):
    """Describe one column of a table."""

    title: str
    """English, as is `help`; the table shows both translated."""
    width: int
    """Pixels; 0 for all the width that is left."""
    right: bool = False
    """Align the texts on the right."""
    help: str = ""


class TableRow(Protocol):
    """Describe what a row must have to be listed by `RowTable`."""

    @property
    def key(self) -> object:
        """Identify the row across changes of its texts."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""

    @property
    def tooltip(self) -> str:
        """Return the tooltip of all cells; the text of a cell itself where it is empty."""


R = TypeVar("R", bound=TableRow)


class RowTable(QAbstractTableModel, Generic[R]):
    """List rows as a Qt table model; the selection survives while only texts change."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        super().__init__()
        self.columns = columns
        self.rows: tuple[R, ...] = ()

    def show_rows(self, rows: tuple[R, ...]) -> None:
        """Show these rows in this order."""
        if [row.key for row in rows] != [row.key for row in self.rows]:
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()
        elif rows != self.rows:
            self.rows = rows
            self.dataChanged.emit(
                self.index(0, 0), self.index(len(rows) - 1, len(self.columns) - 1)
            )

    def color(self, row: R, column: int) -> str | None:
        """Return the colour of a cell's text; None for the usual one."""
        return None

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.columns)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return tr(column.title)
            case Qt.ItemDataRole.ToolTipRole:
                return tr(column.help) if column.help else None
            case Qt.ItemDataRole.TextAlignmentRole:
                return RIGHT if column.right else LEFT
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row, column = self.rows[index.row()], index.column()
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return plain_cell(row.cells[column])
            case Qt.ItemDataRole.ToolTipRole:
                return plain_tooltip(row.tooltip or row.cells[column])
            case Qt.ItemDataRole.TextAlignmentRole:
                return RIGHT if self.columns[column].right else LEFT
            case Qt.ItemDataRole.ForegroundRole:
                color = self.color(row, column)
                return None if color is None else QColor(color)
        return None


def plain_cell(text: str) -> str:
    """Return the text of a cell without characters that hide or turn round what it says."""
    return text if text.isprintable() else printable(text)


class ListTable(QTableView):
    """A table in which the user chooses one row at a time, and that never scrolls sideways.

    Args:
        widths: Pixels of each column; 0 for all the width that is left.
        optional: The columns that a narrow table leaves out, in this order, each with the pixels
            below which the column that takes what is left has too few.
    """

    menu_wanted = Signal(QPoint)
    """The user wants the menu of the chosen rows, at this place of the screen."""

    def __init__(
        self, widths: Sequence[int] = (), optional: Mapping[int, int] | None = None
    ) -> None:
        super().__init__()
        self._pixels, self._optional = widths, optional or {}
        self._empty: frozenset[int] = frozenset()
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._want_menu)

    def selectAll(self) -> None:
        """Ignore Ctrl+A: no page acts on all rows, and Qt would visit every one of them."""

    def choose_row(self, row: int, column: int = 0) -> None:
        """Make a row the current one, if it is not."""
        if self.currentIndex().row() != row:
            flags = QItemSelectionModel.SelectionFlag
            self.selectionModel().setCurrentIndex(
                self.model().index(row, column), flags.ClearAndSelect | flags.Rows
            )

    def leave_out(self, columns: frozenset[int]) -> None:
        """Hide columns that say nothing about the listed rows."""
        if columns != self._empty:
            self._empty = columns
            self.fit_columns()

    def fit_columns(self) -> None:
        """Hide the columns that are empty, and those for which there is no room."""
        header, hidden = self.horizontalHeader(), set(self._empty)
        needed = {
            at: header.sectionSize(at) or max(theme.px(width), header.sectionSizeHint(at))
            for at, width in enumerate(self._pixels)
            if width
        }
        left = self.viewport().width() - sum(px for at, px in needed.items() if at not in hidden)
        for at, least in self._optional.items():
            if left < theme.px(least) and at not in hidden:
                hidden.add(at)
                left += needed[at]
        for at in range(len(self._pixels)):
            self.setColumnHidden(at, at in hidden)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._optional:
            self.fit_columns()

    def _want_menu(self, at: QPoint) -> None:
        """Choose the row below the pointer, and want its menu."""
        index: QModelIndex = self.indexAt(at)
        if index.isValid():
            self.choose_row(index.row())
        self.menu_wanted.emit(self.viewport().mapToGlobal(at))


def list_table(
    model: QAbstractItemModel,
    widths: Sequence[int],
    name: str,
    description: str = "",
    optional: Mapping[int, int] | None = None,
) -> ListTable:
    """Return a table of `model`; see `ListTable` and `set_up_table`."""
    table = ListTable(widths, optional)
    set_up_table(table, model, widths, name, description)
    return table


def set_up_table(
    table: QTableView,
    model: QAbstractItemModel,
    widths: Sequence[int],
    name: str,
    description: str = "",
) -> None:
    """Let `table` show rows of `model`, of which the user chooses one.

    Args:
        widths: Pixels of each column; 0 for all the width that is left. A column is wider where
            its translated heading needs it.
        name: Its name in English, by which the widths of its columns are remembered; the
            accessible name is its translation.
        description: The accessible description.
    """
    table.setModel(model)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(theme.px(_ROW_HEIGHT))
    table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    header = table.horizontalHeader()
    header.setHighlightSections(False)
    header.setSectionsClickable(False)
    for at, width in enumerate(widths):
        if width:
            least = header.sectionSizeHint(at) if translating() else 0
            header.resizeSection(at, max(theme.px(width), least))
        header.setSectionResizeMode(
            at, QHeaderView.ResizeMode.Interactive if width else QHeaderView.ResizeMode.Stretch
        )
    table.setObjectName(name)
    table.setAccessibleName(tr(name))
    table.setAccessibleDescription(description)


def chosen_row(table: QTableView, model: RowTable[R]) -> R | None:
    """Return the row that the user chose."""
    at = table.currentIndex().row()
    return model.rows[at] if 0 <= at < len(model.rows) else None


def show_rows(table: ListTable, model: RowTable[R], rows: tuple[R, ...]) -> None:
    """Show these rows; the choice stays with its row, or falls on the first one."""
    chosen = chosen_row(table, model)
    model.show_rows(rows)
    keys = [row.key for row in rows]
    if keys:
        table.choose_row(keys.index(chosen.key) if chosen and chosen.key in keys else 0)


def list_card(content: QWidget, empty: QWidget) -> tuple[QFrame, QStackedLayout]:
    """Return a card, and the stack in it that shows `content` at 0 and `empty` at 1."""
    body, inner = QWidget(), QVBoxLayout()
    stack = QStackedLayout(body)
    stack.addWidget(_WholeRows(content) if isinstance(content, QTableView) else content)
    stack.addWidget(empty)
    inner.addWidget(body)
    frame = card(inner)
    inner.setContentsMargins(1, theme.XS, 1, theme.XS)
    return frame, stack


def height_of_rows(table: QTableView, rows: int) -> int:
    """Return the pixels of height that the headings and this many rows need."""
    row = table.verticalHeader().defaultSectionSize()
    over = table.horizontalHeader().sizeHint().height() + 2 * table.frameWidth()
    return over + rows * row


def fit_rows(frame: QFrame, table: QTableView, rows: int, least: int = 4) -> None:
    """Let the card of `list_card` grow no higher than its rows, so that others have the rest.

    A card without rows explains why, in all the room there is.
    """
    height = height_of_rows(table, max(rows, least)) + 2 * theme.XS + 2 if rows else NO_LIMIT
    if frame.maximumHeight() != height:
        frame.setMaximumHeight(height)


class _WholeRows(QWidget):
    """Hold a table and cut it to a whole number of rows, so that it never ends in half a row."""

    def __init__(self, table: QTableView) -> None:
        super().__init__()
        self._table = table
        table.setParent(self)
        self.setMinimumHeight(table.minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        row = self._table.verticalHeader().defaultSectionSize()
        rows = max((self.height() - height_of_rows(self._table, 0)) // row, 0)
        height = height_of_rows(self._table, rows) if rows else self.height()
        self._table.setGeometry(0, 0, self.width(), height)
        super().resizeEvent(event)
