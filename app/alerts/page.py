"""Show the alerts that are raised now and those of the past."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.alerts.alert_rows import AlertRow, alert_rows
from app.format.values import plural
from app.link.link import Link
from app.state import State
from app.strip.summary import unacknowledged
from app.widgets import theme
from app.widgets.controls import (
    Stretch,
    add_shortcuts,
    button,
    column,
    empty_label,
    label,
    row,
    set_text,
)
from app.widgets.list_table import RowTable, TableColumn, chosen_row, list_card, list_table
from scheduler.protocol.snapshot import Alert
from scheduler.verbs.alerts import Acknowledge, GetAlerts

EMPTY = (
    "There have been no alerts.\n"
    "You can change the thresholds, quiet hours and a webhook in Settings, under Alerts."
)
COLUMNS = (
    TableColumn("State", 120),
    TableColumn("Since", 170),
    TableColumn("Duration", 130),
    TableColumn("Alert", 0),
)


class AlertTable(RowTable[AlertRow]):
    """Colour the state and the text of each alert that is raised."""

    def color(self, row: AlertRow, column: int) -> str:
        if row.state == "active" and column in (0, len(COLUMNS) - 1):
            return theme.meaning_color(row.meaning)
        return theme.tokens().muted if row.state == "resolved" else theme.tokens().text


class AlertsPage(QWidget):
    """List the alerts, and acknowledge them."""

    job_chosen = Signal(int)
    device_chosen = Signal(str)

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._log: tuple[Alert, ...] = ()
        self._raised: tuple[Alert, ...] | None = None
        """The alerts that were raised when the log was last requested."""
        self.model = AlertTable(COLUMNS)
        self.table = list_table(self.model, [c.width for c in COLUMNS], "Alerts")
        self.table.activated.connect(self._show_subject)
        self.table.selectionModel().currentRowChanged.connect(self._enable)
        self.count = label(size="small", meaning="muted")
        self.acknowledge = button(
            "Acknowledge",
            lambda: self._acknowledge([self.chosen()]),
            tooltip="Mark the selected alert as acknowledged (A)",
        )
        self.acknowledge_all = button(
            "Acknowledge all",
            lambda: self._acknowledge(self.model.rows),
            tooltip="Mark all alerts as acknowledged (Shift+A)",
        )
        self.go = button(
            "Show", self._show_subject, tooltip="Show the job or device of the alert (Return)"
        )
        self.empty = empty_label(EMPTY)
        add_shortcuts(self, {"A": self.acknowledge.click, "Shift+A": self.acknowledge_all.click})
        bar = row(self.count, Stretch(), self.go, self.acknowledge, self.acknowledge_all)
        frame, self._stack = list_card(self.table, self.empty)
        self.setLayout(column(bar, Stretch(frame)))
        self.setFocusProxy(self.table)

    def refresh(self) -> None:
        """Show the alerts of the newest snapshot, and request the log if they changed."""
        snapshot = self._state.snapshot
        if snapshot is None:
            set_text(self.empty, self._state.link.text)
            self._stack.setCurrentIndex(1)
            return
        if snapshot.alerts != self._raised:
            self._raised = snapshot.alerts
            self._link.send(self, GetAlerts(), self._take_log, self._fail, background=True)
        chosen = self.chosen()
        self.model.show_rows(alert_rows(snapshot.alerts, self._log, snapshot.time))
        if self.model.rows:
            keys = [alert.key for alert in self.model.rows]
            self.table.choose_row(keys.index(chosen.key) if chosen and chosen.key in keys else 0)
        count = plural(len(snapshot.alerts), "active alert")
        new = unacknowledged(snapshot)
        set_text(
            self.count,
            f"{count}, {new} not acknowledged" if snapshot.alerts else "No active alerts",
        )
        set_text(self.empty, EMPTY)
        self._stack.setCurrentIndex(0 if self.model.rows else 1)
        self._enable()

    def _take_log(self, alerts: tuple[Alert, ...]) -> None:
        self._log = alerts
        self.refresh()

    def _fail(self, message: str) -> None:
        if self._state.link.connected:
            self._link.failed.emit(message)

    def chosen(self) -> AlertRow | None:
        """Return the alert that the user chose."""
        return chosen_row(self.table, self.model)

    def _enable(self) -> None:
        alert = self.chosen()
        self.acknowledge.setEnabled(alert is not None and alert.state == "active")
        self.acknowledge_all.setEnabled(any(r.state == "active" for r in self.model.rows))
        self.go.setEnabled(
            alert is not None and (alert.job is not None or alert.device is not None)
        )

    def _acknowledge(self, alerts: Iterable[AlertRow | None]) -> None:
        for alert in alerts:
            if alert is not None and alert.state == "active":
                self._link.send(self, Acknowledge(alert.key))

    def _show_subject(self) -> None:
        alert = self.chosen()
        if alert is None:
            return
        if alert.job is not None:
            self.job_chosen.emit(alert.job)
        elif alert.device is not None:
            self.device_chosen.emit(alert.device)
