"""What the models page asks for, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assistant.library.describe import Model
from assistant.library.hub import Progress
from assistant.messages import Speed


@dataclass(frozen=True)
class ListModels:
    """The models on the list, and the one that is used."""

    used: str = ""


@dataclass(frozen=True)
class AddModel:
    """Put a folder or file on the list."""

    path: str


@dataclass(frozen=True)
class ForgetModel:
    """Take a model off the list; its files stay."""

    path: str


@dataclass(frozen=True)
class PullModel:
    """Fetch a model from Hugging Face."""

    name: str


@dataclass(frozen=True)
class StopPull:
    """End that; what was fetched is kept."""


@dataclass(frozen=True)
class TimeModel:
    """Load a model in the assistant's process, and time it there."""

    path: str
    device: Literal["cpu", "cuda"]


@dataclass(frozen=True)
class StopTiming:
    pass


ModelRequest = ListModels | AddModel | ForgetModel | PullModel | StopPull | TimeModel | StopTiming


@dataclass(frozen=True)
class Models:
    found: tuple[Model, ...]


@dataclass(frozen=True)
class Changed:
    """The list is another one now; `said` is what to tell."""

    said: str = ""


@dataclass(frozen=True)
class Pulled:
    """A model was fetched, or that was stopped; `said` tells which."""

    said: str


@dataclass(frozen=True)
class Pulling:
    progress: Progress


@dataclass(frozen=True)
class Timing:
    """How far a benchmark is."""

    path: str
    text: str


@dataclass(frozen=True)
class Timed:
    path: str
    speed: Speed | None
    """None: it was stopped."""


ModelReply = Models | Changed | Pulled | Pulling | Timing | Timed
