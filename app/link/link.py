"""Carry out requests of the window in threads. A reply goes to the widget that sent the request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

from PySide6.QtCore import QObject, QThreadPool, Signal
from shiboken6 import isValid

from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Call, Request
from gpudeck.app.link.notice import Notice
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.verbs.request import Request as DaemonRequest

T = TypeVar("T")

_WORKERS = 6
_PATIENCE_MS = 35_000
"""A little longer than a client waits for a reply."""


class Link(QObject):
    """Sends requests of the window, each in a pool thread with a connection of its own."""

    ordered = Signal()
    """The user asked for something: earlier messages are out of date."""
    failed = Signal(str)
    """A request failed; carries a message for the status line."""
    announced = Signal(object)
    withdrawn = Signal(object)
    """Carries a Notice that was announced, and no longer holds."""
    """Carries a `Notice` about what was done, with buttons to undo it or to look at it."""
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
        call = Call(
            self,
            request,
            lambda: isValid(owner),
            on_reply or _ignore,
            on_error or self.failed.emit,
            on_progress or _ignore,
        )
        self.start(call)
        return call

    def announce_file(self, what: str, file: str) -> None:
        """Announce that a file was written: it can be opened, or found.

        Args:
            what: The kind of file in the window's language, such as "Report".
        """
        text = tr("{what} saved as {file}", what=what, file=Path(file).name)
        self.announced.emit(Notice(text, file=file))

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


def _ignore(value: object) -> None:
    """Do nothing with a reply that nobody needs."""
