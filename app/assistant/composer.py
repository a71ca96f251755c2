"""Below the conversation: the prompt, what can be asked with one press, and where the answer is
being written."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QMenu, QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from app.assistant.session_files import PRESETS, Preset
from app.widgets import theme
from app.widgets.controls import button, elided, label, row, set_text, set_tooltip


class Composer(QWidget):
    """Emits `asked` with what was typed; its buttons are the page's to connect."""

    asked = Signal(str)
    left = Signal()
    """A message is not to be edited after all."""

    def __init__(self) -> None:
        super().__init__()
        self.input = PromptBox()
        self.input.setPlaceholderText("Ask something, e.g. how hot did the GPU get?")
        self.input.setAccessibleName("Question")
        self.input.setAccessibleDescription("Enter asks, Shift+Enter begins another line")
        self.input.entered.connect(self._enter)
        self.send = button("Ask", kind="primary")
        self.send.clicked.connect(self._enter)
        self.stop = button("Stop", tooltip="End the answer that is being written (Esc)")
        self.stop.setShortcut("Esc")
        self.happened = button("What happened?", tooltip="Ask what went on lately")
        self.brief = button(
            "Write a brief",
            tooltip="A report of the last ten minutes, written once the devices are idle",
        )
        self.free = button("Free chat", checkable=True)
        """ConversationView to the model as it is, without tools and facts."""
        self.menu = QMenu(self)
        self.presets = button("Presets", tooltip="Prompts that you use often")
        self.presets.setMenu(self.menu)
        self.edit_presets = QAction("Edit presets…", self)
        self.export = button(
            "Export…", tooltip="Write this conversation to a file: Markdown or JSON"
        )
        self.where = elided(size="small", meaning="muted")
        self.said = elided(size="small", meaning="muted")
        self.keep_as_it_was = button(
            "Leave it as it was", kind="quiet", tooltip="Do not edit (Esc)"
        )
        self.keep_as_it_was.clicked.connect(self.leave_edit)
        self.keep_as_it_was.setShortcut("Esc")
        self.editing = QWidget()
        self.instead: int | None = None
        """The message of yours that is being edited."""
        self._lay_out()
        self.show_presets(PRESETS)

    def show_state(self, busy: bool, where: str, exportable: bool) -> None:
        self.stop.setVisible(busy)
        for made in (self.send, self.happened, self.brief):
            made.setEnabled(not busy)
        self.export.setEnabled(exportable)
        if self.where.text() != where:
            self.where.setText(where)
            set_tooltip(self.where, where)

    def offer_chat(self, offered: bool, why: str) -> None:
        """Free chat is there for large models; `why` it is or is not is told by its tooltip."""
        self.free.setEnabled(offered)
        set_tooltip(self.free, why)
        self.free.setAccessibleDescription(why)
        if not offered:
            self.free.setChecked(False)

    def say(self, text: str) -> None:
        """A line about what was done or could not be done."""
        set_text(self.said, text)
        set_tooltip(self.said, text)
        self.said.setVisible(bool(text))

    def edit(self, number: int, text: str) -> None:
        """Let a message of yours be put another way."""
        self.instead = number
        self.take(text)
        self.editing.show()

    def take(self, text: str) -> None:
        self.input.setText(text)
        self.input.setFocus()

    def leave_edit(self) -> None:
        if self.instead is not None:
            self.instead = None
            self.editing.hide()
            self.input.clear()
            self.input.setFocus()

    def show_presets(self, presets: tuple[Preset, ...]) -> None:
        self.menu.clear()
        for preset in presets:
            self.menu.addAction(preset.name.replace("&", "&&"), partial(self.take, preset.text))
        self.menu.addSeparator()
        self.menu.addAction(self.edit_presets)

    def _enter(self) -> None:
        if self.send.isEnabled() and (text := self.input.text().strip()):
            self.asked.emit(text)

    def _lay_out(self) -> None:
        line = row(
            label("What you ask now takes another branch there.", size="small", meaning="muted"),
            self.keep_as_it_was,
        )
        line.addStretch()
        self.editing.setLayout(line)
        self.editing.hide()
        self.said.hide()
        ask = row(self.input, self.stop, self.send)
        ask.setStretch(0, 1)
        below = row(self.happened, self.brief, self.presets, self.export, self.free)
        below.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S)
        layout.addWidget(self.said)
        layout.addWidget(self.editing)
        layout.addLayout(ask)
        layout.addLayout(below)
        layout.addWidget(self.where)


_MOST_LINES = 6
_AROUND = 14
"""Border and padding above and below the text together, in pixels."""


class PromptBox(QPlainTextEdit):
    """As high as what is typed, up to a limit."""

    entered = Signal()
    recalled = Signal()
    """The Up key in an empty prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("prompt", "true")
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(lambda _: self._grow())
        self._grow()

    def text(self) -> str:
        return self.toPlainText()

    def setText(self, text: str) -> None:
        self.setPlainText(text)
        self.moveCursor(self.textCursor().MoveOperation.End)

    def sizeHint(self) -> QSize:
        return QSize(200, self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.height())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain = not event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and plain:
            self.entered.emit()
        elif event.key() == Qt.Key.Key_Up and not self.toPlainText():
            self.recalled.emit()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._grow()

    def _grow(self) -> None:
        lines = min(max(int(self.document().size().height()), 1), _MOST_LINES)
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + _AROUND)
        policy = (
            Qt.ScrollBarPolicy.ScrollBarAsNeeded
            if lines == _MOST_LINES
            else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
        self.setVerticalScrollBarPolicy(policy)
