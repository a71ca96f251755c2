"""Edit a question below the conversation, and show where the answer is written."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QAction, QFocusEvent, QKeyEvent
from PySide6.QtWidgets import QMenu, QPlainTextEdit, QSizePolicy, QWidget

from gpudeck.app.assistant.presets import Preset, own_presets, what_happened
from gpudeck.app.language.texts import tr
from gpudeck.app.models.chat_partners import ChatPartner
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    card,
    choice_box,
    column,
    elided,
    label,
    row,
    set_text,
    set_tooltip,
)
from gpudeck.app.widgets.icon_button import IconButton


class Composer(QWidget):
    """Edit a question. The conversation view connects the buttons."""

    asked = Signal(object)
    """The user asked a question; carries a `Preset`, whose query is that of an inserted one."""

    def __init__(self) -> None:
        super().__init__()
        self._inserted = Preset("", "")
        """The preset that was put into the prompt, where the user may still change it."""
        self.input = PromptBox()
        self.input.setPlaceholderText(tr("Ask a question, such as: how hot did the GPU get?"))
        self.input.setAccessibleName(tr("Question"))
        self.input.setAccessibleDescription(tr("Enter asks, Shift+Enter starts a new line"))
        self.input.entered.connect(self._enter)
        self.send = button(tr("Ask"), kind="primary")
        self.send.clicked.connect(self._enter)
        self.stop = button(tr("Stop"), tooltip=tr("Stop the current answer (Esc)"))
        self.stop.setShortcut("Esc")
        self.happened = button(
            what_happened().text,
            lambda: self.asked.emit(what_happened()),
            kind="quiet",
            tooltip=tr("Ask what happened recently"),
        )
        self.brief = QAction(tr("Write a brief of the last ten minutes"), self)
        self.free = button(tr("Free chat"), kind="quiet", checkable=True)
        """Talk to a model as it is, without tools and facts."""
        self.partner = choice_box(tr("Model of the free chat"))
        self._partners: tuple[ChatPartner, ...] | None = None
        self.free.toggled.connect(self._show_partner)
        self.partner.currentIndexChanged.connect(self._show_partner)
        self.menu = QMenu(tr("Insert a preset"), self)
        self.edit_presets = QAction(tr("Edit presets…"), self)
        self.export = QAction(tr("Export the conversation…"), self)
        self.more = IconButton("more", tr("More"), tr("Write a brief, insert a preset, export"))
        actions = QMenu(self.more)
        actions.addAction(self.brief)
        actions.addMenu(self.menu)
        actions.addSeparator()
        actions.addAction(self.export)
        self.more.setMenu(actions)
        self.where = elided(size="small", meaning="muted")
        self.message = elided(size="small", meaning="muted")
        self.cancel_edit = button(
            tr("Cancel editing"), kind="quiet", tooltip=tr("Keep the message as it is (Esc)")
        )
        self.cancel_edit.clicked.connect(self.leave_edit)
        self.cancel_edit.setShortcut("Esc")
        self.editing = QWidget()
        self.instead: int | None = None
        """The number of the message that is edited."""
        for chip in (self.happened, self.free):
            chip.setProperty("chip", "true")
        self._lay_out()
        self.show_presets(own_presets())

    def show_state(self, busy: bool, where: str, exportable: bool) -> None:
        """Enable what is possible now; `where` describes the model and its device."""
        self.stop.setVisible(busy)
        for made in (self.send, self.happened, self.brief):
            made.setEnabled(not busy)
        self.export.setEnabled(exportable)
        if self.where.text() != where:
            self.where.setText(where)
            set_tooltip(self.where, where)

    def offer_chat(self, partners: tuple[ChatPartner, ...], why_not: str) -> None:
        """Offer free chat with these models; the tooltip explains why there are none."""
        if partners != self._partners:
            chosen, self._partners = self.chat_folder, partners
            self.partner.clear()
            for partner in partners:
                self.partner.addItem(partner.title, partner.folder)
            self.partner.setCurrentIndex(max(self.partner.findData(chosen), 0))
        self.free.setEnabled(bool(partners))
        if not partners:
            self.free.setChecked(False)
            self._explain(why_not)
        self._show_partner()

    @property
    def chat_folder(self) -> str:
        """Return the folder of the model that free chat uses; empty for the assistant's own."""
        return self.partner.currentData() or ""

    def _show_partner(self) -> None:
        """Show which model free chat is with."""
        self.partner.setVisible(self.free.isChecked())
        place = self.partner.currentIndex()
        if self._partners and 0 <= place < len(self._partners):
            self._explain(self._partners[place].help)

    def _explain(self, text: str) -> None:
        for widget in (self.free, self.partner):
            set_tooltip(widget, text)
            widget.setAccessibleDescription(text)

    def show_message(self, text: str) -> None:
        """Show a line about what was done or failed; an empty text hides it."""
        set_text(self.message, text)
        set_tooltip(self.message, text)
        self.message.setVisible(bool(text))

    def edit(self, number: int, text: str) -> None:
        """Edit a message of the user."""
        self.instead = number
        self.insert(text)
        self.editing.show()

    def insert(self, text: str) -> None:
        """Put a text into the prompt."""
        self.input.setText(text)
        self.input.setFocus()

    def insert_preset(self, preset: Preset) -> None:
        """Put a preset into the prompt; its query is asked for unless the text is changed."""
        self._inserted = preset
        self.insert(preset.text)

    def leave_edit(self) -> None:
        """Stop editing a message."""
        if self.instead is not None:
            self.instead = None
            self.editing.hide()
            self.input.clear()
            self.input.setFocus()

    def show_presets(self, presets: tuple[Preset, ...]) -> None:
        """Offer these presets."""
        self.menu.clear()
        for preset in presets:
            self.menu.addAction(preset.name.replace("&", "&&"), partial(self.insert_preset, preset))
        self.menu.addSeparator()
        self.menu.addAction(self.edit_presets)

    def _enter(self) -> None:
        if self.send.isEnabled() and (text := self.input.text().strip()):
            query = self._inserted.query if text == self._inserted.text else None
            self.asked.emit(Preset("", text, query))

    def _lay_out(self) -> None:
        self.editing.setLayout(
            row(
                label(
                    tr("Your new question starts another branch."), size="small", meaning="muted"
                ),
                self.cancel_edit,
                Stretch(),
            )
        )
        self.editing.hide()
        self.message.hide()
        below = row(
            self.happened,
            self.free,
            self.partner,
            self.more,
            Stretch(),
            self.stop,
            self.send,
            spacing=theme.XS,
        )
        box = column(self.input, below, spacing=theme.S)
        self._box = card(box)
        box.setContentsMargins(theme.S, theme.S, theme.S, theme.S)
        self._box.setProperty("composer", "true")
        self.input.focused.connect(
            lambda on: theme.mark(self._box, "composer", "focused" if on else "true")
        )
        self.setLayout(column(self.message, self.editing, self._box, self.where, spacing=theme.XS))


_MOST_LINES = 6
_AROUND = 14
"""Pixels of border and padding above and below the text together."""


class PromptBox(QPlainTextEdit):
    """Edit text in a box that grows with it, up to a limit."""

    entered = Signal()
    recalled = Signal()
    """The user pressed Up in the empty box."""
    focused = Signal(bool)
    """The box got or lost the keyboard focus."""

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
        """Return the text."""
        return self.toPlainText()

    def setText(self, text: str) -> None:
        """Replace the text, with the cursor at its end."""
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

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focused.emit(False)

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
