"""One request of the window on its way, free of Qt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from gpudeck.app.language.texts import tr_text
from gpudeck.extras import missing_by
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Carrier(Protocol):
    """Describe what a call needs of the link that carries it."""

    def run(self, work: Callable[[], object]) -> None: ...
    def deliver(self, handler: Callable[[], object]) -> None: ...
    def client(self) -> AbstractContextManager[Client]: ...
    def service(self, kind: type[T]) -> T: ...


class Request(Protocol[T_co]):
    """Describe work that takes longer than the window may wait.

    A request with `in_order = True` starts after all earlier requests of that kind have ended. One
    with `always_replies = True` is carried out though it was cancelled before it began.
    """

    def carry_out(self, call: Call) -> T_co:
        """Do the work in a thread of its own and return the reply.

        Raises:
            UserError: The message is shown to the user.
            Cancelled: No reply is delivered.
        """


class Call:
    """Represent a request that was sent: its handlers, and what its thread may use."""

    def __init__(
        self,
        carrier: Carrier,
        request: object,
        wanted: Callable[[], bool],
        on_reply: Callable[[Any], object],
        on_error: Callable[[str], object],
        on_progress: Callable[[Any], object],
    ) -> None:
        self.request = request
        self._carrier, self._wanted = carrier, wanted
        self._on_reply, self._on_error, self._on_progress = on_reply, on_error, on_progress
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._interrupts: list[Callable[[], object]] = []

    # Called in the GUI thread

    def cancel(self) -> None:
        """Ask the thread to end early; a request that has not begun is dropped."""
        self._cancelled.set()
        self._carrier.run(self.interrupt)

    def reply(self, value: object = None) -> None:
        """Give the reply to the widget that asked, if it still exists."""
        if self._wanted():
            self._on_reply(value)

    def fail(self, message: str) -> None:
        """Report an error."""
        if self._wanted():
            self._on_error(message)

    def progress(self, value: object) -> None:
        """Report progress to the widget that asked."""
        if self._wanted():
            self._on_progress(value)

    # Called in the thread of the request

    @property
    def cancelled(self) -> bool:
        """Return whether the request should end early."""
        return self._cancelled.is_set()

    def interrupt(self) -> None:
        """Mark the request as cancelled and call what was passed to `on_cancel`."""
        with self._lock:
            self._cancelled.set()
            interrupts, self._interrupts = self._interrupts, []
        for interrupt in interrupts:
            interrupt()

    def on_cancel(self, interrupt: Callable[[], object]) -> None:
        """Have `interrupt` called, in another thread, once the request is cancelled."""
        with self._lock:
            if not self.cancelled:
                self._interrupts.append(interrupt)
                return
        interrupt()

    def report(self, value: object) -> None:
        """Deliver progress to the widget that asked."""
        self._carrier.deliver(partial(self.progress, value))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Open a connection to the daemon, which is closed when the window closes."""
        with self._carrier.client() as client:
            yield client

    def service(self, kind: type[T]) -> T:
        """Return the one instance of `kind` that all requests share."""
        return self._carrier.service(kind)

    def carry_out(self) -> None:
        """Run the request and deliver its reply."""
        from gpudeck.assistant.idle import Cancelled  # a command that saves a file does without

        if self.cancelled and not getattr(self.request, "always_replies", False):
            return
        try:
            reply = self._carry_out()
        except Cancelled:
            return
        except ModuleNotFoundError as e:
            if (missing := missing_by(e)) is None:
                raise
            self._carrier.deliver(partial(self.fail, tr_text(missing.text)))
        except UserError as e:
            self._carrier.deliver(partial(self.fail, tr_text(e.message)))
        else:
            self._carrier.deliver(partial(self.reply, reply))

    def _carry_out(self) -> object:
        request: Any = self.request
        if hasattr(request, "carry_out"):
            return request.carry_out(self)
        with self.client() as client:
            return client.send(request)
