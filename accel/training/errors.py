"""Say why a training run cannot begin, or why it ended early."""

from __future__ import annotations

from gpudeck.language.text import Text


class TrainingError(Exception):
    """Signal what is wrong with settings, data or a checkpoint, and what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text)
        self.text = text
        """The message as a value, for readers of any language."""

    def __str__(self) -> str:
        return str(self.text)


class Refused(TrainingError):
    """Signal that the settings, or the data that they name, cannot be used."""


class Stopped(TrainingError):
    """Signal that the run was asked to stop, and has written a checkpoint."""


class Diverged(TrainingError):
    """Signal a loss or gradient that is not finite, or far larger than those before it."""

    def __init__(self, text: Text, step: int | None = None) -> None:
        """Take the message, and the step whose batch is to blame, if it is one."""
        super().__init__(text)
        self.step = step
