"""Show the alerts that are raised now, those of the past, and the thresholds that raise them."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from gpudeck.app.alerts.alert_rows import SHOWN, STATES, AlertRow, alert_rows, matching
from gpudeck.app.alerts.rules_panel import RulesPanel
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.report.history_export import ExportHistory
from gpudeck.app.state import State
from gpudeck.app.strip.summary import unacknowledged
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.actions import bind_actions, show_menu
from gpudeck.app.widgets.controls import (
    Stretch,
    ask_save_path,
    button,
    choice_box,
    column,
    empty_label,
    filter_box,
    pill,
    row,
    set_pill,
    set_text,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.app.widgets.list_table import (
    RowTable,
    TableColumn,
    chosen_row,
    height_of_rows,
    list_card,
    list_table,
    show_rows,
)
from gpudeck.app.widgets.state_pill import show_pills
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.verbs.alerts import Acknowledge, GetAlerts

EMPTY = tr_noop(
    "No active alerts, and none in the past.\n"
    "Drag a line below to choose when one is raised. Quiet hours and a webhook are in Settings."
)
NOTHING_FOUND = tr_noop("No alert matches the filter.")
COLUMNS = (
    TableColumn(tr_noop("State"), 130),
    TableColumn(tr_noop("Since"), 110),
    TableColumn(tr_noop("Duration"), 100),
    TableColumn(tr_noop("Alert"), 0),
)
STATE = 0
MENU = ("alert.show", "alert.copy", "alert.save", "", "alert.acknowledge", "alert.all")
"""The actions of the menu of a row; an empty name is a line between them."""
_OPTIONAL = {2: 320, 1: 240}
"""The duration and the begin, which a narrow table leaves out where the alert would have fewer
pixels than these."""
_BESIDE, _IN_ROW = 1500, 980
"""The least width of the page with the rules beside the list, and with all of them in a row."""
_AROUND_S = 300.0
"""Seconds before and after an alert that are part of its recording."""
_LEAST_ROWS = 4
"""The rows for which the list always has room."""


class AlertTable(RowTable[AlertRow]):
    """Colour the state and the text of each alert that is raised."""

    def color(self, row: AlertRow, column: int) -> str:
        if column == STATE and row.state != "resolved":
            return theme.meaning_color(row.meaning if row.state == "active" else "muted")
        if column == STATE:
            return theme.tokens().muted  # colour is for what is active
        return theme.tokens().text if row.state == "active" else theme.tokens().muted


class AlertsPage(QWidget):
    """List the alerts, acknowledge them, and set their thresholds."""

    job_chosen = Signal(int)
    device_chosen = Signal(str)

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._log: tuple[Alert, ...] = ()
        self._raised: tuple[Alert, ...] | None = None
        """The alerts that were raised when the log was last requested."""
        self.model = AlertTable(COLUMNS)
        self.table = list_table(
            self.model, [c.width for c in COLUMNS], tr_noop("Alerts"), optional=_OPTIONAL
        )
        show_pills(self.table, STATE, STATES)
        self.table.activated.connect(self._show_subject)
        self.table.selectionModel().currentRowChanged.connect(self._choose)
        self.table.menu_wanted.connect(lambda at: show_menu(self, self.acts, MENU, at))
        self.count = pill()
        self.filter = filter_box(tr("Search alerts (Ctrl+F)"))
        self.filter.textChanged.connect(self.refresh)
        self.kinds = choice_box(tr("Which alerts"), SHOWN)
        self.kinds.currentIndexChanged.connect(self.refresh)
        self.acknowledge = button(
            tr("Acknowledge"),
            lambda: self._acknowledge([self.chosen()]),
            tooltip=hint("alert.acknowledge", tr("Mark the selected alert as acknowledged")),
        )
        self.acknowledge_all = button(
            tr("Acknowledge all"),
            lambda: self._acknowledge(self.model.rows),
            tooltip=hint("alert.all", tr("Mark all alerts as acknowledged")),
        )
        self.go = button(
            tr("Show GPU"),
            self._show_subject,
            tooltip=tr("Show the job or device of the alert (Return)"),
        )
        self.empty = empty_label(tr(EMPTY))
        self.rules = RulesPanel(state, link)
        self.acts: dict[str, QAction] = self._bind()
        search, buttons = QWidget(), QWidget()
        search.setLayout(
            row(Stretch(self.filter, 9), self.kinds, self.count, Stretch(), spacing=theme.M)
        )
        actions = (self.go, self.acknowledge, self.acknowledge_all)
        buttons.setLayout(row(Stretch(), *actions, spacing=theme.M))
        above = FoldRow(search, buttons, (1, 0))
        self._frame, self._stack = list_card(self.table, self.empty)
        self._frame.setMinimumHeight(height_of_rows(self.table, _LEAST_ROWS) + 2 * theme.XS + 2)
        self._body = column(Stretch(self._frame), self.rules)
        self.setLayout(column(above, Stretch(self._body), spacing=theme.S))
        self.setFocusProxy(self.table)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the rules beside the list or below it."""
        super().resizeEvent(event)
        beside = self.width() >= theme.px(_BESIDE)
        directions = QBoxLayout.Direction
        self._body.setDirection(directions.LeftToRight if beside else directions.TopToBottom)
        self._body.setStretch(0, 3 if beside else 1)
        self._body.setStretch(1, 2 if beside else 0)
        in_row = self.width() >= theme.px(_IN_ROW)
        self.rules.arrange("column" if beside else "row" if in_row else "tabs")

    def _bind(self) -> dict[str, QAction]:
        return bind_actions(
            self,
            {
                "alert.acknowledge": self.acknowledge.click,
                "alert.all": self.acknowledge_all.click,
                "alert.show": self._show_subject,
                "alert.copy": self._copy,
                "alert.save": self.ask_for_recording,
                "alert.search": self.filter.setFocus,
            },
        )

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
        every = alert_rows(snapshot.alerts, self._log, snapshot.time)
        listed = matching(every, self.filter.text(), self.kinds.currentData())
        show_rows(self.table, self.model, listed)
        count, new = len(snapshot.alerts), unacknowledged(snapshot)
        counted = tr("{n} active, {new} new", n=count, new=new)
        if count:
            set_pill(self.count, counted, "hot")
        else:
            set_pill(self.count, tr("No active alerts"), "succeeded")
        set_text(self.empty, tr(NOTHING_FOUND) if every else tr(EMPTY))
        self._stack.setCurrentIndex(0 if self.model.rows else 1)
        raised = {alert.id for alert in snapshot.alerts}
        alerts = (*snapshot.alerts, *(a for a in self._log if a.id not in raised))
        shown = self.chosen()
        self.rules.refresh(alerts, (shown.device if shown is not None else None) or "")
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

    def _choose(self) -> None:
        """Show the curve of the device that the chosen alert is about."""
        self._enable()
        if (alert := self.chosen()) is not None:
            self.rules.show_device(alert.device or "")

    def _enable(self) -> None:
        alert = self.chosen()
        self.acknowledge.setEnabled(alert is not None and alert.state == "active")
        self.acknowledge_all.setEnabled(any(r.state == "active" for r in self.model.rows))
        subject = alert is not None and (alert.job is not None or alert.device is not None)
        self.go.setEnabled(subject)
        of_job = alert is not None and alert.job is not None
        self.go.setText(tr("Show job") if of_job else tr("Show GPU"))
        self.acts["alert.show"].setEnabled(subject)
        self.acts["alert.copy"].setEnabled(alert is not None)
        self.acts["alert.save"].setEnabled(alert is not None and alert.device is not None)

    def _copy(self) -> None:
        if (alert := self.chosen()) is not None:
            QGuiApplication.clipboard().setText(str(alert.text))

    def ask_for_recording(self) -> None:
        """Ask for a file for the readings around the chosen alert."""
        if (alert := self.chosen()) is not None and alert.device is not None:
            ask_save_path(
                self,
                tr("Save a recording of the alert"),
                f"incident-{alert.key}.trace.gz",
                tr("Recording to replay anywhere (*.trace.gz)"),
                lambda file: self.save_recording(alert, file),
            )

    def save_recording(self, row: AlertRow, file: str) -> None:
        """Save the readings of the alert's device, from before it began until after its end."""
        snapshot = self._state.snapshot
        alerts = (*(snapshot.alerts if snapshot else ()), *self._log)
        alert = next((alert for alert in alerts if alert.id == row.key), None)
        states = snapshot.devices if snapshot else ()
        devices = tuple(state.device for state in states if state.device.id == row.device)
        if snapshot is None or alert is None or not devices:
            self._link.failed.emit(tr("The device of this alert is no longer here."))
            return
        end = snapshot.time if alert.cleared is None else alert.cleared
        if not file.endswith(".trace.gz"):
            file += ".trace.gz"
        self._link.send(
            self,
            ExportHistory(devices, alert.since - _AROUND_S, end + _AROUND_S, file),
            lambda _: self._link.announce_file(tr("Recording"), file),
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
