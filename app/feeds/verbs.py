"""What the window asks for, carried out off the GUI thread; replies come back by signal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject, QThreadPool, Signal

from app.feeds.cleaning import Cleaning
from app.feeds.curves import curves
from app.feeds.filing import Filing
from app.feeds.modelling import Modelling
from app.models.cleaning_requests import Clean, EmptyTrash, PutBack, Scan, StopScan
from app.models.export import save_result
from app.models.format import clock
from app.models.message import UNCHECKED, Curve
from app.models.model_requests import ModelRequest
from app.models.past import Page, Remember, page
from app.models.past_export import export_past
from app.models.requests import (
    Accepted,
    Acknowledge,
    AlertLog,
    Answered,
    Approve,
    Ask,
    Cancel,
    CancelMany,
    Chat,
    Configure,
    Configured,
    Export,
    Fetch,
    Fetched,
    Find,
    Foresee,
    Foretold,
    Found,
    Hold,
    Inspect,
    Inspected,
    Kill,
    Logged,
    Move,
    Pause,
    Refused,
    Remembered,
    Repeat,
    Reply,
    Report,
    Request,
    Save,
    SaveReport,
    StopAnswer,
    Submit,
    Submitted,
    Tail,
    Tailed,
    Timeline,
    Told,
    UseCpu,
    Waits,
    Wake,
    WriteReport,
    Wrote,
)
from app.models.session_requests import SessionRequest
from app.report_file import save_report
from assistant import chat
from assistant.client import Assistant
from assistant.idle import Cancelled
from assistant.messages import Answer, Event, Waiting, slow
from assistant.reports.report import packed, unpacked
from scheduler.client import Client
from scheduler.errors import UserError
from scheduler.jobs import Job
from scheduler.wishes import wish

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
        self._assistant, self._reporter = Assistant(), Assistant()  # each knows of one request, to end it
        self._one_by_one = QThreadPool()
        """One thread: what is kept last is what was said last."""
        self._one_by_one.setMaxThreadCount(1)
        self._filing = Filing()
        self._cleaning = Cleaning(self._tell)
        self._modelling = Modelling(self._tell)

    def request(self, request: Request) -> None:
        """Start it and return at once."""
        if not self._stopped:
            pool = self._one_by_one if isinstance(request, SessionRequest) else self._pool
            pool.start(lambda: self._run(request))

    def stop(self) -> None:
        """Drop what has not begun, interrupt what has, and wait for it."""
        self._stopped = True
        self._pool.clear()
        self._cleaning.stop()
        self._modelling.stop()
        with self._lock:
            for client in self._open:
                client.close()
        if self._pool.activeThreadCount():
            self._assistant.cancel()
            self._reporter.cancel()
        self._pool.waitForDone(_PATIENCE_MS)
        self._one_by_one.waitForDone(_PATIENCE_MS)
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
        if isinstance(request, ModelRequest):
            return self._modelling.carry_out(request)
        if isinstance(request, Chat):
            return self._chat(request)
        return self._answer(request) if isinstance(request, Ask | Report | Approve) else self._carry_out(request)

    def _carry_out(self, request: Request) -> Reply:
        match request:
            case StopAnswer() | UseCpu():
                (self._assistant.cancel if isinstance(request, StopAnswer) else self._assistant.use_cpu)()
            case StopScan():
                self._cleaning.stop()
            case Scan() | Clean() | PutBack() | EmptyTrash():
                return self._with_client(lambda c: self._cleaning.carry_out(c, request))
            case Submit():
                return Submitted(self._with_client(lambda c: _submit(c, request)))
            case Repeat(job=job):
                return Submitted(self._with_client(lambda c: _repeat(c, job)))
            case Hold(job=job, held=held):
                self._with_client(lambda c: c.hold(job, held))
            case Move(job=job, beside=beside, after=after):
                self._with_client(lambda c: c.move(job, after=beside) if after else c.move(job, before=beside))
            case Cancel() | CancelMany():
                self._with_client(lambda c: c.cancel(request.job) if isinstance(request, Cancel) else c.cancel_many(request.jobs))
            case Pause(paused=paused):
                self._with_client(lambda c: c.pause(paused))
            case Acknowledge(alert=alert):
                self._with_client(lambda c: c.acknowledge(alert))
            case Configure(changes=changes):
                return Configured(self._with_client(lambda c: c.configure(**changes)))
            case _:
                return self._look_up(request)
        return Accepted(request)

    def _look_up(self, request: Request) -> Reply:
        """What changes nothing in the daemon."""
        match request:
            case Tail():
                return self._with_client(lambda c: _tail(c, request))
            case Foresee(submit=submit):
                return Foretold(request, self._with_client(lambda c: c.foresee(submit.argv, **submit.wishes)))
            case Timeline(job=job):
                return Told(job, self._with_client(lambda c: c.timeline(job)))
            case Find(search=search, before=before):
                return Found(request, *self._with_client(lambda c: c.find(search, PAGE, before)))
            case Fetch(job=job):
                return Fetched(self._with_client(lambda c: c.job(job)))
            case Inspect():
                return Inspected(self._with_client(lambda c: c.details()))
            case Wake():
                self._assistant.wake()
            case Kill(process=process):
                self._with_client(lambda c: c.kill(process))
            case Remember():
                return Remembered(self._with_client(lambda c: _remember(c, request)))
            case AlertLog():
                return Logged(self._with_client(lambda c: c.alerts()))
            case _:
                self._write(request)
        return Accepted(request)

    def _write(self, request: Request) -> None:
        """What becomes a file that the user named."""
        match request:
            case Export(devices=devices, since=since, until=until, file=file):
                self._with_client(lambda c: export_past(c, devices, (), since, until, None, Path(file)))
            case Save(job=job, file=file):
                save_result(self._with_client(lambda c: c.job(job)), Path(file))
            case WriteReport(job=job, file=file):
                report = self._reporter.report(job, when="now").report
                assert report is not None
                save_report(report, Path(file))
            case SaveReport(report=kept, file=file):
                save_report(unpacked(kept), Path(file))

    def _answer(self, request: Ask | Report | Approve) -> Reply:
        def on_event(event: Event) -> None:
            said = Waits(event.reason, request.id, event.cpu) if isinstance(event, Waiting) else Wrote(event.text, request.id)
            if not self._stopped:
                self.replied.emit(said)

        if isinstance(request, Ask):
            answer = self._assistant.ask(request.text, on_event=on_event, meant=request.meant)
        elif isinstance(request, Approve):
            answer = self._assistant.approve(request.proposal, request.how)
        else:
            answer = self._assistant.report(on_event=on_event)
        return answered(answer, request.id, self._curves(answer))

    def _chat(self, request: Chat) -> Reply:
        text: list[str] = []

        def on_event(event: Event) -> None:
            if isinstance(event, Waiting):
                self._tell(Waits(event.reason, request.id, event.cpu))
            else:
                text.append(event.text)
                self._tell(Wrote(event.text, request.id))

        wanted, left_out = chat.request(request.turns)
        done = self._assistant.complete(wanted, on_event)
        note = f"{UNCHECKED}; the first {left_out} messages were too much to read" if left_out else UNCHECKED
        told = Answered("".join(text).strip(), f"model {done.model}", id=request.id, tokens=done.tokens, seconds=done.seconds)
        return msgspec.structs.replace(told, device=done.device + slow(done.by), note=note)

    def _curves(self, answer: Answer) -> tuple[Curve, ...]:
        """None where the daemon has gone meanwhile: the answer is there all the same."""
        try:
            return self._with_client(lambda c: curves(c, answer.facts, answer.text))
        except UserError:
            return ()

    def _with_client(self, verb: Callable[[Client], T]) -> T:
        with Client() as client:
            with self._lock:
                self._open.add(client)
            try:
                return verb(client)
            finally:
                with self._lock:
                    self._open.discard(client)


def _remember(client: Client, request: Remember) -> Page:
    fields, since, until = request.fields, request.since, request.until
    answers = {device: client.history(device, fields, since, until, request.points) for device in request.devices if fields}
    return page(request, answers, client.annotations(since, until))


def _submit(client: Client, request: Submit) -> Job:
    if request.array:
        return client.submit_array(request.argv, request.array, **request.wishes)[0]
    return client.submit(request.argv, **request.wishes).job


def _repeat(client: Client, job: int) -> Job:
    spec = client.job(job).spec  # a list may know the beginning of its command only
    env = wish(spec.argv, {"where": spec.where}).env  # ours is not sent to a cluster
    return client.submit_many([msgspec.structs.replace(spec, env=env, kind="", after=(), after_any=(), hold=False)])[0]


def _tail(client: Client, request: Tail) -> Tailed:
    return Tailed(request.job, *client.log_part(request.job, -FIRST_TAIL if request.offset is None else request.offset))


def answered(answer: Answer, request: int, drawn: tuple[Curve, ...] = ()) -> Answered:
    facts = tuple((fact.text, fact.said, f"{fact.source}, {clock(fact.time)}") for fact in answer.facts)
    report = packed(answer.report) if answer.report is not None else b""
    tool = f"{answer.call.line} (by {answer.routed})" if answer.call is not None else ""
    told = (answer.text, answer.writer, facts, request, drawn, answer.tokens, answer.seconds, report)
    return Answered(*told, tool, answer.proposal, answer.where, choices=answer.choices)
