"""One request's line to whoever asked: what it waits for goes out; Stop, and to go on with the CPU, come in. Free of torch and Qt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from assistant.engine.checkpoint import Checkpoint, FileCheckpoint, NoCheckpoint
from assistant.idle import Cancelled
from assistant.messages import Chunk, DeviceChoice, Event, Waiting

T = TypeVar("T")


class RequestContext:
    """Made by the host in its loop, used by the desk in a thread."""

    def __init__(
        self,
        say: Callable[[Event], None] = lambda event: None,
        device: DeviceChoice = "auto",
        checkpoint: FileCheckpoint | None = None,
    ) -> None:
        """`say` is called in the thread that works. `checkpoint`: what the request has come to before."""
        self.checkpoint: Checkpoint = checkpoint or NoCheckpoint()
        self._saved_checkpoint = checkpoint
        self.device = ""
        """Where the model runs, once that is known."""
        self.stop, self.cpu = threading.Event(), threading.Event()
        self._say = say
        if device == "cpu":
            self.cpu.set()

    def waiting(self, reason: str, *, cpu: bool = False) -> None:
        """Tell what is waited for or done; `cpu`: it would go on at once with the CPU, if told so."""
        self._say(Waiting(reason, cpu and not self.cpu.is_set(), self.device))

    def wrote(self, text: str) -> None:
        """Send the next piece of the text."""
        self._say(Chunk(text))

    def kept(self, value: T, kind: type[T]) -> T:
        """What the request was first worked on with; `value` the first time."""
        return (
            self._saved_checkpoint.kept(value, kind)
            if self._saved_checkpoint is not None
            else value
        )

    def look(self) -> None:
        """Raises Cancelled once whoever asked wants no more."""
        if self.stop.is_set():
            raise Cancelled
