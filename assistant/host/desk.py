"""What is done with one request: find its role, wait if asked to, gather the facts, have the text written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assistant.facts import Fact, phrases
from assistant.host.context import RequestContext
from assistant.host.model_residency import ModelResidency
from assistant.housekeeping import ScanMonitor
from assistant.idle import Cancelled, run_when_idle
from assistant.intents.choices import choices, question
from assistant.intents.period import Period, period
from assistant.intents.router import Routed, route
from assistant.intents.tool_call import ToolCall, checked_call
from assistant.messages import Answer, Approve, Ask, Report
from assistant.reports.contents import compose
from assistant.reports.material import Material, of_job, of_span
from assistant.tools import clean_up
from assistant.tools.job_lookup import find_job
from assistant.tools.jobs import facts_of
from assistant.tools.proposal import Proposal
from assistant.tools.proposal_store import ProposalStore
from assistant.tools.registry import look
from assistant.tools.tool import ToolResult
from assistant.writing.template import render
from assistant.writing.template.sentences import sentence
from assistant.writing.writer import Sections, Written, by_template, write
from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.settings import Settings

if TYPE_CHECKING:
    from assistant.engine.engine import EngineAuthor

SPAN_S = 600.0
"""What "what happened?" is about where no time is named: as long as the daemon keeps every reading."""
DAY_S = 86400.0
_NAMED = 200
"""Jobs whose names a request may mention."""
_ABOUT = 5
"""Jobs whose facts are told with a proposal."""
_CANNOT = (
    "That is nothing I can do. I can propose to submit, cancel, move, hold, release and retry jobs, to pause and resume the queue, and to "
    "end a process that uses a GPU; settings are changed on the Settings page."
)


class Desk:
    """Answers requests, one at a time, in a thread of its own. Holds the model between requests."""

    def __init__(self, on_evicted: Callable[[str], None] = lambda reason: None) -> None:
        """`on_evicted(reason)` is called from another thread once the model must leave the GPU."""
        self.resident = ModelResidency(on_evicted)
        self.proposals = ProposalStore()

    def answer(self, request: Ask | Report, turn: RequestContext) -> Answer:
        """Raises Cancelled (also where the model had to leave the GPU), NotFound for a job there is not, DaemonGone, and UserError for
        what the user can put right."""
        began = time.monotonic()
        if request.when == "idle":
            _wait_for_idle(request, turn)
        with Client(start=False) as daemon:
            voice = Voice(self.resident, daemon.snapshot().settings, turn)
            if isinstance(request, Report):
                answer = _Answering(daemon, voice).report(_material(daemon, request))
            else:
                answer = self._asked(daemon, request, voice, turn)
        return msgspec.structs.replace(
            answer,
            seconds=time.monotonic() - began,
            tokens=voice.tokens,
            device=voice.device,
            by=voice.by,
        )

    def warm(self) -> None:
        """Load the model where no GPU is needed for that. What is wrong is said once it is asked."""
        with suppress(UserError), Client(start=False) as daemon:
            settings = daemon.snapshot().settings
            if settings.model and settings.model_device == "cpu":
                self.resident.engine(settings, RequestContext())

    def approve(self, request: Approve) -> Answer:
        """A person's word on a proposal. Raises UserError where it is gone, or cannot be carried out any more."""
        with Client(start=False) as daemon:
            outcome = self.proposals.approve(daemon, request.proposal, request.how, request.env)
        text = phrases.escaped(outcome.text, 1000)
        if outcome.proposal is not None:
            text = f"{text}\n\n{_proposed(outcome.proposal)}"
        return Answer(text, "template", outcome.role, proposal=outcome.proposal)

    def _asked(self, daemon: Client, request: Ask, voice: Voice, turn: RequestContext) -> Answer:
        turn.waiting("finds out what is asked for")
        routed = _routed(daemon, request, voice)
        if routed.choices:
            asked = choices(routed.choices)
            return Answer(question(asked), "template", "answer", routed=routed.by, choices=asked)
        call, answering = routed.call, _Answering(daemon, voice)
        if call is None:
            answer = Answer(_CANNOT, "template", "operate")
        elif (call.role, call.tool) == ("housekeep", "scan"):
            answer = self._clean(daemon, call, turn, routed.certain)
        elif call.acts:
            answer = self._propose(daemon, request, call, routed.certain)
        elif call.role == "report":
            answer = answering.report(_reported(daemon, call))
        else:
            answer = answering.answer(call, request.text)
        return msgspec.structs.replace(answer, call=call, routed=routed.by)

    def _clean(self, daemon: Client, call: ToolCall, turn: RequestContext, certain: bool) -> Answer:
        """What may go, and the proposal to move it to the trash."""
        watch = ScanMonitor(lambda path: turn.waiting(f"looks at {path}"), turn.stop.is_set)
        found = clean_up.look(daemon, call, watch)
        turn.look()
        text = render(found.told.facts, found.told.say)
        if found.plan is None:
            return Answer(text, "template", "housekeep", found.told.facts)
        try:
            proposal = self.proposals.offer(daemon, call, found.plan, certain)
        except UserError as e:
            return Answer(f"{text}\n\n{_line(e)}", "template", "housekeep", found.told.facts)
        return Answer(
            f"{text}\n\n{_proposed(proposal)}",
            "template",
            "housekeep",
            found.told.facts,
            proposal=proposal,
        )

    def _propose(self, daemon: Client, request: Ask, call: ToolCall, certain: bool) -> Answer:
        """What would be done, or in a line why it cannot."""
        try:
            proposal, about = self.proposals.propose(
                daemon, call, request.folder or str(Path.home()), certain
            )
        except UserError as e:
            return Answer(
                _line(e),
                "template",
                call.role,
                _facts(daemon, [job] if isinstance(job := call.job(), int) else []),
            )
        facts = _facts(daemon, about)
        return Answer(_proposed(proposal), "template", call.role, facts, proposal=proposal)


