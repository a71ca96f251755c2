"""The form that queues any command: while it is filled in, it says where and when the job would start."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QGridLayout, QLineEdit, QVBoxLayout, QWidget

from app import theme
from app.models.forecast import foretold
from app.models.job_form import FIELDS, ROWS, JobForm
from app.models.jobs import device_labels
from app.models.requests import Foresee, Foretold, Submit
from app.views.widgets import button, card, column, label, row, set_text
from scheduler.telemetry.snapshot import Snapshot

NO_COMMAND = "Type a command: it runs as it is, without a shell."
_TYPING_MS = 250
_AGAIN_S = 2.0
"""So often it is foretold anew, as the queue goes on."""
_PLACES = {1: ((0, 5),), 2: ((0, 3), (4, 1)), 3: ((0, 1), (2, 1), (4, 1))}
"""For so many fields in a row: the column of each caption, and how many columns its editor takes."""


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
        for keys, slot in (("Ctrl+Return", self.queue.click), ("Ctrl+Enter", self.queue.click), ("Esc", self.close_button.click)):
            QShortcut(QKeySequence(keys), self, slot, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._lay_out()
        self._check()

    def begin(self) -> None:
        """The reader comes to the form: what was typed is still there."""
        editor = self.editors["command"]
        editor.setFocus()
        editor.selectAll()
        self._check()

    def look(self, snapshot: Snapshot) -> None:
        """The queue has gone on: it is foretold anew now and then."""
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

    def _check(self) -> None:
        """Show what is wrong, and ask about the rest once nobody types any more."""
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
            for place, field in zip(_PLACES[len(fields)], fields, strict=True):
                editor = self.editors[field.name] = QLineEdit()
                editor.setPlaceholderText(field.hint)
                editor.setAccessibleName(field.label)
                editor.setAccessibleDescription(field.hint)
                editor.textChanged.connect(self._setter(field.name))
                caption = label(field.label, meaning="muted")
                caption.setBuddy(editor)
                grid.addWidget(caption, at, place[0])
                grid.addWidget(editor, at, place[0] + 1, 1, place[1])
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

    def _setter(self, name: str) -> Callable[[str], None]:
        def put(text: str) -> None:
            self.form.values[name] = text
            self._check()

        return put
