"""What the first page tells somebody who opens the window for the first time."""

from __future__ import annotations

from dataclasses import dataclass

from app.format.values import plural
from app.state import State
from scheduler.protocol import paths


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
