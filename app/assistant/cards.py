"""Show cards below a message: a proposal to decide on, meanings to choose from, an undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFrame, QMenu, QPushButton, QWidget

from gpudeck.app.assistant.captions import DISMISSED, STANDING, standing
from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    clear_panel,
    column,
    elided,
    label,
    row,
    set_text,
    set_tooltip,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.app.widgets.list_table import plain_cell
from gpudeck.assistant.answers.steps import MOST as MOST_STEPS
from gpudeck.assistant.intents.choices import MAX_CHOICES, Choice
from gpudeck.assistant.query.steps import Step
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.language.text import Message


class ProposalCard(QFrame):
    """Show what the assistant proposes; its buttons say what is done, and what stays as it is."""

    decided = Signal(str)
    """The user decided: cancelled, once, session or never."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self._proposal: Proposal | None = None
        self.title = label(strong=True, wrap=True)
        self.effect = label(wrap=True)
        self.details = label(size="small", meaning="muted", wrap=True)
        self.standing = label(size="small", meaning="muted", wrap=True)
        self.decline = button("", tooltip=tr("Close the proposal; nothing is done"))
        self.decline.clicked.connect(lambda: self.decided.emit(DISMISSED))
        self.accept = button("", kind="primary", tooltip=tr("Do it now"))
        self.accept.clicked.connect(lambda: self.decided.emit("once"))
        self.more = button(
            tr("More…"), kind="quiet", tooltip=tr("Allow it for longer, or block it")
        )
        menu = QMenu(self.more)
        menu.setToolTipsVisible(True)
        self.choices = {how: self._add_choice(menu, how) for how in STANDING}
        self.more.setMenu(menu)
        self._expiry = QTimer(self)
        self._expiry.setSingleShot(True)
        self._expiry.timeout.connect(lambda: self.show_proposal(self._proposal, ""))
        choices = FoldRow(self.decline, clear_panel(row(self.accept, self.more, Stretch())), (0, 1))
        texts = (self.title, self.effect, self.details, self.standing)
        self.setLayout(column(*texts, choices, margins=(theme.M, theme.M, theme.M, theme.M)))
        self.hide()

    def show_proposal(self, proposal: Proposal | None, decision: str) -> None:
        """Show a proposal; `decision` is empty before the user decides."""
        self._proposal = proposal
        self._expiry.stop()
        self.setVisible(proposal is not None)
        if proposal is None:
            return
        left = proposal.expires - time.time()
        is_open = not decision and left > 0
        set_text(self.title, tr("{title}?", title=plain_cell(proposal.title)))
        set_text(self.effect, plain_cell(proposal.effect))
        set_text(
            self.details,
            "\n".join(
                tr("{caption}: {value}", caption=caption, value=plain_cell(value))
                for caption, value in proposal.details
            ),
        )
        set_text(self.standing, standing(proposal, decision, time.time()))
        self.details.setVisible(bool(proposal.details))
        self.setAccessibleName(tr("Proposal: {title}", title=proposal.title))
        self.setAccessibleDescription(f"{proposal.effect} {self.standing.text()}")
        self.decline.setText(_caption(proposal.buttons.decline))
        self.accept.setText(_caption(proposal.buttons.accept))
        self.more.setAccessibleName(
            tr("{caption}: {value}", caption=tr("More"), value=proposal.title)
        )
        for made in (self.decline, self.accept, self.more):
            made.setVisible(is_open)
        self.choices["session"].setVisible(not (proposal.once or proposal.by))
        if is_open:
            self._expiry.start(round(1000 * left) + 100)

    def settle(self) -> None:
        """Lay out the card now, since its height is needed before Qt does it."""
        layout = self.layout()
        assert layout is not None
        layout.activate()

    def _add_choice(self, menu: QMenu, decision: Decision) -> QAction:
        made = menu.addAction(tr(STANDING[decision].title))
        made.setToolTip(tr(STANDING[decision].help))
        made.triggered.connect(lambda: self.decided.emit(decision))
        return made


def _caption(text: Message) -> str:
    """Return the caption of a button, in which a name has no key of its own."""
    return plain_cell(tr_text(text)).replace("&", "&&")


NONE = "none"


