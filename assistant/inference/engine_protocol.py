"""Messages to and from the process that serves a model: JSON, one a line of its standard streams.

Free of torch and Qt.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gpudeck.accel.serving.memory import CacheError, CacheFormat, Weights
from gpudeck.assistant.completion import Token, Wanted
from gpudeck.language.text import Message

MOST_SENT = 256
"""Texts of an answer that are sent before somebody reads them; after that the answer pauses."""
Device = Literal["auto", "cpu", "cuda"]
"""auto: a leased GPU if there is one, or else the CPU. cuda: the GPU that the environment names."""


class Options(msgspec.Struct, frozen=True):
    """Say what is served, and how. The process gets it as its argument."""

    folder: str
    device: Device = "auto"
    weights: Weights = "auto"
    cache: CacheFormat = "auto"
    cache_tokens: int = 0
    """Tokens that the cache holds; 0: as many as fit."""
    draft: str = ""
    """Folder of a smaller model that proposes tokens; empty: they are looked up in the prompt."""
    prompts_bytes: int = 4 * 2**30
    """Disk space for the cache of long prompts, of all models together; 0: none is kept."""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Ask for an answer."""

    id: int
    wanted: Wanted


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End a request."""

    id: int


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Say that some texts of an answer were read, so that as many more may be sent."""

    id: int
    texts: int


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Ask for the statistics."""

    id: int


Request = Submit | Cancel | Taken | Look


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Say that the model is loaded."""

    device: str
    weights: str
    context: int
    """The most tokens of a prompt and its answer."""
    cache_tokens: int
    """0: the model keeps a state of one size for each text."""
    seconds: float
    gpu: str = ""
    """What CUDA_VISIBLE_DEVICES names, if it is on a GPU."""
    cache: CacheFormat = "auto"
    cache_error: CacheError | None = None
    """Measured on this model; None: the cache is exact."""


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """Say what goes on before the model is loaded."""

    reason: Message
    gpu: bool = False
    """It waits until a GPU is free."""


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """Say how much of the weights is loaded."""

    done: int
    """Bytes."""
    total: int


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Carry the next part of an answer."""

    id: int
    text: str
    tokens: tuple[Token, ...] = ()
    """If logprobs were asked for."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Say how an answer ended."""

    id: int
    reason: Literal["stop", "length", "cancelled", "error", "refused", "too long"]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    accepted: int = 0
    """Tokens that speculation proposed, and the model chose."""
    message: str = ""


class Figures(msgspec.Struct, frozen=True, tag="figures"):
    """Hold the statistics; see `gpudeck.accel.serving.engine.Statistics`."""

    id: int
    values: dict[str, float]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Say why the process ends."""

    message: Message
    evicted: bool = False
    """Somebody else needs the GPU: start again."""


Reply = Ready | Waiting | Loading | Text | Done | Figures | Failed
