"""Requests of the window, carried out in threads. A reply goes to the widget that sent the request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, overload

from PySide6.QtCore import QObject, QThreadPool, Signal
from shiboken6 import isValid

from assistant.idle import Cancelled
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.verbs.request import Request as DaemonRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_WORKERS = 6
_PATIENCE_MS = 35_000
"""A little longer than a client waits for a reply."""


class Request(Protocol[T_co]):
    """Describe work that takes longer than the window may wait.

    A request with `in_order = True` starts after all earlier requests of that kind have ended.
    """

    def carry_out(self, call: Call) -> T_co:
        """Do the work in a thread of its own and return the reply.

        Raises:
            UserError: The message is shown to the user.
            Cancelled: No reply is delivered.
        """
        ...


class Call:
    """Represent a request that was sent: its handlers, and what its thread may use."""

    def __init__(
        self,
        link: Link,
        owner: QObject,
        request: object,
        on_reply: Callable[[Any], object] | None,
        on_error: Callable[[str], object] | None,
        on_progress: Callable[[Any], object] | None,
    ) -> None:
        self.request = request
        self._link, self._owner = link, owner
        self._on_reply, self._on_error, self._on_progress = on_reply, on_error, on_progress
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._interrupts: list[Callable[[], object]] = []

    # Called in the GUI thread

    def cancel(self) -> None:
        """Ask the thread to end early; a request that has not begun is dropped."""
        self._cancelled.set()
        self._link.run(self.interrupt)

    def reply(self, value: object) -> None:
        """Give the reply to the widget that asked, if it still exists."""
        if isValid(self._owner) and self._on_reply is not None:
            self._on_reply(value)

    def fail(self, message: str) -> None:
        """Report an error to the widget that asked, or in the status line."""
        if self._on_error is None:
            self._link.failed.emit(message)
        elif isValid(self._owner):
            self._on_error(message)

    def progress(self, value: object) -> None:
        """Report progress to the widget that asked."""
        if isValid(self._owner) and self._on_progress is not None:
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
        self._link.deliver(partial(self.progress, value))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Open a connection to the daemon, which is closed when the window closes."""
        with self._link.client() as client:
            yield client

    def service(self, kind: type[T]) -> T:
        """Return the one instance of `kind` that all requests share."""
        return self._link.service(kind)

    def carry_out(self) -> None:
        """Run the request and deliver its reply."""
        if self.cancelled:
            return
        try:
            reply = self._carry_out()
        except Cancelled:
            return
        except UserError as e:
            self._link.deliver(partial(self.fail, str(e)))
        else:
            self._link.deliver(partial(self.reply, reply))

    def _carry_out(self) -> object:
        request: Any = self.request
        if hasattr(request, "carry_out"):
            return request.carry_out(self)
        with self.client() as client:
            return client.send(request)


class Link(QObject):
    """Sends requests of the window, each in a pool thread with a connection of its own."""

    ordered = Signal()
    """The user asked for something: earlier messages are out of date."""
    failed = Signal(str)
    """A request failed, and the message belongs in the status line."""
    _delivered = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._pool, self._in_order = QThreadPool(), QThreadPool()
        self._pool.setMaxThreadCount(_WORKERS)
        self._in_order.setMaxThreadCount(1)
        self._lock = threading.Lock()
        self._clients: set[Client] = set()
        self._calls: set[Call] = set()
        self._services: dict[type, Any] = {}
        self._stopped = False
        self._delivered.connect(self._deliver)

    @overload
    def send(
        self,
        owner: QObject,
        request: Request[T],
        on_reply: Callable[[T], object] | None = None,
        on_error: Callable[[str], object] | None = None,
        on_progress: Callable[[Any], object] | None = None,
        *,
        background: bool = False,
    ) -> Call: ...

    @overload
    def send(
        self,
        owner: QObject,
        request: DaemonRequest[T],
        on_reply: Callable[[T], object] | None = None,
        on_error: Callable[[str], object] | None = None,
        on_progress: Callable[[Any], object] | None = None,
        *,
        background: bool = False,
    ) -> Call: ...

    def send(
        self,
        owner: QObject,
        request: Any,
        on_reply: Callable[[Any], object] | None = None,
        on_error: Callable[[str], object] | None = None,
        on_progress: Callable[[Any], object] | None = None,
        *,
        background: bool = False,
    ) -> Call:
        """Send a request and return at once. The handlers are called in the GUI thread.

        Args:
            owner: The handlers are not called once this object is destroyed.
            request: A request of the daemon, which is sent as it is, or a `Request`.
            on_reply: Takes the reply.
            on_error: Takes a message of one line; without it, the status line shows the message.
            on_progress: Takes what the request reports while it runs.
            background: A page sends the request by itself, so messages in the status line stay.
        """
        if not background:
            self.ordered.emit()
        call = Call(self, owner, request, on_reply, on_error, on_progress)
        self.start(call)
        return call

    def start(self, call: Call) -> None:
        """Carry out a request in a thread."""
        if not self._stopped:
            in_order = getattr(call.request, "in_order", False)
            (self._in_order if in_order else self._pool).start(lambda: self._carry_out(call))

    def run(self, work: Callable[[], object]) -> None:
        """Run something in a thread."""
        if not self._stopped:
            self._pool.start(work)

    def deliver(self, handler: Callable[[], object]) -> None:
        """Call a handler in the GUI thread. May be called from any thread."""
        if not self._stopped:
            self._delivered.emit(handler)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Open a connection that `stop` closes. May be called from any thread."""
        with Client() as client:
            with self._lock:
                self._clients.add(client)
            try:
                yield client
            finally:
                with self._lock:
                    self._clients.discard(client)

    def service(self, kind: type[T]) -> T:
        """Return the one instance of `kind`. May be called from any thread."""
        with self._lock:
            if kind not in self._services:
                self._services[kind] = kind()
            made: T = self._services[kind]
            return made

    def stop(self) -> None:
        """Drop requests that have not begun, interrupt the others, and wait for them."""
        self._stopped = True
        self._pool.clear()
        with self._lock:
            for client in self._clients:
                client.close()
            calls = list(self._calls)
        for call in calls:
            call.interrupt()
        self._pool.waitForDone(_PATIENCE_MS)
        self._in_order.waitForDone(_PATIENCE_MS)
        for service in self._services.values():
            if hasattr(service, "close"):
                service.close()

    def _carry_out(self, call: Call) -> None:
        with self._lock:
            self._calls.add(call)
        try:
            call.carry_out()
        finally:
            with self._lock:
                self._calls.discard(call)

    def _deliver(self, handler: Callable[[], object]) -> None:
        if not self._stopped:
            handler()
