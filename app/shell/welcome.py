"""The first page of somebody who opens the window for the first time."""

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


@dataclass(frozen=True)
class Step:
    page: str
    """Where its button leads."""
    button: str
    text: str


STEPS = (
    Step(
        "dashboard",
        "Watch",
        "What every GPU does, live, and what it did. Click a GPU for all that is known of it.",
    ),
    Step(
        "workloads",
        "Run",
        "Accelerated attention on your GPU: checked against a reference, measured, compared.",
    ),
    Step(
        "jobs",
        "Queue",
        "Any command, when GPUs are free. Jobs outlive this window, and a crash of anything but the machine.",
    ),
    Step(
        "assistant",
        "Ask",
        "What happened, and why; on this machine, only while nothing else uses the GPU.",
    ),
    Step(
        "settings",
        "Set up",
        "Alerts and their thresholds, which GPUs take jobs, theme, the assistant's model.",
    ),
)


def found(state: State) -> str:
    """Which devices there are."""
    snapshot = state.snapshot
    if snapshot is None:
        return f"Looking for your devices: {state.link.text}."
    devices = snapshot.devices
    if not devices:
        return "No device can be read yet. " + "; ".join(snapshot.notices)
    names = list(dict.fromkeys(s.device.name for s in devices))
    note = next((s.device.note for s in devices if s.device.note), "")
    if devices[0].device.kind == "cpu":
        return (
            f"No NVIDIA GPU was found, so this machine's CPU is the device, for real: {names[0]}."
        )
    return f"{plural(len(devices), 'GPU')}: {', '.join(names)}." + (f" {note}." if note else "")


def background() -> str:
    """What goes on running when the window is closed."""
    return (
        f"A small process in the background reads the devices and runs the queue; it goes on when you close this window. "
        f"End it with: gpudeck daemon stop. All it keeps is in {paths.home()}, readable by you alone; nothing leaves this machine "
        "unless you ask."
    )
