"""The channel of one request: events go out; Cancel and Use CPU come in. Free of torch and Qt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from gpudeck.assistant.completion import Token
from gpudeck.assistant.engine.checkpoint import Checkpoint, FileCheckpoint
from gpudeck.assistant.host_protocol import Chunk, DeviceChoice, Event, Waiting
from gpudeck.assistant.idle import Cancelled
from gpudeck.language.text import Message

T = TypeVar("T")


class RequestChannel:
    """Connect a request handler in its thread with the server that talks to the client."""

    def __init__(
        self,
        emit: Callable[[Event], None] = lambda event: None,
        device: DeviceChoice = "auto",
        checkpoint: FileCheckpoint | None = None,
    ) -> None:
        """Create a channel.

        Args:
            emit: Called with each event in the thread of the handler.
            device: Where the client wants the model to run.
            checkpoint: The progress that an earlier process saved for the same request.
        """
        self.checkpoint: Checkpoint = checkpoint or Checkpoint()
        self._file_checkpoint = checkpoint
        self._emit = emit
        self.device = ""
        """The device that the model runs on, `cpu` or `cuda`, once that is known."""
        self.stop, self.use_cpu = threading.Event(), threading.Event()
        self.ending = ExitStack()
        """What is called at the end of the request."""
        if device == "cpu":
            self.use_cpu.set()

    def emit_waiting(self, reason: Message, *, cpu: bool = False) -> None:
        """Send what the request waits for or does now.

        Args:
            reason: A phrase in the present participle, such as `loading the model`.
            cpu: Use CPU would end the wait.
        """
        cpu_helps = cpu and not self.use_cpu.is_set()
        self._emit(Waiting(reason, cpu_helps, self.device))

    def emit_text(self, text: str, tokens: tuple[Token, ...] = ()) -> None:
        """Send the next piece of the text, with its tokens if they were asked for."""
        self._emit(Chunk(text, tokens))

    def keep(self, value: T, kind: type[T]) -> T:
        """Return the value that an earlier process kept for this request, else keep this one."""
        if self._file_checkpoint is None:
            return value
        return self._file_checkpoint.keep(value, kind)

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled once the client has cancelled the request."""
        if self.stop.is_set():
            raise Cancelled
