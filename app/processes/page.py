"""The processes page: who uses the GPUs, and a way to end it."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.link.details_poller import DetailsPoller
from app.link.link import Link
from app.link.state import State
from app.processes.process_rows import Row, question, rows
from app.processes.process_table import ProcessTable, process_view
from app.widgets import theme
from app.widgets.controls import button, card, label, row, set_text
from app.widgets.filter_box import filter_box
from app.widgets.list_table import list_card
from scheduler.protocol.devices import Detail
from scheduler.protocol.messages import KillProcess

EMPTY = "No process uses a GPU."
NO_GPU = "There is no NVIDIA GPU here, so nothing uses one."
RECORDED = "A recording knows no processes."
NOTHING_FOUND = "No process matches the filter."


class Processes(QWidget):
    """Lists the processes that use the GPUs, and ends one of them."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._trouble = ""
        self._asked: Row | None = None
        """The process that a person is asked about."""
        self.filter = filter_box("Search users, commands, containers (Ctrl+F)")
        self.filter.textChanged.connect(self.refresh)
        self.count = label(size="small", meaning="muted")
        self.model = ProcessTable()
        self.table = process_view(self.model)
        self.table.horizontalHeader().sortIndicatorChanged.connect(self.refresh)
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._enable())
        self.end = button(
            "End process…", tooltip="Ask it to end, and kill it where it does not (Del)"
        )
        self.end.clicked.connect(self._ask)
        self.question = label(meaning="hot", wrap=True)
        self.yes, self.no = button("End it", kind="primary"), button("Keep it", tooltip="(Esc)")
        self.yes.clicked.connect(self._kill)
        self.no.clicked.connect(lambda: self._ask_about(None))
        self.empty = label(EMPTY, meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.poller = DetailsPoller(self, link)
        self.poller.read.connect(self._show_processes)
        self.poller.failed.connect(self._show_trouble)
        self._lay_out()
        for keys, slot in (
            ("Del", self.end.click),
            ("Esc", self.no.click),
            ("Ctrl+F", self.filter.setFocus),
            ("S", self._sort),
        ):
            QShortcut(QKeySequence(keys), self, slot).setContext(
                Qt.ShortcutContext.WidgetWithChildrenShortcut
            )

    def refresh(self) -> None:
        snapshot, details = self._state.snapshot, self._state.details
        if snapshot is None or details is None:
            set_text(
                self.empty,
                self._trouble
                or (self._state.link.text if snapshot is None else "looking at the processes"),
            )
            self._stack.setCurrentIndex(1)
            self._enable()
            return
        chosen, column = self.chosen(), max(self.table.currentIndex().column(), 0)
        header = self.table.horizontalHeader()
        descending = header.sortIndicatorOrder() == Qt.SortOrder.DescendingOrder
        devices = [state.device for state in snapshot.devices]
        shown = rows(
            details,
            devices,
            snapshot.time,
            self.filter.text(),
            header.sortIndicatorSection(),
            descending,
        )
        self.model.show_order(header.sortIndicatorSection(), descending)
        self.model.show_rows(shown)
        self._choose(chosen, column)
        total = sum(len(detail.processes) for detail in details)
        every = f"{total} process{'' if total == 1 else 'es'}"
        set_text(
            self.count,
            self._trouble or (every if len(shown) == total else f"{len(shown)} of {total}"),
        )
        kinds = {device.kind for device in devices}
        set_text(
            self.empty,
            NOTHING_FOUND
            if total
            else EMPTY
            if "nvidia" in kinds
            else RECORDED
            if "replay" in kinds
            else NO_GPU,
        )
        self._stack.setCurrentIndex(0 if shown else 1)
        if self._asked is not None and self._asked.key not in {r.key for r in shown}:
            self._ask_about(None)  # it ended by itself
        self._enable()

    def _show_processes(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        self._show_trouble("")

    def _show_trouble(self, message: str) -> None:
        """Show why the processes could not be read; empty: they were read."""
        self._trouble = message
        if self.isVisible():
            self.refresh()

    def chosen(self) -> Row | None:
        at = self.table.currentIndex().row()
        return self.model.rows[at] if 0 <= at < len(self.model.rows) else None

    def _sort(self) -> None:
        """By the column of the current cell; once more: the other way round."""
        header, at = self.table.horizontalHeader(), max(self.table.currentIndex().column(), 0)
        falls = (
            header.sortIndicatorSection() == at
            and header.sortIndicatorOrder() == Qt.SortOrder.AscendingOrder
        )
        header.setSortIndicator(
            at, Qt.SortOrder.DescendingOrder if falls else Qt.SortOrder.AscendingOrder
        )

    def _choose(self, chosen: Row | None, column: int) -> None:
        """Keep the current process where rows came, went or moved."""
        at = next(
            (
                i
                for i, r in enumerate(self.model.rows)
                if chosen is not None and r.key == chosen.key
            ),
            -1,
        )
        if at >= 0 and self.table.currentIndex().row() != at:
            flags = (
                QItemSelectionModel.SelectionFlag.ClearAndSelect
                | QItemSelectionModel.SelectionFlag.Rows
            )
            self.table.selectionModel().setCurrentIndex(self.model.index(at, column), flags)

    def _enable(self) -> None:
        chosen = self.chosen()
        self.end.setEnabled(chosen is not None and chosen.process.ticks > 0 and self._asked is None)

    def _ask(self) -> None:
        self._ask_about(self.chosen())

    def _ask_about(self, asked: Row | None) -> None:
        self._asked = asked
        self._question.setVisible(asked is not None)
        if asked is not None:
            set_text(self.question, question(asked.process))
            self.no.setFocus()
        else:
            self.table.setFocus()
        self._enable()

    def _kill(self) -> None:
        if self._asked is not None:
            process = self._asked.process
            request = KillProcess(process.pid, process.ticks)
            self._link.send(self, request, lambda _: self.poller.request())
            self._ask_about(None)

    def _lay_out(self) -> None:
        bar = row(self.filter, self.count, self.end, spacing=theme.M)
        bar.insertStretch(2, 1)
        self._question = card(row(self.question, self.yes, self.no, spacing=theme.M))
        self._question.layout().setStretch(0, 1)  # type: ignore[union-attr]
        self._question.hide()
        frame, self._stack = list_card(self.table, self.empty)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(bar)
        layout.addWidget(self._question)
        layout.addWidget(frame, 1)
        self.setFocusProxy(self.table)
