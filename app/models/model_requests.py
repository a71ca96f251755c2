"""What the models page asks for, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from assistant.library.describe import Model
    from assistant.library.hub import Progress
    from assistant.messages import ModelSpeed


class ListModels(msgspec.Struct, frozen=True):
    """The models on the list, and the one that is used."""

    used: str = ""


class AddModel(msgspec.Struct, frozen=True):
    """Put a folder or file on the list."""

    path: str


class ForgetModel(msgspec.Struct, frozen=True):
    """Take a model off the list; its files stay."""

    path: str


class PullModel(msgspec.Struct, frozen=True):
    """Fetch a model from Hugging Face."""

    name: str


class StopPull(msgspec.Struct, frozen=True):
    """End that; what was fetched is kept."""


class TimeModel(msgspec.Struct, frozen=True):
    """Load a model in the assistant's process, and time it there."""

    path: str
    device: Literal["cpu", "cuda"]


class StopTiming(msgspec.Struct, frozen=True):
    pass


ModelRequest = ListModels | AddModel | ForgetModel | PullModel | StopPull | TimeModel | StopTiming


class Models(msgspec.Struct, frozen=True):
    found: tuple[Model, ...]


class Changed(msgspec.Struct, frozen=True):
    """The list is another one now; `said` is what to tell."""

    said: str = ""


class Pulled(msgspec.Struct, frozen=True):
    """A model was fetched, or that was stopped; `said` tells which."""

    said: str


class Pulling(msgspec.Struct, frozen=True):
    progress: Progress


class Timing(msgspec.Struct, frozen=True):
    """How far a benchmark is."""

    path: str
    text: str


class Timed(msgspec.Struct, frozen=True):
    path: str
    speed: ModelSpeed | None
    """None: it was stopped."""


ModelReply = Models | Changed | Pulled | Pulling | Timing | Timed
