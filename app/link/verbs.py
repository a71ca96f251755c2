"""What the window asks for, carried out off the GUI thread; replies come back by signal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QThreadPool, Signal

from app.assistant.session_requests import SessionRequest
from app.link.requests import Accepted, AssistantRequest, Configure, Refused, Reply, Request
from app.models.model_requests import ModelRequest
from assistant.idle import Cancelled
from scheduler.client import Client
from scheduler.protocol.errors import UserError

if TYPE_CHECKING:  # each is imported with the first request for it, too: the window starts without
    from app.link.assistant_link import Assisting
    from app.link.filing import Filing

T = TypeVar("T")

_WORKERS = 6
_PATIENCE_MS = 35_000
"""A little more than a client waits for an answer."""


class Verbs(QObject):
    """Each request runs in a pool thread with a connection of its own; `replied` carries a `models.requests.Reply`."""

    replied = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._pool = QThreadPool()
        self._pool.setMaxThreadCount(_WORKERS)
        self._lock = threading.Lock()
        self._open: set[Client] = set()
        self._stopped = False
        self._assisting: Assisting | None = None
        self._one_by_one = QThreadPool()
        """One thread: what is kept last is what was said last."""
        self._one_by_one.setMaxThreadCount(1)

    @cached_property
    def _filing(self) -> Filing:
        """For the thread of `_one_by_one`."""
        from app.link.filing import Filing

        return Filing()

    def request(self, request: Request) -> None:
        """Start it and return at once."""
        if not self._stopped:
            pool = self._one_by_one if isinstance(request, SessionRequest) else self._pool
            pool.start(lambda: self._run(request))

    def stop(self) -> None:
        """Drop what has not begun, interrupt what has, and wait for it."""
        self._stopped = True
        self._pool.clear()
        with self._lock:
            for client in self._open:
                client.close()
            assisting = self._assisting
        if assisting is not None:
            assisting.stop()
            if self._pool.activeThreadCount():
                assisting.cancel()
        self._pool.waitForDone(_PATIENCE_MS)
        self._one_by_one.waitForDone(_PATIENCE_MS)
        if "_filing" in vars(self):
            self._filing.close()

    def _run(self, request: Request) -> None:
        try:
            reply = self._reply(request)
        except Cancelled:
            return  # the user knows: it was their Stop
        except UserError as e:
            reply = Refused(request, str(e))
        self._tell(reply)

    def _tell(self, reply: Reply) -> None:
        if not self._stopped:
            self.replied.emit(reply)

    def _reply(self, request: Request) -> Reply:
        """By whom the request is for."""
        if isinstance(request, SessionRequest):
            return self._filing.carry_out(request)
        if isinstance(request, AssistantRequest | ModelRequest):
            return self._assist().carry_out(request)
        return self._carry_out(request)

    def _assist(self) -> Assisting:
        with self._lock:
            if self._stopped:
                raise Cancelled
            if self._assisting is None:
                from app.link.assistant_link import Assisting

                self._assisting = Assisting(self._tell, self._with_client)
            return self._assisting

    def _carry_out(self, request: Configure) -> Reply:
        self._with_client(lambda c: c.configure(**request.changes))
        return Accepted(request)

    def _with_client(self, verb: Callable[[Client], T]) -> T:
        with Client() as client:
            with self._lock:
                self._open.add(client)
            try:
                return verb(client)
            finally:
                with self._lock:
                    self._open.discard(client)
