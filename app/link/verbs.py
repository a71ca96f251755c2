"""What the window asks for, carried out off the GUI thread; replies come back by signal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from PySide6.QtCore import QObject, QThreadPool, Signal

from app.assistant.session_requests import SessionRequest
from app.link.requests import (
    Accepted,
    AssistantRequest,
    Cancel,
    CancelMany,
    Configure,
    Fetch,
    Fetched,
    Find,
    Foresee,
    Foretold,
    Found,
    Hold,
    Move,
    Pause,
    Refused,
    Repeat,
    Reply,
    Request,
    Save,
    Submit,
    Submitted,
    Tail,
    Tailed,
    Timeline,
    Told,
)
from app.models.model_requests import ModelRequest
from assistant.idle import Cancelled
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import make_spec
from scheduler.protocol.jobs import Job

if TYPE_CHECKING:  # each is imported with the first request for it, too: the window starts without
    from app.link.assistant_link import Assisting
    from app.link.filing import Filing

T = TypeVar("T")

FIRST_TAIL = 64 * 1024
"""Bytes of a log that are shown at first."""
PAGE = 100
"""Jobs in a page of the history."""
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

    def _carry_out(self, request: Request) -> Reply:
        match request:
            case Submit():
                return Submitted(self._with_client(lambda c: _submit(c, request)))
            case Repeat(job=job):
                return Submitted(self._with_client(lambda c: _repeat(c, job)))
            case Hold(job=job, held=held):
                self._with_client(lambda c: c.hold(job, held))
            case Move(job=job, beside=beside, after=after):
                self._with_client(
                    lambda c: c.move(job, after=beside) if after else c.move(job, before=beside)
                )
            case Cancel() | CancelMany():
                self._with_client(
                    lambda c: (
                        c.cancel(request.job)
                        if isinstance(request, Cancel)
                        else c.cancel_many(request.jobs)
                    )
                )
            case Pause(paused=paused):
                self._with_client(lambda c: c.pause(paused))
            case Configure(changes=changes):
                self._with_client(lambda c: c.configure(**changes))
            case _:
                return self._look_up(request)
        return Accepted(request)

    def _look_up(self, request: Request) -> Reply:
        """What changes nothing in the daemon."""
        match request:
            case Tail():
                return self._with_client(lambda c: _tail(c, request))
            case Foresee(submit=submit):
                return Foretold(
                    request, self._with_client(lambda c: c.foresee(submit.argv, **submit.options))
                )
            case Timeline(job=job):
                return Told(job, self._with_client(lambda c: c.timeline(job)))
            case Find(search=search, before=before):
                return Found(request, *self._with_client(lambda c: c.find(search, PAGE, before)))
            case Fetch(job=job):
                return Fetched(self._with_client(lambda c: c.job(job)))
            case _:
                self._write(request)
        return Accepted(request)

    def _write(self, request: Request) -> None:
        """What becomes a file that the user named."""
        match request:
            case Save(job=job, file=file):
                from app.workloads.result_export import save_result

                save_result(self._with_client(lambda c: c.job(job)), Path(file))

    def _with_client(self, verb: Callable[[Client], T]) -> T:
        with Client() as client:
            with self._lock:
                self._open.add(client)
            try:
                return verb(client)
            finally:
                with self._lock:
                    self._open.discard(client)


def _submit(client: Client, request: Submit) -> Job:
    if request.array:
        return client.submit_array(request.argv, request.array, **request.options)[0]
    return client.submit(request.argv, **request.options).job


def _repeat(client: Client, job: int) -> Job:
    spec = client.job(job).spec  # a list may know the beginning of its command only
    env = make_spec(spec.argv, {"where": spec.where}).env  # ours is not sent to a cluster
    return client.submit_many(
        [msgspec.structs.replace(spec, env=env, kind="", after=(), after_any=(), hold=False)]
    )[0]


def _tail(client: Client, request: Tail) -> Tailed:
    return Tailed(
        request.job,
        *client.log_part(request.job, -FIRST_TAIL if request.offset is None else request.offset),
    )
