"""Show this machine and others with their devices, and add, test and remove the others."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.hosts.host_devices import HostDevices
from gpudeck.app.hosts.host_form import HostForm
from gpudeck.app.hosts.host_rows import (
    LOCAL,
    STATES,
    HostRow,
    ReachHost,
    counts,
    host_rows,
    shown_host,
)
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.action_table import hint
from gpudeck.app.widgets.actions import bind_actions, show_menu
from gpudeck.app.widgets.controls import (
    QuestionCard,
    Stretch,
    button,
    column,
    elided,
    label,
    row,
    set_text,
    show_if_any,
)
from gpudeck.app.widgets.list_table import (
    Index,
    RowTable,
    TableColumn,
    chosen_row,
    fit_rows,
    height_of_rows,
    list_card,
    list_table,
    show_rows,
)
from gpudeck.app.widgets.share_delegate import SHARE, ShareDelegate
from gpudeck.app.widgets.state_pill import show_pills
from gpudeck.scheduler.protocol.settings import HostSettings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.hosts import SetHost

EMPTY = tr_noop(
    "No other machines yet.\n"
    "Add one that you can log in to with ssh: its GPUs appear beside your own, with history and "
    "alerts, and nothing is installed there."
)
COLUMNS = (
    TableColumn(tr_noop("Machine"), 124),
    TableColumn(tr_noop("State"), 120),
    TableColumn(tr_noop("Load"), 72, right=True, help=tr_noop("Avg utilisation of its devices")),
    TableColumn(tr_noop("Memory"), 76, right=True, help=tr_noop("Used memory of all its devices")),
    TableColumn(
        tr_noop("Warmest"), 90, right=True, help=tr_noop("Highest temperature of its devices")
    ),
    TableColumn(tr_noop("Changed"), 100, help=tr_noop("When it was reached, or was lost")),
    TableColumn(tr_noop("Devices"), 220),
    TableColumn(tr_noop("Address"), 116),
    TableColumn(tr_noop("Details"), 0),
)
STATE, LOAD, MEMORY, WARMEST, CHANGED, DEVICES, ADDRESS = range(1, 8)
_OPTIONAL = {ADDRESS: 150, CHANGED: 150, DEVICES: 150, WARMEST: 150, MEMORY: 120}
"""The columns that a narrow table leaves out, in this order, where the details would have fewer
pixels than these."""
_LEAST, _LEAST_BUTTONS = 220, 420
"""Pixels of width of the page at least, and with the buttons of a machine."""
_IN_SIGHT = 5
"""Machines that are seen at once, however small the window is."""
MENU = ("host.test", "host.copy", "", "host.add", "host.remove")
"""The actions of the menu of a row; an empty name is a line between them."""


class HostTable(RowTable[HostRow]):
    """Colour the state of each machine, and why one cannot be reached."""

    def color(self, row: HostRow, column: int) -> str | None:
        t = theme.tokens()
        if column == STATE:
            known = t.muted if row.quiet else t.succeeded
            return {True: known, False: t.failed, None: t.muted}[row.reachable]
        if column == len(COLUMNS) - 1 and row.reachable is False:
            return t.failed
        return None if column in (0, LOAD, MEMORY, WARMEST) else t.muted

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == SHARE:
            row = self.rows[index.row()]
            return {LOAD: row.load, MEMORY: row.memory}.get(index.column())
        return super().data(index, role)


class HostsPage(QWidget):
    """List the machines with their devices."""

    device_chosen = Signal(str)

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._asked = ""
        """The machine that the user is asked about."""
        self.model = HostTable(COLUMNS)
        self.table = list_table(
            self.model, [c.width for c in COLUMNS], tr_noop("Machines"), optional=_OPTIONAL
        )
        show_pills(self.table, STATE, STATES)
        for column_ in (LOAD, MEMORY):
            self.table.setItemDelegateForColumn(column_, ShareDelegate(self.table, above=4))
        self.table.selectionModel().currentRowChanged.connect(self._choose)
        self.table.menu_wanted.connect(lambda at: show_menu(self, self.acts, MENU, at))
        self.count = elided(strong=True)
        self.test = button(tr("Test"), self._test, tooltip=hint("host.test"))
        self.remove = button(tr("Remove…"), self._ask, tooltip=hint("host.remove"))
        self.open = button(tr("Add machine"), self._open, kind="primary", tooltip=hint("host.add"))
        self.form = HostForm()
        self.form.entered.connect(self._reach)
        self.form.left.connect(self._close)
        self.form.hide()
        self.question = QuestionCard(
            tr("Remove"), tr("Cancel"), self._remove, self._leave, primary="no"
        )
        self.said = label(meaning="muted", wrap=True)
        self.said.setAccessibleName(tr("Outcome"))
        self.said.hide()
        self.devices = HostDevices(state.history)
        self.devices.opened.connect(self.device_chosen)
        self.acts: dict[str, QAction] = self._bind()
        self._lay_out()

    def _bind(self) -> dict[str, QAction]:
        return bind_actions(
            self,
            {
                "host.add": self._open,
                "host.test": self.test.click,
                "host.remove": self.remove.click,
                "host.copy": self._copy,
                "host.leave": self._leave,
            },
        )

    def _lay_out(self) -> None:
        above = row(Stretch(self.count), self.test, self.remove, self.open, spacing=theme.M)
        self._frame, _ = list_card(self.table, QWidget())
        self.hint = label(tr(EMPTY), meaning="muted", wrap=True)
        self.setLayout(
            column(
                above,
                self.question,
                self.form,
                self.said,
                Stretch(self._frame, 2),
                self.hint,
                Stretch(self.devices, 3),
            )
        )
        self.setFocusProxy(self.table)

    def refresh(self) -> None:
        """Show the machines of the newest snapshot, and the devices of the chosen one."""
        snapshot = self._state.snapshot
        if snapshot is None:
            return
        rows = host_rows(snapshot)
        show_rows(self.table, self.model, rows)
        self.hint.setVisible(len(rows) < 2)
        fit_rows(self._frame, self.table, len(rows), least=1)
        least = height_of_rows(self.table, min(len(rows), _IN_SIGHT)) + theme.S + 2
        self._frame.setMinimumHeight(least)
        set_text(self.count, counts(rows))
        if self._asked and all(made.key != self._asked for made in rows):
            self._leave()
        self._show_devices(snapshot)

    def _show_devices(self, snapshot: Snapshot) -> None:
        """Show a tile for each device of the chosen machine."""
        chosen = self.chosen()
        host = shown_host(snapshot, chosen.key) if chosen is not None else None
        name = (
            tr("{caption}: {value}", caption=chosen.cells[0], value=chosen.cells[DEVICES])
            if chosen is not None
            else ""
        )
        self.devices.show_host(snapshot, host, name)
        other = chosen is not None and chosen.key != LOCAL
        for action in ("host.test", "host.remove", "host.copy"):
            self.acts[action].setEnabled(other)
        self.test.setEnabled(other)
        self.remove.setEnabled(other and not self._asked)
        again = chosen is not None and chosen.reachable is False
        text = tr("Try again") if again else tr("Test")
        if self.test.text() != text:
            self.test.setText(text)

    def chosen(self) -> HostRow | None:
        """Return the machine that the user chose."""
        return chosen_row(self.table, self.model)

    def _choose(self) -> None:
        if self._state.snapshot is not None:
            self._show_devices(self._state.snapshot)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the buttons of a machine where there is little room."""
        super().resizeEvent(event)
        for made in (self.test, self.remove):  # the menu and the keys do it, too
            made.setVisible(self.width() >= theme.px(_LEAST_BUTTONS))

    def minimumSizeHint(self) -> QSize:
        """Need no width for what is left out where there is little room."""
        hint = super().minimumSizeHint()
        return QSize(min(hint.width(), theme.px(_LEAST)), hint.height())

    def _open(self) -> None:
        self._leave()
        self.form.clear()
        self.form.show()
        self.form.setFocus()

    def _close(self) -> None:
        self.form.hide()
        self.table.setFocus()

    def _leave(self) -> None:
        """Leave the question, or else the form."""
        if self._asked:
            self._asked = ""
            self.question.hide()
            self.refresh()
            self.table.setFocus()
        elif self.form.isVisible():
            self._close()

    def _reach(self, name: str, host: HostSettings, add: bool) -> None:
        """Connect to the machine of the form once, and add it where it answers."""
        self.form.show_text(tr("Connecting to {address}…", address=host.address), busy=True)

        def take(found: str) -> None:
            if not add:
                self.form.show_text(tr("{name} answers. {found}", name=name, found=found))
                return
            self._link.send(
                self,
                SetHost(name, host),
                lambda _: self._added(name, found),
                lambda problem: self.form.show_text(problem, failed=True),
            )

        def fail(problem: str) -> None:
            said = tr("{problem}. Nothing was added.", problem=problem)
            self.form.show_text(said, failed=True)

        self._link.send(self, ReachHost(host), take, fail)

    def _added(self, name: str, found: str) -> None:
        self.form.show_text("")
        self._close()
        self._say(tr("{name} was added. {found}", name=name, found=found))

    def _test(self) -> None:
        chosen, snapshot = self.chosen(), self._state.snapshot
        if chosen is None or snapshot is None:
            return
        name = chosen.key
        self._say(tr("Connecting to {address}…", address=name))
        self._link.send(
            self,
            ReachHost(snapshot.settings.hosts[name]),
            lambda found: self._say(tr("{name} answers. {found}", name=name, found=found)),
            lambda problem: self._say(problem, failed=True),
        )

    def _ask(self) -> None:
        if (chosen := self.chosen()) is not None:
            self._asked = chosen.key
            self.question.ask(
                tr("Remove {name}? Its history is kept for 30 days.", name=chosen.key)
            )
            self.remove.setEnabled(False)

    def _remove(self) -> None:
        name, self._asked = self._asked, ""
        self.question.hide()
        self._link.send(
            self,
            SetHost(name, None),
            lambda _: self._say(
                tr("{name} was removed. Its history is kept for 30 days.", name=name)
            ),
            lambda problem: self._say(problem, failed=True),
        )

    def _say(self, text: str, failed: bool = False) -> None:
        show_if_any(self.said, text)
        theme.mark(self.said, "meaning", "failed" if failed else "muted")

    def _copy(self) -> None:
        chosen, snapshot = self.chosen(), self._state.snapshot
        if chosen is not None and snapshot is not None:
            address = snapshot.settings.hosts[chosen.key].address
            QGuiApplication.clipboard().setText(f"ssh {address}")
