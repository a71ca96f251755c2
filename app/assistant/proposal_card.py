"""The card of a proposal: what would be done, what would come of it, and the three answers a person can give."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from app.assistant.proposals import ANSWERS, standing
from app.widgets import theme
from app.widgets.controls import button, label, row, set_text
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
