"""Messages to and from a running `gpudeck serve FOLDER`: JSON, one a line, over its Unix socket.

Free of torch and Qt.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpudeck.accel.serving.memory import CacheError, CacheFormat
from gpudeck.assistant.host_protocol import Chunk, Failed, Waiting
from gpudeck.language.text import Message

Held = Literal["lease", "job"]
"""lease: a GPU while nobody else needs it; job: one that the queue gave."""
Phase = Literal["idle", "waiting", "loading", "ready", "failed"]
"""idle: it left the GPU, and is loaded again with the next request."""


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Ask what the server does; the reply is Served."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the server. It closes the connection."""


class Chat(msgspec.Struct, frozen=True, tag="chat"):
    """Ask for the model's next message; the reply is Waiting and Chunk, then Said or Failed.

    The end of the connection ends the answer.
    """

    turns: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Messages of the user and the model in turn; the first and the last are the user's."""
    schema: str = ""
    """The JSON schema of an answer that shall be JSON, which is then the likeliest one."""
    limit: int = 0
    """The most tokens of the answer; 0: as many as fit."""


class Served(msgspec.Struct, frozen=True, tag="served"):
    """Say what a server does."""

    name: str
    folder: str
    port: int
    pid: int
    held: Held
    phase: Phase
    note: Message = ""
    """What it waits for, why it failed, or that its engine does not answer."""
    device: str = ""
    gpu: str = ""
    """The UUID of the GPU that it is on."""
    weights: str = ""
    context: int = 0
    cache_tokens: int = 0
    cache: CacheFormat = "auto"
    cache_error: CacheError | None = None
    """Measured on this model; None: the cache is exact."""
    done: int = 0
    total: int = 0
    """Bytes of the weights while they are loaded."""
    seconds: float = 0.0
    """How long that takes so far; or took, once it is ready."""
    figures: dict[str, float] = {}
    """See `gpudeck.accel.serving.engine.Statistics`; empty unless it is ready, and answers."""

    @property
    def address(self) -> str:
        """Return the address for programs."""
        return f"http://127.0.0.1:{self.port}/v1"


class Said(msgspec.Struct, frozen=True, tag="said"):
    """End an answer."""

    device: str
    prompt_tokens: int
    tokens: int
    seconds: float
    cut_off: bool
    """It filled what the model reads and writes at most."""
    left_out: int = 0
    """Old turns that did not fit."""


Request = Look | Stop | Chat
Reply = Served | Waiting | Chunk | Said | Failed
