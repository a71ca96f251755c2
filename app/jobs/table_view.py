"""The jobs table as the user handles it: fold, sort, select and call the menu."""

from __future__ import annotations

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView

from gpudeck.app.format.job_rows import STATES
from gpudeck.app.jobs.arrangement import SortOrder
from gpudeck.app.jobs.pinned_rows import PinnedRows
from gpudeck.app.jobs.table import (
    DEVICE,
    DURATION,
    END,
    HEADINGS,
    NAME,
    OPTIONAL,
    PROGRESS,
    STATE,
    WIDTHS,
    JobTable,
)
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.list_table import Index, ListTable, set_up_table
from gpudeck.app.widgets.share_delegate import ShareDelegate
from gpudeck.app.widgets.state_pill import StateDelegate

_GOOD_PROGRESS = 200
"""Pixels of the column that takes what is left, where the table can choose its width."""
_SCARCE_PROGRESS = 90
"""Pixels of that column below which durations are left out, too, and not scrolled sideways."""
_ARROW = 26
"""Pixels at the left of a name, where the arrow of an array or a group is."""
_LONGEST = "59 min 59 s"
"""The longest text of the column of durations."""
_LATEST = "≈ 12-28 23:58"
"""The longest text of the column of ends."""
_PADDING = 24
_MOST_PINNED = 4
"""Jobs that run or wait and stay in sight while the others are scrolled."""
_MOVED = 3
"""Pixels by which the pointer may move in a click."""


