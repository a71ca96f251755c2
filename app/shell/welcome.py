"""Welcome a user who opens the window for the first time, and lead to the pages."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QPushButton, QVBoxLayout, QWidget

from app.format.values import plural
from app.state import State
from app.widgets import theme
from app.widgets.controls import button, card, label, set_text
from scheduler.protocol import paths

_WIDEST, _BUTTON = 760, 110


class Welcome(QWidget):
    """Show what there is to do on each page."""

    chosen = Signal(str)
    """The user chose the page with this name."""

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
            made.setFixedWidth(theme.px(_BUTTON))
            made.clicked.connect(lambda _=False, page=step.page: self.chosen.emit(page))
            grid.addWidget(made, at, 0)
            grid.addWidget(label(step.text, wrap=True), at, 1)
        inner = QVBoxLayout()
        inner.setSpacing(theme.L)
        inner.addWidget(label("Welcome to GPU Deck", size="large", strong=True))
        inner.addWidget(self.devices)
        inner.addLayout(grid)
        inner.addWidget(label(background_text(), size="small", meaning="muted", wrap=True))
        frame = card(inner)
        inner.setContentsMargins(theme.XL, theme.XL, theme.XL, theme.XL)
        frame.setMaximumWidth(theme.px(_WIDEST))
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(frame, 1, 1)
        for side in (0, 2):
            layout.setRowStretch(side, 1)
            layout.setColumnStretch(side, 1)
        layout.setColumnStretch(1, 1000)

    def refresh(self) -> None:
        """Show the devices that were found."""
        set_text(self.devices, device_text(self._state))


@dataclass(frozen=True)
class Step:
    """Describe a page and the button that leads to it."""

    page: str
    button: str
    text: str


STEPS = (
    Step(
        "dashboard",
        "Watch",
        "See what every GPU does now and did before. Click a GPU to see its details.",
    ),
    Step(
        "workloads",
        "Run",
        "Run accelerated attention on your GPU: checked against a reference, and measured.",
    ),
    Step(
        "jobs",
        "Queue",
        "Queue any command until GPUs are free. Jobs keep running when you close this window.",
    ),
    Step(
        "assistant",
        "Ask",
        "Ask what happened, and why. Answers are computed on this machine, while the GPU is idle.",
    ),
    Step(
        "settings",
        "Set up",
        "Choose alert thresholds, the GPUs that take jobs, the theme and the assistant's model.",
    ),
)


def device_text(state: State) -> str:
    """Return a sentence that names the devices."""
    snapshot = state.snapshot
    if snapshot is None:
        return f"Looking for your devices: {state.link.text}."
    devices = snapshot.devices
    if not devices:
        return "No device can be read yet. " + "; ".join(snapshot.notices)
    names = list(dict.fromkeys(s.device.name for s in devices))
    note = next((s.device.note for s in devices if s.device.note), "")
    if devices[0].device.kind == "cpu":
        return f"No NVIDIA GPU was found, so this machine's CPU is the device: {names[0]}."
    return f"{plural(len(devices), 'GPU')}: {', '.join(names)}." + (f" {note}." if note else "")


def background_text() -> str:
    """Return a text about the process that keeps running when the window is closed."""
    return (
        "A small background process reads the devices and runs the queue. It keeps running when "
        "you close this window; to end it, run: gpudeck daemon stop. All its data is in "
        f"{paths.home()}, readable by you alone, and leaves this machine only if you ask for it."
    )