class Voice:
    """Who writes one answer: the model, or the template, and why it is not the model."""

    def __init__(self, resident: ModelResidency, settings: Settings, turn: RequestContext) -> None:
        self._resident, self._settings, self._turn = resident, settings, turn
        self._author: EngineAuthor | None = None
        if not settings.model:
            resident.drop()

    @property
    def tokens(self) -> int:
        """Tokens that the model wrote."""
        return self._author.tokens if self._author is not None else 0

    @property
    def device(self) -> str:
        """Where the model ran; empty where it did not."""
        return self._author.device if self._author is not None else ""

    @property
    def by(self) -> str:
        """What computed it there."""
        return self._author.by if self._author is not None else ""

    def at_hand(self) -> EngineAuthor | None:
        """The model where it can be had without a wait for the GPU: what is asked for may need no model at all."""
        if self._settings.model and self._resident.at_hand(self._settings, self._turn):
            try:
                self._author = self._resident.author(self._settings, self._turn)
            except Cancelled:
                raise
            except UserError:
                pass  # said once the answer is written
        return self._author

    def write(
        self, facts: tuple[Fact, ...], question: str | None, told: ToolResult | None = None
    ) -> tuple[Written, tuple[Fact, ...]]:
        """By the model, waiting for the GPU where that is needed; and what it was written from: where a text goes on that was begun before,
        the facts it was begun with. Raises Cancelled."""
        say, required = (told.say, told.required) if told is not None else (None, ())
        if not self._settings.model:
            return write(facts, question, sections=say), facts
        facts = self._turn.kept(facts, tuple[Fact, ...])
        return self._by_model(
            facts,
            question,
            say,
            [name for name in required if any(fact.name == name for fact in facts)],
        ), facts

    def _by_model(
        self,
        facts: tuple[Fact, ...],
        question: str | None,
        say: Sections | None,
        required: Sequence[str],
    ) -> Written:
        try:
            self._author = self._author or self._resident.author(self._settings, self._turn)
            return write(facts, question, self._author, self._turn.waiting, say, required)
        except Cancelled:
            raise
        except UserError as e:
            return by_template(facts, question, str(e), say)


class _Answering:
    """One request that is answered in words."""

    def __init__(self, daemon: Client, voice: Voice) -> None:
        self._daemon, self._voice = daemon, voice

    def answer(self, call: ToolCall, question: str) -> Answer:
        """What a tool that looks found out, or in a line why it found nothing."""
        try:
            told = look(self._daemon, call, question)
        except UserError as e:
            return Answer(_line(e), "template", call.role)
        if told.quotes or not told.required:
            return Answer(render(told.facts, told.say), "template", call.role, told.facts)
        written, facts = self._voice.write(told.facts, question, told)
        return Answer(written.text, written.writer, call.role, facts)

    def report(self, material: Material) -> Answer:
        written, facts = self._voice.write(material.facts, None)
        return Answer(
            written.text,
            written.writer,
            "report",
            facts,
            report=compose(replace(material, facts=facts), written),
        )


def _routed(daemon: Client, request: Ask, voice: Voice) -> Routed:
    """What the person chose, or what is found in the request."""
    if request.meant is not None:
        return Routed(checked_call(request.meant), "your choice", certain=False)
    return route(request.text, [job.spec.name for job in daemon.jobs(_NAMED)], voice.at_hand())


def _wait_for_idle(request: Ask | Report, turn: RequestContext) -> None:
    """Return once the devices are idle, or whoever asked would not wait. Raises Cancelled."""
    with Client(start=False) as daemon:
        if isinstance(request, Report) and request.job is not None:
            daemon.job(request.job)  # a job that there is not is said at once, not after the wait
        run_when_idle(
            lambda: None,
            daemon.subscribe(),
            turn.stop.is_set,
            lambda reason: turn.waiting(f"waits for idle devices ({reason})", cpu=True),
            turn.cpu.is_set,
        )


def _material(daemon: Client, request: Report) -> Material:
    if request.job is not None:
        return of_job(daemon, request.job)
    return of_span(
        daemon,
        time.time() - SPAN_S if request.since is None else request.since,
        "daily" if request.daily else "span",
    )


def _reported(daemon: Client, call: ToolCall) -> Material:
    """What a report is made of: on one job, where the request names one, else on a span. Raises NotFound, UserError."""
    if call.tool == "job":
        return of_job(daemon, find_job(daemon, call.job() or "last").id)
    now = time.time()
    if call.tool == "daily":
        past = period(call, now) or Period(now - DAY_S, now)
        return of_span(daemon, past.since, "daily", past.until)
    past = period(call, now) or Period(now - SPAN_S, now)
    return of_span(daemon, past.since, until=past.until)


def _facts(daemon: Client, jobs: Sequence[int]) -> tuple[Fact, ...]:
    """What is known of the first of these jobs; of one that there is not: nothing."""
    found: list[Fact] = []
    for job in jobs[:_ABOUT]:
        with suppress(NotFound):
            found += facts_of(daemon, daemon.job(job))
    return tuple(found)


def _line(error: UserError) -> str:
    """Why it cannot be, in a sentence."""
    return sentence(phrases.escaped(str(error), 1000))


def _proposed(proposal: Proposal) -> str:
    return f"**{phrases.escaped(proposal.title, 300)}?** {phrases.escaped(proposal.effect, 2000)} Nothing is done before you allow it."
