"""The card of a proposal: what would be done, what would come of it, and the three answers a
person can give."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from app.assistant.captions import ANSWERS, standing
from app.widgets import theme
from app.widgets.controls import button, elided, label, row, set_text, set_tooltip
from assistant.intents.choices import MAX_CHOICES, Choice
from assistant.tools.proposal import Decision, Proposal


class ProposalCard(QFrame):
    """Emits `decided` with once, session or never. Plain text only: names in it are foreign."""

    decided = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self._proposal: Proposal | None = None
        self.title = label(strong=True, wrap=True)
        self.effect = label(wrap=True)
        self.details = label(size="small", meaning="muted", wrap=True)
        self.standing = label(size="small", meaning="muted", wrap=True)
        self.buttons = {how: self._answer(how) for how in ANSWERS}
        self._expiry = QTimer(self)
        self._expiry.setSingleShot(True)
        self._expiry.timeout.connect(lambda: self.show_proposal(self._proposal, ""))
        choices = row(*self.buttons.values())
        choices.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.M, theme.M, theme.M, theme.M)
        layout.setSpacing(theme.S)
        for part in (self.title, self.effect, self.details, self.standing):
            layout.addWidget(part)
        layout.addLayout(choices)
        self.hide()

    def show_proposal(self, proposal: Proposal | None, decision: str) -> None:
        """`decision`: the answer that was given; empty until there is one."""
        self._proposal = proposal
        self._expiry.stop()
        self.setVisible(proposal is not None)
        if proposal is None:
            return
        left = proposal.expires - time.time()
        is_open = not decision and left > 0
        set_text(self.title, f"{proposal.title}?")
        set_text(self.effect, proposal.effect)
        set_text(
            self.details, "\n".join(f"{caption}: {value}" for caption, value in proposal.details)
        )
        set_text(self.standing, standing(proposal, decision, time.time()))
        self.details.setVisible(bool(proposal.details))
        self.setAccessibleName(f"Proposal: {proposal.title}")
        self.setAccessibleDescription(f"{proposal.effect} {self.standing.text()}")
        for how, made in self.buttons.items():
            made.setVisible(is_open and not (how == "session" and proposal.once))
            made.setAccessibleName(f"{ANSWERS[how].title}: {proposal.title}")
        if is_open:
            self._expiry.start(round(1000 * left) + 100)

    def settle(self) -> None:
        """Lay itself out at once: its height is asked for before Qt gets to it."""
        layout = self.layout()
        assert layout is not None
        layout.activate()

    def _answer(self, how: Decision) -> QPushButton:
        made = button(
            ANSWERS[how].title,
            kind="primary" if how == "once" else "quiet" if how == "never" else "",
            tooltip=ANSWERS[how].help,
        )
        made.clicked.connect(lambda: self.decided.emit(how))
        return made


NONE = "none"


class ChoiceCard(QFrame):
    """Emits `chosen` with the number of a choice, from "1", or with "none". Plain text only:
    names in it are foreign."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("card", "true")
        self.title = label("I am not sure what you mean. Did you mean:", strong=True, wrap=True)
        self.buttons = {
            name: self._button(name) for name in (*map(str, range(1, MAX_CHOICES + 1)), NONE)
        }
        self.buttons[NONE].setText("None of these")
        self.buttons[NONE].setToolTip("Say it in other words")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.M, theme.M, theme.M, theme.M)
        layout.setSpacing(theme.S)
        layout.addWidget(self.title)
        for made in self.buttons.values():
            layout.addWidget(made)
        self.hide()

    def show_choices(self, choices: Sequence[Choice]) -> None:
        """None of them: it is hidden."""
        self.setVisible(bool(choices))
        said = {str(number): choice.words for number, choice in enumerate(choices, 1)}
        self.setAccessibleName("Did you mean: " + "; ".join(said.values()))
        for name, made in self.buttons.items():
            made.setVisible(name in said or name == NONE)
            if name in said:
                made.setText(f"{name}  {said[name]}".replace("&", "&&"))
                made.setAccessibleName(f"Choose {name}: {said[name]}")
                made.setToolTip(f"You can type {name}, too")

    def settle(self) -> None:
        """Lay itself out at once: its height is asked for before Qt gets to it."""
        layout = self.layout()
        assert layout is not None
        layout.activate()

    def _button(self, name: str) -> QPushButton:
        made = button("", kind="quiet" if name == NONE else "")
        made.clicked.connect(lambda: self.chosen.emit(name))
        return made


class UndoLine(QWidget):
    """Hidden until something was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self._undo: Callable[[], None] | None = None
        self.said = elided(size="small", meaning="muted")
        self.undo = button("Undo", kind="quiet", tooltip="Bring back what was deleted")
        self.undo.clicked.connect(self._bring_back)
        layout = row(self.said, self.undo)
        layout.setStretch(0, 1)
        self.setLayout(layout)
        self.hide()

    def offer(self, said: str, undo: Callable[[], None]) -> None:
        """Only the last deletion can be undone here."""
        self._undo = undo
        self.said.setText(said)
        set_tooltip(self.said, said)
        self.show()
        self.undo.setFocus()

    def clear(self) -> None:
        self._undo = None
        self.hide()

    def _bring_back(self) -> None:
        undo, self._undo = self._undo, None
        self.hide()
        if undo is not None:
            undo()
