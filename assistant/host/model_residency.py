"""Keep the model loaded, on a GPU only while the daemon leases one. Imports torch on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gpudeck.assistant.host.channel import RequestChannel
from gpudeck.assistant.library.describe import describe
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.settings import Settings

if TYPE_CHECKING:
    from gpudeck.assistant.engine.author import EngineAuthor
    from gpudeck.assistant.engine.engine import Engine


class ModelResidency:
    """Load the configured model on the GPU, or on the CPU for requests that do not wait."""

    def __init__(self, on_evicted: Callable[[Message], None] = lambda reason: None) -> None:
        """Create a residency without a model.

        Args:
            on_evicted: Called with the reason, in another thread, once the model must leave the
                GPU.
        """
        self.error: Message = ""
        """The reason why the configured model could not be loaded."""
        self.evicted = threading.Event()
        """Set once the model must leave the GPU: it stops at the next token, and the process
        ends."""
        self.eviction_reason: Message = ""
        self.left_gpu = False
        """A model on the GPU was dropped or did not fit, so the process must end to free it."""
        self._on_evicted = on_evicted
        self._engines: dict[str, Engine] = {}
        self._loaded_with = Settings()
        self._lock = threading.RLock()
        """Held while a model is loaded or replaced, or a GPU leased."""
        self._lease = GpuLease(self.evict)

    @property
    def name(self) -> str:
        """Return the name of the loaded model; empty if there is none."""
        return next((engine.name for engine in list(self._engines.values())), "")

    @property
    def on_gpu(self) -> bool:
        """Return whether this process may hold GPU memory."""
        return self._lease.held

    def evict(self, reason: Message) -> None:
        """Make the model leave the GPU. May be called from any thread."""
        self.eviction_reason = reason
        self.evicted.set()
        self._on_evicted(reason)

    def drop(self) -> None:
        """Forget the model and its error; it ends with the last request that uses it."""
        with self._lock:
            self.left_gpu |= "cuda" in self._engines
            for engine in self._engines.values():
                engine.retire()
            self._engines, self.error = {}, ""

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Pause the requests of programs while a person's question is answered."""
        with ExitStack() as stack:
            for engine in list(self._engines.values()):
                stack.enter_context(engine.serving.reserved())
            yield

    def author(self, settings: Settings, channel: RequestChannel) -> EngineAuthor:
        """Return an author for one text. Raises as `engine` does."""
        from gpudeck.assistant.engine.author import EngineAuthor

        return EngineAuthor(
            self.engine(settings, channel),
            lambda: channel.stop.is_set() or self.evicted.is_set(),
            channel.checkpoint,
            channel.emit_waiting,
        )

    def idle_engine(self, settings: Settings, channel: RequestChannel) -> Engine:
        """Return the loaded model as `engine` does, but do not wait for a GPU.

        Raises as `engine` does, and UserError if the GPU is not idle.
        """
        if settings.model_device == "cuda" and not (channel.use_cpu.is_set() or self._lease.held):
            with self._lock:
                self._lease.take(gpu_bytes(settings.model))
        return self.engine(settings, channel)

    def engine(self, settings: Settings, channel: RequestChannel) -> Engine:
        """Return the loaded model on the device that the settings and the request ask for.

        The request may use it until its end, also if it is replaced. Raises Cancelled, and
        UserError if the model cannot be loaded.
        """
        device = "cpu"
        if settings.model_device == "cuda" and self._wait_for_gpu(settings.model, channel):
            device = "cuda"
        with self._lock:
            previous = self._loaded_with
            if (settings.model, settings.model_device) != (previous.model, previous.model_device):
                self.drop()
            self._loaded_with = settings
            if device not in self._engines:
                from gpudeck.assistant.engine.engine import Engine  # imports torch

                channel.emit_waiting(phrase("loading the model"))
                try:
                    self._engines[device] = Engine(settings.model, device)
                except UserError as e:
                    self.error = e.message
                    self.left_gpu |= device == "cuda"
                    raise
            self.error, channel.device = "", device
            engine = self._engines[device]
            engine.enter()
        channel.ending.callback(engine.leave)
        return engine

    def _wait_for_gpu(self, model: str, channel: RequestChannel) -> bool:
        """Wait for a GPU; return False once the request prefers the CPU.

        Raises UserError if there is no GPU at all.
        """
        if channel.use_cpu.is_set() or self._lease.held:
            return not channel.use_cpu.is_set()
        memory = gpu_bytes(model)
        with Client(start=False) as daemon:
            for snapshot in daemon.subscribe():
                channel.raise_if_cancelled()
                if channel.use_cpu.is_set():
                    return False
                try:
                    with self._lock:
                        self._lease.take(memory)
                except UserError as e:
                    if not any(state.device.kind == "nvidia" for state in snapshot.devices):
                        raise UserError(
                            phrase(
                                "the model is set to use a GPU, but {problem}", problem=e.message
                            )
                        ) from e
                    why = phrase("waiting for the GPU ({why})", why=e.message)
                    channel.emit_waiting(why, cpu=True)
                else:
                    return True
        raise DaemonGone(phrase("the daemon stopped while the assistant waited for a GPU"))


def gpu_bytes(model: str) -> int:
    """Return the GPU memory that a model takes, however its files store it; 0 if it is unusable."""
    return describe(model).needs.get("cuda", 0)
