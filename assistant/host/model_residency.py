"""Where the model is: loaded for the first request, on a GPU only by lease, and kept for the next. Brings torch in as it loads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from assistant.host.context import RequestContext
from assistant.host.lease import Lease, size_of
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.settings import Settings

if TYPE_CHECKING:
    from assistant.engine.engine import Engine, EngineAuthor


class ModelResidency:
    """The configured model, on the GPU, on the CPU, or on both where a request would not wait for the GPU."""

    def __init__(self, on_evicted: Callable[[str], None] = lambda reason: None) -> None:
        """`on_evicted(reason)` is called from another thread once the model must leave the GPU."""
        self.error = ""
        """Why the configured model could not be loaded."""
        self.evicted = threading.Event()
        """Set when the model must leave the GPU: it stops at the next token, and the process ends."""
        self.why_evicted = ""
        self.left_gpu = False
        """Set when a model on the GPU was dropped, or did not fit: only the end of the process frees all of its memory."""
        self._on_evicted = on_evicted
        self._engines: dict[str, Engine] = {}
        self._of = Settings()
        """What they were loaded by."""
        self._lease = Lease(self.evict)

    @property
    def name(self) -> str:
        """Of the model that is loaded; empty where none is."""
        return next((engine.name for engine in self._engines.values()), "")

    @property
    def on_gpu(self) -> bool:
        """Whether this process may have memory on a GPU."""
        return self._lease.held

    def evict(self, reason: str) -> None:
        """May be called from any thread."""
        self.why_evicted = reason
        self.evicted.set()
        self._on_evicted(reason)

    def drop(self) -> None:
        """Let go of the model, and of what was wrong with it."""
        self.left_gpu |= "cuda" in self._engines
        self._engines, self.error = {}, ""

    def at_hand(self, settings: Settings, turn: RequestContext) -> bool:
        """Whether the model can be had without a wait for a GPU."""
        if settings.model_device == "cpu" or turn.cpu.is_set() or self._lease.held:
            return True
        try:
            self._lease.take(size_of(settings.model))
        except UserError:
            return False
        return True

    def author(self, settings: Settings, turn: RequestContext) -> EngineAuthor:
        """Who writes one text by the model. Raises as `engine` does."""
        from assistant.engine.engine import EngineAuthor

        return EngineAuthor(
            self.engine(settings, turn),
            lambda: turn.stop.is_set() or self.evicted.is_set(),
            turn.checkpoint,
            turn.waiting,
        )

    def engine(self, settings: Settings, turn: RequestContext) -> Engine:
        """The model, where the settings want it, or on the CPU where whoever asked would not wait for the GPU.

        Raises Cancelled, and UserError saying why it cannot be had.
        """
        if (settings.model, settings.model_device) != (self._of.model, self._of.model_device):
            self.drop()
        self._of = settings
        device = (
            "cuda"
            if settings.model_device == "cuda" and self._leased(size_of(settings.model), turn)
            else "cpu"
        )
        if device not in self._engines:
            from assistant.engine.engine import (
                Engine,  # brings torch in: only where a model is configured
            )

            turn.waiting("loads the model")
            try:
                self._engines[device] = Engine(settings.model, device, wait=False)
            except UserError as e:
                self.error = str(e)
                self.left_gpu |= device == "cuda"
                raise
        self.error, turn.device = "", device
        self._engines[device].settle()
        return self._engines[device]

    def _leased(self, memory: int, turn: RequestContext) -> bool:
        """Wait for a GPU; False once whoever asked would rather go on with the CPU. Raises UserError where there is no GPU at all."""
        if turn.cpu.is_set() or self._lease.held:
            return not turn.cpu.is_set()
        with Client(start=False) as daemon:
            for snapshot in daemon.subscribe():
                turn.look()
                if turn.cpu.is_set():
                    return False
                try:
                    self._lease.take(memory)
                except UserError as e:
                    if not any(state.device.kind == "nvidia" for state in snapshot.devices):
                        raise UserError(
                            f"the model may use the GPU only while nothing else does; {e}"
                        ) from e
                    turn.waiting(f"waits for the GPU ({e})", cpu=True)
                else:
                    return True
        raise DaemonGone("the daemon went away while the assistant waited for a GPU")