class JobTableView(ListTable):
    """Show the jobs; several can be selected, and arrays and groups unfolded."""

    toggled = Signal(int)
    """The user unfolds or folds the array or group of this row's number."""
    sorted_by = Signal(object)
    """Carries a SortOrder, or None for the order of the queue."""

    def __init__(self, model: JobTable) -> None:
        super().__init__()
        self._model = model
        header = _Header(self)
        self.setHorizontalHeader(header)
        set_up_table(self, model, WIDTHS, tr_noop("Jobs"), tr("Select two jobs to compare them"))
        self.setItemDelegateForColumn(PROGRESS, ShareDelegate(self, above=5))
        self.setItemDelegateForColumn(STATE, StateDelegate(self))
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        self.setDragDropOverwriteMode(False)
        # Qt would look at each row of a selection for headings of columns that are selected whole
        header.setSelectionModel(QItemSelectionModel(model, self))
        header.chosen.connect(self._sort_by)
        self.doubleClicked.connect(lambda index: self._toggle(index.row()))
        self.pinned = PinnedRows(self, self.initViewItemOption)
        self.pinned.pressed.connect(lambda row: self._go(row, extend=False))
        self.selectionModel().selectionChanged.connect(lambda *_: self.pinned.update())
        self._fit_widths()
        self.several_devices = False
        """Jobs can run on more than one device, so that it matters on which one they do."""

    def pin_active(self) -> None:
        """Keep the jobs at the upper end that run or wait in sight, unless the user sorts."""
        rows = self._model.rows
        pinned = 0
        while (
            self._model.order is None
            and pinned < min(_MOST_PINNED, len(rows))
            and rows[pinned].row.active
        ):
            pinned += 1
        self.pinned.show_rows(pinned)

    def scrollTo(
        self,
        index: Index,
        hint: QAbstractItemView.ScrollHint = QAbstractItemView.ScrollHint.EnsureVisible,
    ) -> None:
        """Scroll to a row, so that no pinned row covers it."""
        super().scrollTo(index, hint)
        covered = self.pinned.height() - self.rowViewportPosition(index.row())
        if self.pinned.rows and index.row() >= self.pinned.rows and covered > 0:
            bar = self.verticalScrollBar()
            bar.setValue(bar.value() + (-covered // self.rowHeight(index.row())))

    def selectAll(self) -> None:
        """Select all rows as one range, which takes no longer for many of them."""
        if self._model.rowCount():
            self._select(0, self._model.rowCount() - 1)

    def _select(self, first: int, last: int) -> None:
        rows = QItemSelection(
            self._model.index(first, 0), self._model.index(last, len(HEADINGS) - 1)
        )
        self.selectionModel().select(rows, QItemSelectionModel.SelectionFlag.ClearAndSelect)

    def row_number(self, row: int) -> int | None:
        """Return the number of the job, array or group of a row."""
        rows = self._model.rows
        return rows.ids[row] if 0 <= row < len(rows) else None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        held = plain & ~Qt.KeyboardModifier.ShiftModifier
        row = self.currentIndex().row()
        key = Qt.Key(event.key())
        if key in (Qt.Key.Key_Home, Qt.Key.Key_End) and not held:
            last = self._model.rowCount() - 1
            self._go(0 if key == Qt.Key.Key_Home else last, extend=bool(plain))
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right) and not plain:
            self._fold_by_key(row, unfold=key == Qt.Key.Key_Right)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and not plain:
            self._toggle(row)
        elif key == Qt.Key.Key_S and not plain:
            self._sort_by(max(self.currentIndex().column(), 0))
        elif key == Qt.Key.Key_Menu or (key == Qt.Key.Key_F10 and plain and not held):
            self.menu_wanted.emit(self.viewport().mapToGlobal(self._place_of(row)))
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        index = self.indexAt(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and index.column() == NAME:
            inside = event.position().x() - self.visualRect(index).left()
            if 0 <= inside < _ARROW:
                self._toggle(index.row())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()
        self.pinned.place()

    def _fit_widths(self) -> None:
        """Make room for the longest duration, end and state in the current font."""
        metrics, header = self.fontMetrics(), self.horizontalHeader()
        states = max((tr(state).capitalize() for state in STATES), key=metrics.horizontalAdvance)
        for column, text in ((DURATION, _LONGEST), (END, _LATEST), (STATE, states)):
            header.resizeSection(column, metrics.horizontalAdvance(text) + _PADDING)

    def least_width(self) -> int:
        """Return the pixels that the table needs for names, states, progress and durations.

        Where there are several devices, it needs those of the jobs, too.
        """
        left_out = [at for at in OPTIONAL if at != DEVICE or not self.several_devices]
        widths = sum(width for at, width in self._widths().items() if at not in left_out)
        return widths + theme.px(_GOOD_PROGRESS) + self.verticalScrollBar().sizeHint().width()

    def _widths(self) -> dict[int, int]:
        """Return the pixels of each column, shown or not, but of the one that takes the rest."""
        header = self.horizontalHeader()
        return {
            at: header.sectionSize(at) or theme.px(WIDTHS[at])
            for at in range(len(HEADINGS))
            if at != PROGRESS
        }

    def tell_devices(self, several: bool) -> None:
        """Show the devices of jobs where there are several."""
        if several != self.several_devices:
            self.several_devices = several
            self._fit_columns()

    def _fit_columns(self) -> None:
        """Leave out columns that a narrow table has no room for."""
        widths = self._widths()
        if not self.several_devices:
            del widths[DEVICE]
            self.setColumnHidden(DEVICE, True)
        left = self.viewport().width() - sum(widths.values())
        for column, least in ((at, least) for at, least in OPTIONAL.items() if at in widths):
            hide = left < theme.px(least)
            left += widths[column] if hide else 0
            self.setColumnHidden(column, hide)
        self.setColumnHidden(DURATION, left < theme.px(_SCARCE_PROGRESS))

    def _go(self, row: int, extend: bool) -> None:
        flags, here = QItemSelectionModel.SelectionFlag, self.currentIndex().row()
        how = flags.ClearAndSelect | flags.Rows
        if extend and here >= 0:
            self._select(min(here, row), max(here, row))
            how = flags.NoUpdate
        self.selectionModel().setCurrentIndex(self._model.index(row, NAME), how)

    def _toggle(self, row: int) -> None:
        number = self.row_number(row)
        if number is not None and number in self._model.rows.folds:
            self.toggled.emit(number)

    def _fold_by_key(self, row: int, unfold: bool) -> None:
        """Unfold or fold the row; from a job below it, go to the row of its array or group."""
        rows, number = self._model.rows, self.row_number(row)
        if number is None:
            return
        if number in rows.folds:
            members = rows.members[number]
            if (members[0] in rows.indented) != unfold:
                self.toggled.emit(number)
        elif not unfold and number in rows.indented:
            head = next(fold for fold, members in rows.members.items() if number in members)
            if (place := rows.place(head)) is not None:
                self._go(place, extend=False)

    def _sort_by(self, column: int) -> None:
        """Sort by a column: upwards, then downwards, then not at all."""
        order = self._model.order
        if order is None or order.column != column:
            new: SortOrder | None = SortOrder(column, False)
        else:
            new = None if order.descending else SortOrder(column, True)
        self.sorted_by.emit(new)

    def _place_of(self, row: int) -> QPoint:
        return self.visualRect(self._model.index(max(row, 0), NAME)).center()

    def _want_menu(self, at: QPoint) -> None:
        """Select the row below the pointer, unless it is selected already, and want the menu."""
        index: QModelIndex = self.indexAt(at)
        if index.isValid() and not self.selectionModel().isSelected(index):
            self._go(index.row(), extend=False)
        self.menu_wanted.emit(self.viewport().mapToGlobal(at))


class _Header(QHeaderView):
    """Tell which heading was clicked, which selects no column."""

    chosen = Signal(int)

    def __init__(self, table: QAbstractItemView) -> None:
        super().__init__(Qt.Orientation.Horizontal, table)
        self._pressed: QPoint | None = None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        resizes = self.cursor().shape() == Qt.CursorShape.SplitHCursor
        self._pressed = None if resizes else event.position().toPoint()
        super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        at, self._pressed = self._pressed, None
        if at is None or (event.position().toPoint() - at).manhattanLength() > _MOVED:
            return
        if (section := self.logicalIndexAt(at)) >= 0:
            self.chosen.emit(section)
