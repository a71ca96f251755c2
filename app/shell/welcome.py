"""The first page of somebody who opens the window for the first time."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QPushButton, QVBoxLayout, QWidget

from app.shell.welcome_steps import STEPS, background, found
from app.state import State
from app.widgets import theme
from app.widgets.controls import button, card, label, set_text

_WIDEST, _BUTTON = 760, 110


class Welcome(QWidget):
    """Emits `chosen` with the page to go to."""

    chosen = Signal(str)

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.devices = label(wrap=True, strong=True)
        self.steps: dict[str, QPushButton] = {}
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        grid = QGridLayout()
        grid.setHorizontalSpacing(theme.L)
        grid.setVerticalSpacing(theme.M)
        grid.setColumnStretch(1, 1)
        for at, step in enumerate(STEPS):
            made = self.steps[step.page] = button(step.button, kind="" if at else "primary")
            made.setFixedWidth(_BUTTON)
            made.clicked.connect(lambda _=False, page=step.page: self.chosen.emit(page))
            grid.addWidget(made, at, 0)
            grid.addWidget(label(step.text, wrap=True), at, 1)
        inner = QVBoxLayout()
        inner.setSpacing(theme.L)
        inner.addWidget(label("Welcome to GPU Deck", size="large", strong=True))
        inner.addWidget(self.devices)
        inner.addLayout(grid)
        inner.addWidget(label(background(), size="small", meaning="muted", wrap=True))
        frame = card(inner)
        inner.setContentsMargins(theme.XL, theme.XL, theme.XL, theme.XL)
        frame.setMaximumWidth(_WIDEST)
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(frame, 1, 1)
        for side in (0, 2):
            layout.setRowStretch(side, 1)
            layout.setColumnStretch(side, 1)
        layout.setColumnStretch(1, 1000)

    def refresh(self) -> None:
        set_text(self.devices, found(self._state))
