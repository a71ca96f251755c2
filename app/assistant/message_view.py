"""Show one message of a conversation with its curves, cards, sources and buttons."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QFrame, QGraphicsOpacityEffect, QVBoxLayout, QWidget

from gpudeck.app.assistant.answer_charts import AnswerCharts
from gpudeck.app.assistant.captions import detail_rows, footer_text, source_rows
from gpudeck.app.assistant.cards import ChoiceCard, ProposalCard, StepsRow
from gpudeck.app.assistant.conversation import code_blocks
from gpudeck.app.assistant.message_tree import Message
from gpudeck.app.assistant.notes import note_text
from gpudeck.app.language.texts import tr
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.citations import citations
from gpudeck.app.widgets.controls import button, elided, label, row, set_text, set_tooltip
from gpudeck.app.widgets.icon_button import IconButton
from gpudeck.app.widgets.safe_text import SafeText

_OWN = 0.8
"""The share of the width that a message of the user takes at most."""
_FOOTER = 22
"""Pixels of the height of the line of buttons."""


class MessageView(QFrame):
    """Show a message. A view is used for one message after another."""

    acted = Signal(str)
    """The user pressed a button: copy, code, report, edit, again, delete, earlier, later or cpu;
    once, session or never on a proposal; the number of a meaning, or none; your code."""
    stepped = Signal(int)
    """The user chose one of the message's steps, by its place."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.number = 0
        self.message = Message("assistant", "")
        self.stale = False
        """The height has changed since the last `fit`."""
        self._branch, self._model_in_use = (1, 1), False
        self._last = self._focused = False
        self._make_parts()
        self._make_actions()
        self.controls: list[QWidget] = [
            self.text, self.proposal.decline, self.proposal.accept, self.proposal.more,
            *self.choices.buttons.values(), *self.steps.buttons, self.your_code, self.use_cpu,
            self.earlier, self.later,
            self.copy, self.code, self.save, self.again, self.edit, self.remove,
            self.details_button, self.details,
        ]  # fmt: skip
        """The widgets in the order of the Tab key."""
        for control in self.controls:
            control.installEventFilter(self)
        self._lay_out()
        self._show()

    def _make_parts(self) -> None:
        """Make the text, its cards and its sources."""
        self.text = SafeText()
        self.text.setAccessibleName(tr("Message"))
        self.curves = AnswerCharts()
        self.proposal = ProposalCard()
        self.proposal.decided.connect(self.acted)
        self.choices = ChoiceCard()
        self.choices.chosen.connect(self.acted)
        self.steps = StepsRow()
        self.steps.chosen.connect(self.stepped)
        self.note = label(size="small", meaning="muted", wrap=True)
        self.use_cpu = button(
            tr("Answer on the CPU now"), tooltip=tr("Do not wait for a GPU. This is slower")
        )
        self.use_cpu.clicked.connect(lambda: self.acted.emit("cpu"))
        self.your_code = button(
            tr("Your code…"),
            kind="primary",
            tooltip=tr("Show, prove and apply the change. Nothing is run before you agree"),
        )
        self.your_code.clicked.connect(lambda: self.acted.emit("your code"))
        self.writer = elided(size="small", meaning="muted")
        self.details_button = button(
            tr("Details"),
            kind="quiet",
            checkable=True,
            tooltip=tr("Show the query, who read and wrote this, and the sources"),
        )
        self.details = SafeText()
        self.details.setAccessibleName(tr("Details"))
        for part in (self.text, self.details):
            part.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
            part.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.details.hide()
        self.text.cited.connect(self._cite)
        self.details_button.toggled.connect(self._open)

    def _make_actions(self) -> None:
        """Make the row of buttons below the text."""
        self._footer, self._actions = QWidget(), QWidget()
        self._unseen = QGraphicsOpacityEffect(self._actions)
        """Hides the buttons from the eye, but not from the Tab key and screen readers."""
        self._unseen.setOpacity(0.0)
        self._actions.setGraphicsEffect(self._unseen)
        self.earlier = self._action("‹", "earlier", tr("Previous version"))
        self.branch = label(size="small", meaning="muted")
        self.later = self._action("›", "later", tr("Next version"))
        self.copy = self._icon("copy", tr("Copy"), tr("Copy this message"))
        self.code = self._icon("code", tr("Copy code"), tr("Copy the code in this message"))
        self.save = self._action(
            tr("Save report"),
            "report",
            tr("Save the whole report with tables and charts: HTML, PDF or Markdown"),
        )
        self.again = self._icon(
            "again",
            tr("Again"),
            tr("Write another answer; this one stays (Ctrl+R for the last one)"),
        )
        self.edit = self._icon(
            "edit",
            tr("Edit"),
            tr("Change the question; the messages after it stay as another branch"),
        )
        self.remove = self._icon(
            "delete",
            tr("Delete"),
            tr("Delete this message and those after it; you can undo this"),
        )

    def show_message(self, message: Message, branch: tuple[int, int], model_in_use: bool) -> None:
        """Show a message, with its place among siblings and their number."""
        shown = self._branch, self._model_in_use
        if message is not self.message or shown != (branch, model_in_use):
            self.message, self._branch, self._model_in_use = message, branch, model_in_use
            self._show()

    def keep_actions(self, last: bool) -> None:
        """Show the buttons all the time if it is the last message, else where they are of use."""
        self._last = last
        self._show_actions()

    @property
    def shows_actions(self) -> bool:
        """Report if the buttons are seen: under the pointer, with the focus, at the end."""
        return not self._unseen.isEnabled()

    def _show_actions(self) -> None:
        self._unseen.setEnabled(not (self._last or self._focused or self.underMouse()))

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self._show_actions()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._show_actions()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self._focused = event.type() == QEvent.Type.FocusIn
            self._show_actions()
        return super().eventFilter(watched, event)

    def fit(self, width: int) -> int:
        """Lay out the message for a width. Return its height."""
        inside = width - 2 * theme.L
        for part in (self.text, self.details):
            part.document().setTextWidth(inside)
            part.setFixedHeight(int(part.document().size().height()) + 2)
        self.proposal.settle()
        self.choices.settle()
        self.steps.fit(inside)
        self.stale = False
        layout = self.layout()
        assert layout is not None
        layout.activate()
        return (
            layout.totalHeightForWidth(width)
            if layout.hasHeightForWidth()
            else layout.totalSizeHint().height()
        )

    def width_in(self, room: int) -> int:
        """Return the width of the message: the user's own are as wide as their text."""
        if self.message.author != "you":
            return room
        document = self.text.document()
        document.setTextWidth(-1)
        needed = int(document.idealWidth()) + 2 * theme.L + 2
        writer = self.writer.fontMetrics().horizontalAdvance(self.writer.text())
        below = self._footer.sizeHint().width() + writer + 2 * theme.L
        return min(max(needed, below), int(_OWN * room))

    def close_details(self) -> None:
        """Hide the details."""
        self.details_button.setChecked(False)

    def recolor(self) -> None:
        """Draw the text again, since colours in rich text do not follow the palette."""
        self._show()

    def _show(self) -> None:
        message = self.message
        you = message.author == "you"
        theme.mark(self, "bubble", message.author)
        self.setAccessibleName(tr("You") if you else tr("Assistant"))
        if you:
            # the widget's own setPlainText would keep the font of the last message
            self.text.document().setPlainText(message.text)
        else:
            self.text.show_markdown(message.text)
            if message.state == "done" and message.facts:
                self.text.cite(
                    citations(self.text.document().toPlainText(), message.facts), message.facts
                )
        self.proposal.show_proposal(message.proposal, message.decision)
        self.choices.show_choices(message.choices)
        self.steps.show_steps(message.steps)
        self.text.setVisible(
            bool(message.text) and message.proposal is None and not message.choices
        )
        self.curves.show_curves(message.curves)
        set_text(self.note, note_text(message))
        self.note.setVisible(bool(self.note.text()))
        self.use_cpu.setVisible(message.cpu)
        self.your_code.setVisible(bool(message.code_path))
        theme.mark(
            self.note,
            "meaning",
            "failed"
            if message.state == "failed"
            else "warm"
            if message.wants == "chat"
            else "muted",
        )
        self._show_footer()
        self._open(self.details_button.isChecked())

    def _show_footer(self) -> None:
        """Show who wrote the message and when, and the buttons that it can have."""
        message = self.message
        you, ended = message.author == "you", not message.pending
        written = footer_text(message, self._model_in_use)
        set_text(self.writer, written)
        set_tooltip(self.writer, written)
        self._footer.setVisible(ended or bool(message.text))
        place, of = self._branch
        set_text(self.branch, f"{place}/{of}")
        for part in (self.earlier, self.branch, self.later):
            part.setVisible(of > 1)
        self.branch.setAccessibleName(tr("Version {n} of {total}", n=place, total=of))
        self.details_button.setVisible(ended and not you and bool(self._detail_rows()))
        self.copy.setVisible(bool(message.text))
        self.code.setVisible(ended and bool(code_blocks(message.text)) and not you)
        self.save.setVisible(bool(message.report))
        self.again.setVisible(ended and not you and message.wants != "decision")
        self.edit.setVisible(you and message.wants in ("answer", "chat"))
        self.remove.setVisible(ended)

    def _detail_rows(self) -> tuple[tuple[str, str], ...]:
        """Return captions and values: the query, who read and wrote, and then the sources."""
        return (*detail_rows(self.message), *source_rows(self.message.facts).rows)

    def _open(self, opened: bool) -> None:
        rows = self._detail_rows() if opened else ()
        if rows:
            self.details.show_table(rows)
        self.details.setVisible(bool(rows))
        self.stale = True
        self.updateGeometry()

    def _cite(self, facts: list[int]) -> None:
        """Show the sources of a figure."""
        self.details_button.setChecked(True)
        self._open(True)
        before = len(detail_rows(self.message))
        places = source_rows(self.message.facts).places
        self.details.mark_rows([before + places[fact] for fact in facts if fact in places])

    def _action(self, text: str, name: str, tooltip: str) -> QWidget:
        made = button(text, kind="quiet", tooltip=tooltip)
        made.setAccessibleName(tooltip.partition(";")[0] if len(text) == 1 else text)
        made.clicked.connect(lambda: self.acted.emit(name))
        return made

    def _icon(self, what: str, name: str, tooltip: str) -> QWidget:
        made = IconButton(what, name, tooltip)
        made.clicked.connect(lambda: self.acted.emit(what))
        return made

    def _lay_out(self) -> None:
        footer = row(self.earlier, self.branch, self.later, self.writer, spacing=theme.XS)
        actions = (self.copy, self.code, self.save, self.again, self.edit, self.remove)
        self._actions.setLayout(row(*actions, spacing=theme.XS))
        footer.addWidget(self._actions)
        footer.addWidget(self.details_button)
        footer.setStretch(3, 1)
        self._footer.setFixedHeight(theme.px(_FOOTER))  # its buttons come and go
        self._footer.setLayout(footer)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.L, theme.M, theme.L, theme.S)
        layout.setSpacing(theme.S)
        for part in (self.text, self.proposal, self.choices, self.curves, self.note):
            layout.addWidget(part)
        layout.addWidget(self.steps)
        for made in (self.your_code, self.use_cpu):
            layout.addWidget(made, 0, Qt.AlignmentFlag.AlignLeft)
        layout.addWidget(self._footer)
        layout.addWidget(self.details)
