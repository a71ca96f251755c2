"""Show the jobs as a Qt table model, with a bar under the progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QMimeData,
    QModelIndex,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor

from gpudeck.app.format.job_rows import JobRow
from gpudeck.app.jobs.arrangement import SortOrder
from gpudeck.app.jobs.job_keys import WAITING
from gpudeck.app.jobs.listing import JobLine, JobLines, drop_target
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import plain_tooltip
from gpudeck.app.widgets.list_table import LEFT, NO_PARENT, RIGHT, Index, plain_cell
from gpudeck.app.widgets.share_delegate import SHARE
from gpudeck.app.widgets.state_pill import PLAIN

HEADINGS = (
    tr_noop("Job"),
    tr_noop("Name"),
    tr_noop("State"),
    tr_noop("Device"),
    tr_noop("Needs"),
    tr_noop("Progress"),
    tr_noop("Duration"),
    tr_noop("End"),
    "TFLOP/s",
)
WIDTHS = (84, 124, 104, 72, 140, 0, 92, 92, 76)
"""Pixels; 0 for all the width that is left."""
PROGRESS = HEADINGS.index("Progress")
DURATION, END = HEADINGS.index("Duration"), HEADINGS.index("End")
DEVICE = HEADINGS.index("Device")
OPTIONAL = {HEADINGS.index("Needs"): 300, HEADINGS.index("TFLOP/s"): 300,
            HEADINGS.index("End"): 200, DEVICE: 140}  # fmt: skip
"""The columns that a table leaves out, in this order, where the progress would have fewer pixels
than these."""
_RIGHT = tuple(map(HEADINGS.index, ("Duration", "End", "TFLOP/s")))
STATE = HEADINGS.index("State")
NAME = HEADINGS.index("Name")
_NUMBER = HEADINGS.index("Job")
_NEEDS = HEADINGS.index("Needs")
_ROLES = (
    Qt.ItemDataRole.DisplayRole,
    Qt.ItemDataRole.ToolTipRole,
    Qt.ItemDataRole.ForegroundRole,
    Qt.ItemDataRole.TextAlignmentRole,
    SHARE,
    PLAIN,
)
_SETTLED = ("done", "cancelled")
"""The states that nobody needs to look at, which are shown as words."""
_FIXED = Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemNeverHasChildren
_MOVABLE = _FIXED | Qt.ItemFlag.ItemIsDragEnabled
_MIME = "application/x-gpudeck-job"


class JobTable(QAbstractTableModel):
    """List the jobs. Rows that come, go or move keep the selection of the others."""

    end_reached = Signal()
    """The user came to the last row, while `more` rows can be loaded."""
    moved = Signal(int, int, bool)
    """The user dropped a waiting job beside another one, and after it (True) or before it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = JobLines()
        self.more = False
        self.order: SortOrder | None = None
        """What the user sorts by; rows cannot be dragged meanwhile."""

    def show_rows(self, lines: JobLines) -> None:
        """Show these lines in this order."""
        old = self.rows
        if old.ids != lines.ids:
            start, end = _common_ends(old.ids, lines.ids)
            middle = lines.ids[start : len(lines) - end]
            places = {number: at for at, number in enumerate(middle)}
            self.rows = old.ordered(list(old.ids))
            self._remove(places, start, len(old) - end)
            self.rows = lines.ordered(self.rows.ids)
            self._sort(places, start, len(self.rows) - end)
            self._insert(middle, start, len(self.rows) - end)
        self.rows = lines
        if len(lines) and _differs(old, lines):
            # the view paints again the rows that are seen, and no others
            self.dataChanged.emit(self.index(0, 0), self.index(len(lines) - 1, len(HEADINGS) - 1))

    def _remove(self, places: dict[int, int], start: int, end: int) -> None:
        """Remove rows from `start` to before `end` that have no place, run by run from the end."""
        ids = self.rows.ids
        whole = places.keys().isdisjoint(ids[start:end])  # after another search: all are one run
        while end > start:
            first = start if whole else end
            while first > start and ids[first - 1] not in places:
                first -= 1
            if first < end:
                self.beginRemoveRows(NO_PARENT, first, end - 1)
                del ids[first:end]
                self.endRemoveRows()
            end = first - 1

    def _sort(self, places: dict[int, int], start: int, end: int) -> None:
        """Sort the remaining rows, and keep the selection."""
        ids = self.rows.ids
        ordered = sorted(ids[start:end], key=places.__getitem__)
        if ordered == ids[start:end]:
            return
        self.layoutAboutToBeChanged.emit()
        now = {number: start + at for at, number in enumerate(ordered)}
        old = self.persistentIndexList()
        new = [self.index(now.get(ids[index.row()], index.row()), index.column()) for index in old]
        ids[start:end] = ordered
        self.changePersistentIndexList(old, new)
        self.layoutChanged.emit()

    def _insert(self, wanted: Sequence[int], start: int, end: int) -> None:
        """Insert the new rows, run by run from the beginning."""
        ids = self.rows.ids
        known, at = set(ids[start:end]), 0
        while at < len(wanted):
            last = at
            while last < len(wanted) and wanted[last] not in known:
                last += 1
            if at < last:
                self.beginInsertRows(NO_PARENT, start + at, start + last - 1)
                ids[start + at : start + at] = wanted[at:last]
                self.endInsertRows()
            at = last + 1

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = NO_PARENT) -> int:
        return 0 if parent.isValid() else len(HEADINGS)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.ItemIsDropEnabled
        # Qt asks for each selected row, so that no line of an ended job is made here
        line = self.rows.active.get(self.rows.ids[index.row()])
        movable = line is not None and line.kind == WAITING and self.order is None
        return _MOVABLE if movable else _FIXED

    def supportedDropActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def mimeTypes(self) -> list[str]:
        return [_MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        data = QMimeData()
        data.setData(_MIME, str(self.rows[indexes[0].row()].id).encode())
        return data

    def canDropMimeData(
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        return self._target(data, row, parent) is not None

    def dropMimeData(
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        """Report the move; the rows move with the next snapshot."""
        if (target := self._target(data, row, parent)) is not None:
            self.moved.emit(*target)
        return False

    def _target(self, data: QMimeData, row: int, parent: Index) -> tuple[int, int, bool] | None:
        job = bytes(data.data(_MIME).data()).decode()
        if not job.isdecimal():
            return None
        found = drop_target(self.rows, int(job), parent.row() if parent.isValid() else row)
        return None if found is None else (int(job), *found)

    def canFetchMore(self, parent: Index) -> bool:
        return self.more

    def fetchMore(self, parent: Index) -> None:
        self.end_reached.emit()

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            if self.order is not None and self.order.column == section:
                return tr(HEADINGS[section]) + (" ▾" if self.order.descending else " ▴")
            return tr(HEADINGS[section])
        if role == Qt.ItemDataRole.ToolTipRole:
            return tr("Click to sort; a third click restores the order of the queue")
        return _alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role not in _ROLES:
            return None
        line, column = self.rows.line(self.rows.ids[index.row()]), index.column()
        row = line.row
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            name = f"    {row.name}" if row.id in self.rows.indented else row.name
            text = (
                str(row.id) if line.fold is None else number_range(self.rows.members[row.id]),
                name,
                tr(row.state),
                row.device,
                line.needs,
                row.progress or row.doing,
                row.duration,
                row.end,
                row.tflops,
            )[column]
            if role == Qt.ItemDataRole.DisplayRole:
                return plain_cell(text)
            return plain_tooltip(row.doing if column == PROGRESS else text)
        if role == Qt.ItemDataRole.ForegroundRole:
            return QColor(_color(line, column))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == PLAIN:
            return column == STATE and row.state in _SETTLED
        return row.share if role == SHARE and column == PROGRESS else None


def number_range(numbers: Sequence[int]) -> str:
    """Return the numbers of the jobs of a fold: 195–198, or ×4 where others are between them."""
    first, last = min(numbers), max(numbers)
    whole = last - first + 1 == len(numbers)
    return (f"{first}–{last}" if last > first else str(first)) if whole else f"×{len(numbers)}"


def _differs(old: JobLines, new: JobLines) -> bool:
    """Return whether rows that remained show something else now."""
    if old.edition != new.edition or old.folds != new.folds or old.indented != new.indented:
        return True
    if old.active.keys() != new.active.keys():
        return True
    both = ((old.active[number], line) for number, line in new.active.items())
    return any(was is not line and was != line for was, line in both)


def _common_ends(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """Return how many items are the same at the beginning and at the end of both sequences."""
    start = _first_other(old, new)
    return start, min(_first_other(old[::-1], new[::-1]), len(old) - start, len(new) - start)


def _first_other(old: Sequence[int], new: Sequence[int]) -> int:
    """Return where the sequences first differ, by bisection: comparing slices is fast."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_PILLS = {
    "running": "accent",
    "starting": "accent",
    "done": "succeeded",
    "queued": "muted",
    "cancelled": "muted",
    "failed": "failed",
    "lost": "failed",
    "stopping": "warm",
}


def pill_meaning(state: str, meaning: str) -> str:
    """Return the meaning in whose colour a job's state is shown."""
    return meaning if meaning == "failed" else _PILLS.get(state, "muted")


def pill_color(row: JobRow) -> str:
    """Return the colour of a job's state."""
    return str(getattr(theme.tokens(), pill_meaning(row.state, row.meaning)))


def _alignment(column: int) -> int:
    return RIGHT if column in _RIGHT else LEFT


def _color(line: JobLine, column: int) -> str:
    t, row = theme.tokens(), line.row
    if column == STATE:
        return t.muted if row.state in _SETTLED else pill_color(row)
    if row.meaning and column == PROGRESS:
        return theme.meaning_color(row.meaning)
    return t.muted if column in (_NUMBER, PROGRESS, _NEEDS) else t.text
