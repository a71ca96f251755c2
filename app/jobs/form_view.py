"""The form that queues any command: while it is filled in, it says where and when the job would start."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QComboBox, QGridLayout, QLineEdit, QVBoxLayout, QWidget

from app.jobs.forecast import foretold
from app.jobs.form import AWAY, FIELDS, HERE, ROWS, Field, JobForm
from app.jobs.rows import device_labels
from app.link.requests import Foresee, Foretold, Submit
from app.widgets import theme
from app.widgets.controls import button, card, column, label, row, set_text
from scheduler.protocol.snapshot import Snapshot

NO_COMMAND = "Type a command: it runs as it is, without a shell."
_TYPING_MS = 250
_AGAIN_S = 2.0
"""So often it is foretold anew, as the queue goes on."""


class JobFormView(QWidget):
    """Emits `wanted` with a Foresee or a Submit, and `closed`. Ctrl+Return queues the job, Esc closes the form."""

    wanted = Signal(object)
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.form = JobForm()
        self._asked: Submit | None = None
        self._asked_at = 0.0
        self.sent: Submit | None = None
        """What was sent and not answered yet."""
        self.editors: dict[str, QLineEdit] = {}
        self.where = QComboBox()
        self.where.currentIndexChanged.connect(
            lambda: self._put("where", self.where.currentData() or "")
        )
        self._away: list[QWidget] = []
        """What is seen where there are clusters."""
        self.said = label(NO_COMMAND, meaning="muted", wrap=True)
        self.said.setAccessibleName("Where and when it would start")
        self.queue = button("Queue job", kind="primary", tooltip="Ctrl+Return")
        self.close_button = button("Close", tooltip="Esc")
        self.queue.clicked.connect(self._send)
        self.close_button.clicked.connect(self.closed)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(_TYPING_MS)
        self._typing.timeout.connect(self._foresee)
        for keys, slot in (
            ("Ctrl+Return", self.queue.click),
            ("Ctrl+Enter", self.queue.click),
            ("Esc", self.close_button.click),
        ):
            QShortcut(
                QKeySequence(keys),
                self,
                slot,
                context=Qt.ShortcutContext.WidgetWithChildrenShortcut,
            )
        self._lay_out()
        self._check()

    def begin(self, snapshot: Snapshot | None) -> None:
        """The reader comes to the form: what was typed is still there."""
        if snapshot is not None:
            self._offer(self.form.places(snapshot.settings.clusters))
        editor = self.editors["command"]
        editor.setFocus()
        editor.selectAll()
        self._check()

    def look(self, snapshot: Snapshot) -> None:
        """The clusters may be others, and the queue has gone on: it is foretold anew now and then."""
        self._offer(self.form.places(snapshot.settings.clusters))
        if not 0 <= snapshot.time - self._asked_at < _AGAIN_S and not self._typing.isActive():
            self._asked_at = snapshot.time
            self._foresee()

    def show_forecast(self, reply: Foretold, snapshot: Snapshot) -> None:
        """What was asked for; an answer to what was typed before is left aside."""
        if reply.request.submit == self._asked:
            told = foretold(reply.forecast, device_labels(snapshot), snapshot.time)
            self._say(f"Queued now, {told}.", "" if not reply.forecast.reason else "muted")

    def refused(self, submit: Submit, message: str) -> None:
        """It could never run so, or could not be stored."""
        if submit in (self._asked, self.sent):
            self._say(message, "failed")
        self.sent = None if submit == self.sent else self.sent

    def _offer(self, places: list[str]) -> None:
        """Let these be chosen from: clusters by name. Where there are none, it is no question."""
        if places != [self.where.itemData(at) for at in range(self.where.count())]:
            blocked = self.where.blockSignals(True)  # what is chosen stays
            self.where.clear()
            for place in places:
                self.where.addItem(place or HERE, place)
            self.where.setCurrentIndex(places.index(self.form.values["where"]))
            self.where.blockSignals(blocked)
        for widget in self._away:
            widget.setVisible(len(places) > 1)

    def _check(self) -> None:
        """Show what is wrong, and ask about the rest once nobody types any more."""
        self.editors["env"].setEnabled(bool(self.form.values["where"]))
        wrong = self.form.errors()
        for name, editor in self.editors.items():
            theme.mark(editor, "wrong", "true" if name in wrong else "")
            editor.setToolTip(wrong.get(name, ""))
        submit = self.form.submission()
        self.queue.setEnabled(submit is not None)
        if wrong:
            name, message = next(iter(wrong.items()))
            self._say(f"{next(f.label for f in FIELDS if f.name == name)}: {message}", "failed")
        elif submit is None:
            self._say(NO_COMMAND, "muted")
        self._typing.start()

    def _foresee(self) -> None:
        if self.isVisible() and (submit := self.form.submission()) is not None:
            self._asked = submit
            self.wanted.emit(Foresee(submit))

    def _send(self) -> None:
        if (submit := self.form.submission()) is not None:
            self.sent = submit
            self.wanted.emit(submit)

    def _say(self, text: str, meaning: str) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", meaning)

    def _lay_out(self) -> None:
        grid = QGridLayout()
        grid.setHorizontalSpacing(theme.M)
        grid.setVerticalSpacing(6)
        for at, fields in enumerate(ROWS):
            place = 0
            for field in fields:
                editor = self._editor(field)
                editor.setAccessibleName(field.label)
                editor.setAccessibleDescription(field.hint)
                caption = label(field.label, meaning="muted")
                caption.setBuddy(editor)
                grid.addWidget(caption, at, place)
                grid.addWidget(editor, at, place + 1, 1, field.columns)
                place += 1 + field.columns
                if field in AWAY:
                    self._away += [caption, editor]
        for column_at in (1, 3, 5):
            grid.setColumnStretch(column_at, 1)
        send = row(self.said, self.close_button, self.queue, spacing=theme.M)
        send.setStretch(0, 1)
        inner = QVBoxLayout()
        inner.setSpacing(theme.M)
        inner.addWidget(label("New job", strong=True))
        inner.addLayout(grid)
        inner.addStretch(1)
        inner.addLayout(send)
        self.setLayout(column(card(inner)))

    def _editor(self, field: Field) -> QWidget:
        if field.name == "where":
            return self.where
        line = self.editors[field.name] = QLineEdit()
        line.setPlaceholderText(field.hint)
        line.textChanged.connect(lambda text: self._put(field.name, text))
        return line

    def _put(self, name: str, text: str) -> None:
        self.form.values[name] = text
        self._check()
