"""The alerts page: what is the matter now, and what was."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.alerts.alert_rows import Line, lines, unseen
from app.alerts.alert_table import WIDTHS, AlertTable
from app.format.values import plural
from app.link.link import Link
from app.link.state import State
from app.widgets import theme
from app.widgets.controls import button, label, row, set_text
from app.widgets.list_table import list_card, list_table
from scheduler.protocol.messages import Acknowledge, AlertsReply, GetAlerts
from scheduler.protocol.snapshot import Alert

EMPTY = "No alert so far. Their thresholds, quiet hours and a webhook are set on the Settings page."


class Alerts(QWidget):
    """Lists alerts, the raised ones first, and acknowledges them."""

    job_chosen = Signal(int)
    device_chosen = Signal(str)

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._log: tuple[Alert, ...] = ()
        self._asked: tuple[Alert, ...] | None = None
        """What was raised when the log was asked for last."""
        self.model = AlertTable()
        self.table = list_table(self.model, WIDTHS, "Alerts")
        self.table.activated.connect(self._go)
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._enable())
        self.count = label(size="small", meaning="muted")
        self.seen = button("Acknowledge", tooltip="Say that you have seen it (A)")
        self.seen.clicked.connect(lambda: self._acknowledge([self.chosen()]))
        self.all = button("Acknowledge all", tooltip="Say that you have seen all of them (Shift+A)")
        self.all.clicked.connect(lambda: self._acknowledge(self.model.rows))
        self.go = button("Show", tooltip="Go to its job or device (Return)")
        self.go.clicked.connect(self._go)
        self.empty = label(EMPTY, meaning="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        for keys, slot in (("A", self.seen.click), ("Shift+A", self.all.click)):
            QShortcut(QKeySequence(keys), self, slot).setContext(
                Qt.ShortcutContext.WidgetWithChildrenShortcut
            )
        self._lay_out()

    def refresh(self) -> None:
        snapshot = self._state.snapshot
        if snapshot is None:
            set_text(self.empty, self._state.link.text)
            self._stack.setCurrentIndex(1)
            return
        if snapshot.alerts != self._asked:
            self._asked = snapshot.alerts
            self._link.send(self, GetAlerts(), self._take, self._fail, background=True)
        chosen = self.chosen()
        self.model.show_rows(lines(snapshot.alerts, self._log, snapshot.time))
        self._choose(chosen.id if chosen else None)
        new = unseen(snapshot)
        set_text(
            self.count,
            f"{plural(len(snapshot.alerts), 'alert')} raised, {new} not acknowledged"
            if snapshot.alerts
            else "none raised",
        )
        set_text(self.empty, EMPTY)
        self._stack.setCurrentIndex(0 if self.model.rows else 1)
        self._enable()

    def _take(self, reply: AlertsReply) -> None:
        self._log = reply.alerts
        self.refresh()

    def _fail(self, message: str) -> None:
        if self._state.link.connected:
            self._link.failed.emit(message)

    def chosen(self) -> Line | None:
        at = self.table.currentIndex().row()
        return self.model.rows[at] if 0 <= at < len(self.model.rows) else None

    def _choose(self, number: int | None) -> None:
        """Keep the current row where rows came or went."""
        at = next((i for i, line in enumerate(self.model.rows) if line.id == number), 0)
        if self.model.rows and self.table.currentIndex().row() != at:
            flags = (
                QItemSelectionModel.SelectionFlag.ClearAndSelect
                | QItemSelectionModel.SelectionFlag.Rows
            )
            self.table.selectionModel().setCurrentIndex(self.model.index(at, 0), flags)

    def _enable(self) -> None:
        line = self.chosen()
        self.seen.setEnabled(line is not None and line.state == "raised")
        self.all.setEnabled(any(row.state == "raised" for row in self.model.rows))
        self.go.setEnabled(line is not None and (line.job is not None or bool(line.device)))

    def _acknowledge(self, chosen: list[Line | None] | tuple[Line, ...]) -> None:
        for line in chosen:
            if line is not None and line.state == "raised":
                self._link.send(self, Acknowledge(line.id))

    def _go(self) -> None:
        if (line := self.chosen()) is None:
            return
        if line.job is not None:
            self.job_chosen.emit(line.job)
        else:
            self.device_chosen.emit(line.device)

    def _lay_out(self) -> None:
        bar = row(self.count, self.go, self.seen, self.all)
        bar.insertStretch(1, 1)
        frame, self._stack = list_card(self.table, self.empty)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addLayout(bar)
        layout.addWidget(frame, 1)
        self.setFocusProxy(self.table)
