"""What is done with one request: find its role, wait if asked to, gather the facts, have the text written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assistant import phrases
from assistant.facts import Fact
from assistant.idle import Cancelled, run_when_idle
from assistant.lease import Lease, size_of
from assistant.messages import Answer, Approve, Ask, Report
from assistant.reports.compose import compose
from assistant.reports.material import Material, of_job, of_span
from assistant.template import tell
from assistant.template.words import sentence
from assistant.tools.answers import look
from assistant.tools.call import Call
from assistant.tools.find import find_job
from assistant.tools.period import Period, period
from assistant.tools.proposals import Proposal, Proposals
from assistant.tools.route import route
from assistant.tools.told import Told
from assistant.writer import Written, by_template, write
from scheduler.client import Client
from scheduler.errors import UserError
from scheduler.settings import Settings

if TYPE_CHECKING:
    from assistant.engine import Engine, EngineAuthor

SPAN_S = 600.0
"""What "what happened?" is about where no time is named: as long as the daemon keeps every reading."""
DAY_S = 86400.0
_NAMED = 200
"""Jobs whose names a request may mention."""
_CANNOT = (
    "That is nothing I can do. I can propose to submit, cancel, move, hold, release and retry jobs, to pause and resume the queue, and to "
    "end a process that uses a GPU; settings are changed on the Settings page."
)


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
        self.proposals = Proposals()
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
        if request.when == "idle":
            _wait_for_idle(request, cancelled, waiting)
        with Client(start=False) as daemon:
            voice = self._voice(daemon.snapshot().settings, cancelled, waiting)
            if isinstance(request, Report):
                answer = _Answering(daemon, voice, waiting).report(_material(daemon, request))
            else:
                answer = self._asked(daemon, request, voice, waiting)
        tokens = voice.author.tokens if voice.author is not None else 0
        return msgspec.structs.replace(answer, seconds=time.monotonic() - began, tokens=tokens)

    def approve(self, request: Approve) -> Answer:
        """A person's word on a proposal. Raises UserError where it is gone, or cannot be carried out any more."""
        with Client(start=False) as daemon:
            outcome = self.proposals.approve(daemon, request.proposal, request.how, request.env)
        text = phrases.escaped(outcome.text, 1000)
        if outcome.proposal is not None:
            text = f"{text}\n\n{_proposed(outcome.proposal)}"
        return Answer(text, "template", "operate", proposal=outcome.proposal)

    def _asked(self, daemon: Client, request: Ask, voice: Voice, waiting: Callable[[str], None]) -> Answer:
        names = [job.spec.name for job in daemon.jobs(_NAMED)]
        try:
            waiting("finds out what is asked for")
            routed = route(request.text, names, voice.author)
        except Cancelled:
            voice.lost()
            routed = route(request.text, names)
        call, answering = routed.call, _Answering(daemon, voice, waiting)
        if call is None:
            answer = Answer(_CANNOT, "template", "operate")
        elif call.acts:
            answer = self._propose(daemon, request, call, routed.certain)
        elif call.role == "report":
            answer = answering.report(_reported(daemon, call))
        else:
            answer = answering.answer(call, request.text)
        return msgspec.structs.replace(answer, call=call, routed=routed.by)

    def _propose(self, daemon: Client, request: Ask, call: Call, certain: bool) -> Answer:
        """What would be done, or in a line why it cannot."""
        try:
            proposal = self.proposals.propose(daemon, call, request.folder or str(Path.home()), certain)
        except UserError as e:
            return Answer(sentence(phrases.escaped(str(e), 1000)), "template", call.role)
        return Answer(_proposed(proposal), "template", call.role, proposal=proposal)

    def _voice(self, settings: Settings, cancelled: Callable[[], bool], waiting: Callable[[str], None]) -> Voice:
        """The configured model, ready to write; or why it is not."""
        if not settings.model_folder:
            self._drop(settings)
            return Voice(self, cancelled)
        try:
            return Voice(self, cancelled, self._author(settings, cancelled, waiting))
        except UserError as e:
            return Voice(self, cancelled, why=str(e))

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


class Voice:
    """Who writes one answer: the model, or the template, and why it is not the model."""

    def __init__(self, desk: Desk, cancelled: Callable[[], bool], author: EngineAuthor | None = None, why: str = "") -> None:
        self.author, self.why = author, why
        """`why` is empty where no model is configured."""
        self._desk, self._cancelled = desk, cancelled

    def lost(self) -> None:
        """The model was told to stop: by the user, which is raised, or as the GPU is needed."""
        if self._cancelled():
            raise Cancelled
        self.author, self.why = None, f"the model had to leave the GPU ({self._desk.why_evicted})"

    def write(self, facts: tuple[Fact, ...], question: str | None, waiting: Callable[[str], None], told: Told | None = None) -> Written:
        """Raises Cancelled where the user wants no more."""
        say, required = (told.say, told.required) if told is not None else (None, ())
        try:
            if self.author is not None:
                return write(facts, question, self.author, waiting, say, required)
        except Cancelled:
            self.lost()
        return by_template(facts, question, self.why, say) if self.why else write(facts, question, say=say)


class _Answering:
    """One request that is answered in words."""

    def __init__(self, daemon: Client, voice: Voice, waiting: Callable[[str], None]) -> None:
        self._daemon, self._voice, self._waiting = daemon, voice, waiting

    def answer(self, call: Call, question: str) -> Answer:
        """What a tool that looks found out, or in a line why it found nothing."""
        try:
            told = look(self._daemon, call)
        except UserError as e:
            return Answer(sentence(phrases.escaped(str(e), 1000)), "template", call.role)
        if told.quotes or not told.facts:
            return Answer(tell(told.facts, told.say), "template", call.role, told.facts)
        written = self._voice.write(told.facts, question, self._waiting, told)
        return Answer(written.text, written.writer, call.role, told.facts)

    def report(self, material: Material) -> Answer:
        written = self._voice.write(material.facts, None, self._waiting)
        return Answer(written.text, written.writer, "report", material.facts, report=compose(material, written))


def _wait_for_idle(request: Ask | Report, cancelled: Callable[[], bool], waiting: Callable[[str], None]) -> None:
    with Client(start=False) as daemon:
        if isinstance(request, Report) and request.job is not None:
            daemon.job(request.job)  # a job that there is not is said at once, not after the wait
        run_when_idle(lambda: None, daemon.subscribe(), cancelled, lambda reason: waiting(f"waits for idle devices ({reason})"))


def _material(daemon: Client, request: Report) -> Material:
    if request.job is not None:
        return of_job(daemon, request.job)
    return of_span(daemon, time.time() - SPAN_S if request.since is None else request.since, "daily" if request.daily else "span")


def _reported(daemon: Client, call: Call) -> Material:
    """What a report is made of: on one job, where the request names one, else on a span. Raises NotFound, UserError."""
    if call.tool == "job":
        return of_job(daemon, find_job(daemon, call.job() or "last").id)
    now = time.time()
    if call.tool == "daily":
        past = period(call, now) or Period(now - DAY_S, now)
        return of_span(daemon, past.since, "daily")
    past = period(call, now) or Period(now - SPAN_S, now)
    return of_span(daemon, past.since)


def _proposed(proposal: Proposal) -> str:
    return f"**{phrases.escaped(proposal.title, 300)}?** {phrases.escaped(proposal.effect, 2000)} Nothing is done before you allow it."
