"""One request's line to whoever asked: what it waits for goes out; Stop, and to go on with the CPU, come in. Free of torch and Qt."""

from __future__ import annotations

import threading
from collections.abc import Callable

from assistant.idle import Cancelled
from assistant.messages import Chunk, Device, Event, Waiting


class Turn:
    """Made by the host in its loop, used by the desk in a thread."""

    def __init__(self, say: Callable[[Event], None] = lambda event: None, device: Device = "auto") -> None:
        """`say` is called in the thread that works."""
        self.stop, self.cpu = threading.Event(), threading.Event()
        self._say = say
        if device == "cpu":
            self.cpu.set()

    def waiting(self, reason: str, *, cpu: bool = False) -> None:
        """Tell what is waited for or done; `cpu`: it would go on at once with the CPU, if told so."""
        self._say(Waiting(reason, cpu and not self.cpu.is_set()))

    def wrote(self, text: str) -> None:
        """Send the next piece of the text."""
        self._say(Chunk(text))

    def look(self) -> None:
        """Raises Cancelled once whoever asked wants no more."""
        if self.stop.is_set():
            raise Cancelled
