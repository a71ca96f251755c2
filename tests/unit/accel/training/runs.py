"""Train small models in this process, and stop a run where a test wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.training.api import opened, write_out
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.settings import Settings

SMALL: dict[str, Any] = {
    "tokens": 32, "batch": 4, "steps": 6, "checkpoint": 3, "evaluate": 6, "precision": "float32",
    "compile": False, "deterministic": True, "rate": 1e-2,
}  # fmt: skip


class Quiet:
    """Follow a run, and stop it after a step if asked."""

    def __init__(self, stop: int = 0) -> None:
        self._stop, self._step = stop, 0

    def say(self, text: object) -> None:
        pass

    def measured(self, row: Any) -> None:
        self._step = row.step

    def stopping(self) -> bool:
        return bool(self._stop) and self._step >= self._stop


def train(data: Path, out: Path, stop: int = 0, **more: Any) -> Run:
    """Train with small settings, write the model, and return the run."""
    settings = Settings(data=str(data), **{**SMALL, **more})
    with opened(settings, out, find_device(), Quiet(stop), lambda *_: None) as run:
        run.train()
        write_out(run, out)
    return run