class ChoiceCard(QFrame):
    """Show what a question may mean, as plain text, with a button for each meaning."""

    chosen = Signal(str)
    """The user chose a meaning by its number, or "none"."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.title = label(tr("I am not sure what you mean. Did you mean:"), strong=True, wrap=True)
        self.buttons = {
            name: self._button(name) for name in (*map(str, range(1, MAX_CHOICES + 1)), NONE)
        }
        self.buttons[NONE].setText(tr("None of these"))
        self.buttons[NONE].setToolTip(tr("Rephrase the question"))
        parts = (self.title, *self.buttons.values())
        self.setLayout(column(*parts, margins=(theme.M, theme.M, theme.M, theme.M)))
        self.hide()

    def show_choices(self, choices: Sequence[Choice]) -> None:
        """Show these meanings, or hide the card if there are none."""
        self.setVisible(bool(choices))
        texts = {str(number): choice.words for number, choice in enumerate(choices, 1)}
        self.setAccessibleName(tr("Did you mean: {choices}", choices="; ".join(texts.values())))
        for name, made in self.buttons.items():
            made.setVisible(name in texts or name == NONE)
            if name in texts:
                made.setText(f"{name}  {texts[name]}".replace("&", "&&"))
                made.setAccessibleName(tr("Choose {n}: {text}", n=name, text=texts[name]))
                made.setToolTip(tr("You can also type {n}", n=name))

    def settle(self) -> None:
        """Lay out the card now, since its height is needed before Qt does it."""
        layout = self.layout()
        assert layout is not None
        layout.activate()

    def _button(self, name: str) -> QPushButton:
        made = button("", kind="quiet" if name == NONE else "")
        made.clicked.connect(lambda: self.chosen.emit(name))
        return made


class StepsRow(QWidget):
    """Offer what helps with what an answer tells; hidden if there is nothing."""

    chosen = Signal(int)
    """The user chose a step, by its place."""

    def __init__(self) -> None:
        super().__init__()
        self._titles: list[str] = []
        self.buttons = [self._button(place) for place in range(MOST_STEPS)]
        self.hide()

    def show_steps(self, steps: Sequence[Step]) -> None:
        """Show a button for each of some steps."""
        self._titles = [_caption(step.title) for step in steps]
        self.setVisible(bool(steps))
        for place, made in enumerate(self.buttons):
            made.setVisible(place < len(steps))
            made.setAccessibleName(tr_text(steps[place].title) if place < len(steps) else "")

    def fit(self, width: int) -> None:
        """Place the buttons beside each other, as many in a line as have room in this width."""
        x = y = 0
        for made, title in zip(self.buttons, self._titles, strict=False):
            made.setText(title)
            around = made.sizeHint().width() - made.fontMetrics().horizontalAdvance(title)
            elide = Qt.TextElideMode.ElideRight
            made.setText(made.fontMetrics().elidedText(title, elide, width - around))
            size = made.sizeHint()
            if x and x + size.width() > width:
                x, y = 0, y + size.height() + theme.XS
            made.setGeometry(x, y, size.width(), size.height())
            x += size.width() + theme.XS
            self.setFixedHeight(y + size.height())

    def _button(self, place: int) -> QPushButton:
        made = button("", kind="quiet")
        made.setParent(self)
        made.setProperty("chip", "true")
        made.clicked.connect(lambda: self.chosen.emit(place))
        return made


class UndoLine(QWidget):
    """Offer to undo the last deletion; hidden before the first one."""

    def __init__(self) -> None:
        super().__init__()
        self._undo: Callable[[], None] | None = None
        self.text = elided(size="small", meaning="muted")
        self.undo = button(tr("Undo"), kind="quiet", tooltip=tr("Restore what was deleted"))
        self.undo.clicked.connect(self._restore)
        self.setLayout(row(Stretch(self.text), self.undo))
        self.hide()

    def offer(self, text: str, undo: Callable[[], None]) -> None:
        """Show what was deleted; only the last deletion can be undone."""
        self._undo = undo
        self.text.setText(text)
        set_tooltip(self.text, text)
        self.show()
        self.undo.setFocus()

    def clear(self) -> None:
        """Forget the last deletion."""
        self._undo = None
        self.hide()

    def _restore(self) -> None:
        undo, self._undo = self._undo, None
        self.hide()
        if undo is not None:
            undo()
