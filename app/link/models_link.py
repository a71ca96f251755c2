"""What the models page asks for: the list, fetching, and timing, each for as long as it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.models.model_requests import (
    AddModel,
    Changed,
    ForgetModel,
    ListModels,
    ModelReply,
    ModelRequest,
    Models,
    Pulled,
    Pulling,
    PullModel,
    StopPull,
    StopTiming,
    Timed,
    TimeModel,
    Timing,
)
from assistant.client import Assistant
from assistant.idle import Cancelled
from assistant.library import model_list
from assistant.library.describe import name_of
from assistant.messages import Event, Waiting
from scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from assistant.library.pull import Pull


class Modelling:
    """`carry_out` in any thread; one model is fetched and one timed at a time."""

    def __init__(self, tell: Callable[[ModelReply], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._pull: Pull | None = None
        self._timer = Assistant()

    def stop(self) -> None:
        """End what takes long."""
        with self._lock:
            if self._pull is not None:
                self._pull.cancel()
        self._timer.cancel()

    def carry_out(self, request: ModelRequest) -> ModelReply:
        """Raises UserError."""
        match request:
            case ListModels(used=used):
                return Models(model_list.listed_models(used))
            case AddModel(path=path):
                return Changed(f"{model_list.add(path).name} is on the list")
            case ForgetModel(path=path):
                model_list.remove(path)
                return Changed(f"{name_of(path)} is off the list; its files stay in {path}")
            case PullModel(name=name):
                from assistant.library.pull import Pull  # seldom needed: the window starts without

                return self._fetch(Pull(name))
            case StopPull():
                with self._lock:
                    if self._pull is not None:
                        self._pull.cancel()
            case TimeModel():
                return self._time(request)
            case StopTiming():
                self._timer.cancel()
        return Changed()

    def _fetch(self, pull: Pull) -> ModelReply:
        with self._lock:
            if self._pull is not None:
                raise UserError(f"{self._pull.name} is being fetched; wait for it, or stop it")
            self._pull = pull
        try:
            model = pull.run(lambda progress: self._tell(Pulling(progress)))
        finally:
            with self._lock:
                self._pull = None
        return Pulled(
            f"{pull.name} is in {pull.folder}"
            if model
            else f"stopped; what was fetched of {pull.name} is kept"
        )

    def _time(self, request: TimeModel) -> ModelReply:
        def on_event(event: Event) -> None:
            if isinstance(event, Waiting):
                self._tell(Timing(request.path, event.reason))

        try:
            return Timed(
                request.path, self._timer.benchmark(request.path, request.device, on_event)
            )
        except Cancelled:
            return Timed(request.path, None)
