"""What is done with one request: find its role, wait if asked to, gather the facts, have the text written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from assistant import roles
from assistant.facts import FIELDS_SPAN, Fact, during, gather
from assistant.idle import Cancelled, run_when_idle
from assistant.lease import Lease, size_of
from assistant.messages import Answer, Ask, Report
from assistant.reports.compose import compose
from assistant.reports.material import Material, of_job, of_span, read_snapshot
from assistant.selection import asked_jobs
from assistant.writer import Written, by_template, write
from scheduler.client import Client
from scheduler.errors import NotFound, UserError
from scheduler.jobs import Job
from scheduler.settings import Settings

if TYPE_CHECKING:
    from assistant.engine import Engine, EngineAuthor

SPAN_S = 600.0
"""What "what happened?" is about where no time is named: as long as the daemon keeps every reading."""


class Desk:
    """Answers requests, one at a time, in a thread of its own. Holds the model between requests."""

    def __init__(self, on_evicted: Callable[[str], None] = lambda reason: None) -> None:
        """`on_evicted(reason)` is called from another thread once the model must leave the GPU."""
        self.on_evicted = on_evicted
        self.engine: Engine | None = None
        self.error = ""
        """Why the configured model could not be loaded."""
        self.evicted = threading.Event()
        """Set when the model must leave the GPU: it stops at the next token."""
        self.why_evicted = ""
        self.left_gpu = False
        """Set when a model on the GPU was dropped, or did not fit: only the end of the process frees all of its memory."""
        self._loaded = Settings()
        self._lease = Lease(self.evict)

    def evict(self, reason: str) -> None:
        """May be called from any thread."""
        self.why_evicted = reason
        self.evicted.set()
        self.on_evicted(reason)

    def answer(self, request: Ask | Report, cancelled: Callable[[], bool], waiting: Callable[[str], None]) -> Answer:
        """Raises Cancelled, NotFound for a job there is not, DaemonGone, and UserError for what the user can put right."""
        began = time.monotonic()
        text = request.text if isinstance(request, Ask) else None
        role = "report" if text is None else roles.role_of(text)
        if text is not None and (line := roles.not_yet(role, text)):
            return Answer(line, "template", role, seconds=time.monotonic() - began)
        if request.when == "idle":
            with Client(start=False) as daemon:
                if isinstance(request, Report) and request.job is not None:
                    daemon.job(request.job)  # a job that there is not is said at once, not after the wait
                run_when_idle(lambda: None, daemon.subscribe(), cancelled, lambda reason: waiting(f"waits for idle devices ({reason})"))
        with Client(start=False) as daemon:
            material = _material(daemon, request) if role == "report" else None
            facts = _overview(daemon, text or "") if material is None else material.facts
            settings = daemon.snapshot().settings
        question = text if role == "answer" else None
        written, tokens = self._write(facts, question, settings, cancelled, waiting)
        report = compose(material, written) if material is not None else None
        return Answer(written.text, written.writer, role, facts, time.monotonic() - began, tokens, report)

    def _write(
        self,
        facts: tuple[Fact, ...],
        question: str | None,
        settings: Settings,
        cancelled: Callable[[], bool],
        waiting: Callable[[str], None],
    ) -> tuple[Written, int]:
        if not settings.model_folder:
            self._drop(settings)
            return write(facts, question), 0
        author: EngineAuthor | None = None
        try:
            author = self._author(settings, cancelled, waiting)
            return write(facts, question, author, waiting), author.tokens
        except UserError as e:
            if isinstance(e, Cancelled) and cancelled():
                raise
            reason = f"the model had to leave the GPU ({self.why_evicted})" if isinstance(e, Cancelled) else str(e)
            return by_template(facts, question, reason), author.tokens if author else 0

    def _drop(self, settings: Settings) -> None:
        self.left_gpu |= self.engine is not None and self.engine.device == "cuda"
        self.engine, self.error, self._loaded = None, "", settings

    def _author(self, settings: Settings, cancelled: Callable[[], bool], waiting: Callable[[str], None]) -> EngineAuthor:
        if settings.model_device == "cuda":
            try:
                self._lease.take(size_of(settings.model_folder))
            except UserError as e:
                raise UserError(f"the model may use the GPU only while nothing else does; {e}") from e
        from assistant.engine import Engine, EngineAuthor  # brings torch in: only where a model is configured

        if self.engine is None or (self._loaded.model_folder, self._loaded.model_device) != (settings.model_folder, settings.model_device):
            self._drop(settings)
            waiting("loads the model")
            try:
                self.engine = Engine(settings.model_folder, settings.model_device)
            except UserError as e:
                self.error = str(e)
                self.left_gpu = settings.model_device == "cuda"
                raise
        return EngineAuthor(self.engine, lambda: cancelled() or self.evicted.is_set())


def _material(daemon: Client, request: Ask | Report) -> Material:
    """What a report is made of: on one job, where the request names one, else on a span."""
    if isinstance(request, Report):
        if request.job is not None:
            return of_job(daemon, request.job)
        return of_span(daemon, time.time() - SPAN_S if request.since is None else request.since, "daily" if request.daily else "span")
    asked = [job.id for name in asked_jobs(request.text) if (job := _find(daemon, int(name.removeprefix("job")))) is not None]
    return of_job(daemon, asked[0]) if len(asked) == 1 else of_span(daemon, time.time() - SPAN_S)


def _overview(daemon: Client, question: str) -> tuple[Fact, ...]:
    """What happened of late, and the jobs that the question names."""
    snapshot = read_snapshot(daemon)
    since = snapshot.time - SPAN_S
    jobs = list(during(daemon.jobs(), since, snapshot.time))
    jobs += [job for name in asked_jobs(question) if (job := _find(daemon, int(name.removeprefix("job")))) and job not in jobs]
    histories = {s.device.id: daemon.history(s.device.id, FIELDS_SPAN, since) for s in snapshot.devices}
    return gather(snapshot, jobs, histories, since, snapshot.time)


def _find(daemon: Client, job: int) -> Job | None:
    try:
        return daemon.job(job)
    except NotFound:
        return None  # the answer says that there is none
