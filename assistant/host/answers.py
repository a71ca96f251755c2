"""Handle questions, reports and decisions: read the request, run it, and word its outcome."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudeck.assistant.answers import answer as worded
from gpudeck.assistant.answers.comparison import differences
from gpudeck.assistant.answers.notes import notes
from gpudeck.assistant.answers.overview import overview
from gpudeck.assistant.answers.steps import chosen, steps_elsewhere, steps_of
from gpudeck.assistant.answers.summary import summary
from gpudeck.assistant.answers.values import facts as facts_of
from gpudeck.assistant.facts import Fact, phrases
from gpudeck.assistant.host.answer_writer import AnswerWriter
from gpudeck.assistant.host.arbiter import Arbitration, ask_model
from gpudeck.assistant.host.context import RequestContext
from gpudeck.assistant.host_protocol import Answer, Approve, Ask, Report
from gpudeck.assistant.idle import Cancelled, wait_until_idle
from gpudeck.assistant.intents.choices import clarifying_question, describe, distinct_choices
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import (
    Understood,
    is_unclear,
    understand,
    understand_as,
)
from gpudeck.assistant.query.execute import execute
from gpudeck.assistant.query.merge import in_tables
from gpudeck.assistant.query.request import Order, Query, Span
from gpudeck.assistant.query.rows import Rows
from gpudeck.assistant.query.table import ROWS, check
from gpudeck.assistant.query.users import people, users_of
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.assistant.reports.contents import compose
from gpudeck.assistant.reports.material import Material, of_job, of_span
from gpudeck.assistant.tools import help_texts, later, quotes
from gpudeck.assistant.tools.clean_up import find_debris
from gpudeck.assistant.tools.code import find_attention
from gpudeck.assistant.tools.permissions import check_permitted
from gpudeck.assistant.tools.proposal import Proposal
from gpudeck.assistant.tools.registry import plan_action
from gpudeck.assistant.tools.reports import RECENT_S, report
from gpudeck.assistant.tools.tool import ToolContext, ToolResult
from gpudeck.assistant.writing.template import render
from gpudeck.assistant.writing.template.sentences import sentence
from gpudeck.assistant.writing.writer import Written
from gpudeck.language import rendering
from gpudeck.language.text import phrase
from gpudeck.language.words import Words, words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

_NAMED_JOBS = 200
"""The newest jobs, whose names a request may mention."""
_CHOSEN, _READ, _EXACT = "your choice", "model request-reader", "exact form"
"""Who read a request."""


class AnswerContext(NamedTuple):
    """Hold what one answer is made from: the source of facts, the writer, and the request's own."""

    daemon: Client
    writer: AnswerWriter
    request: RequestContext


class _Asked(NamedTuple):
    """Hold one question with what it was read as."""

    ask: Ask
    understood: Understood
    tools: ToolContext
    context: AnswerContext
    arbitration: Arbitration | None = None
    """What a language model read, which was asked because the encoder was not sure."""

    @property
    def words(self) -> Words:
        """Return the language of the answer."""
        return self.tools.words


def handle_ask(request: Ask, context: RequestContext) -> Answer:
    """Answer a question, or propose what it asks for.

    Raises Cancelled, NotFound for a job that does not exist, DaemonGone, and UserError.
    """
    return _in_context(request, context, lambda answering: _answer_request(request, answering))


def handle_report(request: Report, context: RequestContext) -> Answer:
    """Write the report that a button or a command asks for. Raises as `handle_ask` does."""

    def write(answering: AnswerContext) -> Answer:
        daemon, since = answering.daemon, request.since
        language = request.language or daemon.snapshot().settings.report_language
        if request.job is not None:
            return _write_report(of_job(daemon, request.job), answering, words(language))
        since = time.time() - RECENT_S if since is None else since
        material = of_span(daemon, since, "daily" if request.daily else "span", request.until)
        return _write_report(material, answering, words(language))

    return _in_context(request, context, write)


def handle_decision(request: Approve, context: RequestContext) -> Answer:
    """Carry out a proposal that a person allowed, or refuse it for good.

    Raises UserError if the proposal has expired, or cannot be carried out any more.
    """
    with Client(start=False) as daemon:
        result = context.proposals.approve(
            daemon, request.proposal, request.how, request.env, request.token
        )
    text = phrases.escaped(result.text, 1000)
    if result.proposal is not None:
        text = f"{text}\n\n{_proposal_text(result.proposal, words('en'))}"
    return Answer(text, "template", result.role, proposal=result.proposal, state=result.state)


def _in_context(
    request: Ask | Report, context: RequestContext, work: Callable[[AnswerContext], Answer]
) -> Answer:
    """Wait for idle devices if asked to, run the work, and sign its answer."""
    began = time.monotonic()
    if isinstance(request, Ask) and request.when == "idle":
        _wait_until_idle(context)
    with Client(start=False) as daemon:
        writer = AnswerWriter(context, daemon.snapshot().settings)
        answer = work(AnswerContext(daemon, writer, context))
    return writer.sign(answer, time.monotonic() - began)


def _wait_until_idle(context: RequestContext) -> None:
    channel = context.channel
    with Client(start=False) as daemon:
        wait_until_idle(
            daemon.subscribe(),
            channel.stop.is_set,
            lambda why: channel.emit_waiting(
                phrase("waiting for idle devices ({why})", why=why), cpu=True
            ),
            channel.use_cpu.is_set,
        )


def _answer_request(ask: Ask, context: AnswerContext) -> Answer:
    channel = context.request.channel
    channel.emit_waiting(phrase("finding out what you ask for"))
    understood, second = _read(ask, context)
    said = words(understood.language)
    tools = ToolContext(
        context.daemon,
        ask.folder or str(Path.home()),
        lambda path: channel.emit_waiting(phrase("searching {path}", path=path)),
        channel.stop.is_set,
        said,
        ask.state.before,
    )
    answer = _respond(_Asked(ask, understood, tools, context, second))
    if second is not None and second.request is None:
        answer = msgspec.structs.replace(answer, text=f"{answer.text}\n\n{_unread(second, said)}")
    state = answer.state or _refused_state(understood.about, ask.state, tools)
    if understood.declined == "talk no":  # what was begun is not gone on with
        state = msgspec.structs.replace(state, order=None)
    state = msgspec.structs.replace(state, before=understood.before or ask.state.before)
    by = _CHOSEN if ask.meant is not None else _EXACT if understood.exact else _READ
    if second is not None and second.request is not None:
        by = f"model {second.model}"
    return msgspec.structs.replace(answer, call=understood.request, routed=by, state=state)


def _refused_state(about: Query | None, before: State, tools: ToolContext) -> State:
    """Return what a conversation is about after a request that was not answered.

    Args:
        about: The jobs or GPUs that the request names.
        before: What the conversation was about until then.
        tools: Where the jobs are looked up.
    """
    state = msgspec.structs.replace(before, language=tools.words.language)
    if about is None:
        return state
    try:
        jobs = _jobs_of(execute(tools.daemon, about)) if about.subject == "jobs" else ()
    except UserError:  # no such job exists, so `it` is none
        jobs = ()
    kind = "job" if jobs else "device" if about.devices else ""
    return State(jobs, about.devices, None, kind, state.language, about.group)


def _unread(second: Arbitration, said: Words) -> str:
    """Say why a language model did not help."""
    problem = phrases.escaped(rendering.render(second.problem, said.language), 300)
    model = phrases.escaped(second.model)
    return said.text("(The model {model} was asked, too: {problem}.)", model=model, problem=problem)


def _read(ask: Ask, context: AnswerContext) -> tuple[Understood, Arbitration | None]:
    """Return what a request is understood as, and what a language model made of an unclear one."""
    if ask.meant is not None:
        if isinstance(ask.meant, Query):
            check(ask.meant)
        return Understood(ask.meant, ask.state.language), None
    known, now = _known(context.daemon), time.time()
    found = understand(ask.text, known, ask.state, now, shipped_reader())
    if not is_unclear(found):
        return found, None
    settings = context.daemon.snapshot().settings
    before = ask.state.order or ask.state.last
    second = ask_model(ask.text, before, context.request, settings)
    if second is None or second.request is None:
        return found, second
    meant = understand_as(second.request, ask.text, known, ask.state, now, shipped_reader())
    return meant, second


def _known(daemon: Client) -> Known:
    """Return the names that a request may mention."""
    newest = daemon.jobs(_NAMED_JOBS)
    tags = tuple({tag: None for job in newest for tag in job.spec.tags})
    shared = any(job.spec.user is not None for job in newest)
    return Known(
        tuple(dict.fromkeys(job.spec.name for job in newest)),
        tuple(state.group.name for state in daemon.groups()),
        tags,
        (*people(), *users_of(newest)),
        getpass.getuser() if shared else "",
        tuple(dict.fromkeys(job.spec.name for job in newest if job.ended is None)),
        sum(state.device.kind != "cpu" for state in daemon.snapshot().devices),
    )


def _respond(asked: _Asked) -> Answer:
    """Answer, propose, ask back, or say what is not understood."""
    understood, said = asked.understood, asked.words
    if understood.declined:
        is_news = understood.declined == "order notify"
        text = _news(asked) if is_news else help_texts.declined(understood.declined, said)
        steps = steps_elsewhere(understood.declined)
        return Answer(text, "template", "answer", steps=steps)
    if understood.refusal is not None:
        begun = understood.begun
        kept = _state_of(begun, (), (), said) if begun is not None else None
        command = later.delayed_command(understood.verb, understood.delayed, asked.tools)
        text = help_texts.refusal(understood.refusal, said, understood.verb, command)
        steps = steps_elsewhere(understood.refusal.problem)
        return Answer(text, "template", "operate", state=kept, steps=steps)
    if understood.choices:
        offered = distinct_choices(understood.choices, said)
        text = clarifying_question(offered, said)
        return Answer(text, "template", "answer", choices=offered)
    request = understood.request
    if request is None:
        quoted = quotes.about(asked.ask.text)
        if quoted is not None:
            return _show(asked, Query("manual", text=asked.ask.text), quoted)
        return Answer(help_texts.not_understood(asked.ask.text, said), "template", "answer")
    try:
        if isinstance(request, Order):
            return (_foretell if understood.plan else _propose)(asked, request)
        return _answer_queries(asked, (request, *understood.also))
    except UserError as e:
        if request.role == "report" or isinstance(e, Cancelled):
            raise
        state = None
        if isinstance(request, Order):
            jobs = tuple(job for job in request.jobs if isinstance(job, int))
            if not jobs:
                jobs = _refused_state(understood.about, asked.ask.state, asked.tools).jobs
            state = _state_of(request, jobs, request.devices, said)
        return Answer(_error_text(e, said), "template", request.role, state=state)


def _news(asked: _Asked) -> str:
    """Say which command tells of the end of the job that a request names, or that `it` is."""
    about, state = asked.understood.about, asked.ask.state
    jobs = about.jobs if about is not None else state.jobs if state.about == "job" else ()
    return later.news(jobs, asked.understood.to, asked.tools)


def _state_of(order: Order, jobs: tuple[int, ...], devices: tuple[int, ...], said: Words) -> State:
    """Return what the conversation is about after an order that concerns jobs and devices."""
    return State(jobs, devices, None, "job" if jobs else "", said.language, order.group, order)


def _propose(asked: _Asked, order: Order) -> Answer:
    daemon, said = asked.context.daemon, asked.words
    check_permitted(daemon, order.name)
    action = plan_action(asked.tools, order)
    asked.context.request.channel.raise_if_cancelled()
    certain = asked.understood.exact and asked.ask.meant is None
    proposal = asked.context.request.proposals.add(
        asked.tools, order, action, certain, asked.ask.by
    )
    text = _understood(asked, _proposal_text(proposal, said))
    state = _state_of(order, action.jobs, (), said)
    return Answer(text, "template", order.role, proposal=proposal, state=state)


def _foretell(asked: _Asked, order: Order) -> Answer:
    """Say what an order would do, without proposing it."""
    action = plan_action(asked.tools, order)
    said = asked.words
    title, effect = phrases.escaped(action.title, 3000), phrases.escaped(action.effect, 9000)
    text = f"{title}: {effect} {said.text('Nothing was changed.')}"
    state = None
    if action.jobs:
        planned = action.order or order
        state = State(action.jobs, about="job", language=said.language, planned=planned)
    return Answer(_understood(asked, text), "template", "answer", state=state)


def _answer_queries(asked: _Asked, queries: Sequence[Query]) -> Answer:
    """Answer questions that are asked at once, one after the other."""
    daemon = asked.context.daemon
    if len(queries) == 1:
        return _answer_query(asked, queries[0])
    found = in_tables(queries, lambda each: execute(daemon, each))
    plain = asked.understood._replace(resolved=(), guessed=False, unread=(), left=())
    before = asked._replace(understood=plain)  # what was understood is told once, at the end
    answers = [
        _answer_query(asked if at == len(found) else before, query, rows)
        for at, (query, rows) in enumerate(found, 1)
    ]
    last = answers[-1]
    facts = tuple(fact for answer in answers for fact in answer.facts)
    steps = chosen(step for answer in answers for step in answer.steps)
    parts = [part for answer in answers for part in answer.text.split("\n\n")]
    text = "\n\n".join(dict.fromkeys(parts))  # what two answers say is said once
    return msgspec.structs.replace(last, text=text, facts=facts, steps=steps)


def _answer_query(asked: _Asked, query: Query, rows: Rows | None = None) -> Answer:
    """Answer a query by its rows, which may be known, or by what quotes, searches or reports."""
    said, channel = asked.words, asked.context.request.channel
    if query.subject in ROWS:
        rows = rows if rows is not None else execute(asked.context.daemon, query)
        channel.raise_if_cancelled()
        text = _understood(asked, worded(query, rows, said))
        told = [*notes(query, rows, said), *(differences(rows, said) if query.other else [])]
        facts = facts_of(rows, said, told)
        state = _state(asked, query, rows)
        return Answer(text, "template", "answer", facts, state=state, steps=steps_of(rows))
    match query.subject:
        case "overview":
            daemon = asked.context.daemon
            now = time.time()
            text, facts, steps = overview(query, lambda each: execute(daemon, each), now, said)
            return Answer(_understood(asked, text), "template", "answer", facts, steps=steps)
        case "help":
            return Answer(help_texts.abilities(said), "template", "answer")
        case "report":
            material = report(asked.tools, query)
            answer = _write_report(material, asked.context, said)
            short, facts = _summary(query, material, asked.context, said)
            text = _understood(asked, short.text)
            answer = msgspec.structs.replace(answer, text=text, facts=facts, writer="template")
            state = State((), (), query, language=said.language)
            return msgspec.structs.replace(answer, state=state)
        case "debris":
            return _show(asked, query, find_debris(asked.tools, query))
        case "logs":
            return _show(asked, query, quotes.logs(asked.tools, query))
        case "code":
            return _show(asked, query, find_attention(asked.tools, query))
    return _show(asked, query, quotes.manual(asked.tools, query))


def _show(asked: _Asked, query: Query, result: ToolResult) -> Answer:
    """Word the facts of a tool, with the action that follows from them if there is one."""
    text = _understood(asked, render(result.facts, result.render))
    answer = Answer(
        text, "template", query.role, result.facts, code=result.folder, steps=result.steps
    )
    if result.action is None:
        return answer
    try:
        proposals = asked.context.request.proposals
        proposal = proposals.add(asked.tools, query, result.action, certain=False, by=asked.ask.by)
    except UserError as e:
        return msgspec.structs.replace(answer, text=f"{text}\n\n{_error_text(e, asked.words)}")
    text = f"{text}\n\n{_proposal_text(proposal, asked.words)}"
    return msgspec.structs.replace(answer, text=text, proposal=proposal)


def _understood(asked: _Asked, text: str) -> str:
    """Return an answer with what pronouns stood for, and with the words that it leaves out."""
    understood, said = asked.understood, asked.words
    parts: list[str] = []
    if understood.resolved:
        named = said.listed(understood.resolved)
        parts.append(said.text("({what}, from your last request)", what=phrases.escaped(named)))
    request = understood.request
    if understood.guessed and request is not None and request.name != "answer manual":
        meant = phrases.escaped(describe(request, said))
        if (second := asked.arbitration) is not None:
            model = phrases.escaped(second.model)
            parts.append(said.text("(The model {model} read this as: {meant})", model=model,
                                   meant=meant))  # fmt: skip
        else:
            parts.append(said.text("(I read this as: {meant})", meant=meant))
    if understood.unread:
        parts.append(help_texts.left_out(understood.unread, said))
    if understood.left:
        parts += help_texts.without(understood.left, said)
    return "\n\n".join([text, *parts])


def _state(asked: _Asked, query: Query, rows: Rows) -> State:
    """Return what the conversation is about after an answer."""
    jobs = _jobs_of(rows)
    devices = query.devices
    if rows.subject == "devices" and not devices:
        best = [row for row in rows.rows if row.key == rows.best] if rows.best else []
        numbers = [row.label.removeprefix("GPU ") for row in best]
        devices = tuple(int(number) for number in numbers if number.isdecimal())
    about = "job" if jobs else "device" if devices else ""
    before = asked.ask.state
    earlier = tuple(index for index in before.devices if index not in devices)
    if devices == before.devices:
        earlier = before.earlier
    return State(jobs, devices, query, about, asked.words.language, query.group, None, earlier)


def _jobs_of(rows: Rows) -> tuple[int, ...]:
    """Return the numbers of the jobs that rows are about."""
    keys = (row.key.removeprefix("job") for row in rows.rows if row.key.startswith("job"))
    return tuple(int(key) for key in keys if key.isdecimal())


def _write_report(material: Material, context: AnswerContext, said: Words) -> Answer:
    """Write a report; in other languages than English it begins with a summary by templates."""
    if said.language == "en":
        written, facts = context.writer.write(material.facts)
    else:
        jobs = tuple(job.id for job in material.jobs) if material.kind == "job" else ()
        written, more = _summary(Query("report", jobs=jobs), material, context, said)
        facts = (*material.facts, *more)
    full = compose(replace(material, facts=facts), written, said)
    return Answer(written.text, written.writer, "report", facts, report=full)


def _summary(
    query: Query, material: Material, context: AnswerContext, said: Words
) -> tuple[Written, tuple[Fact, ...]]:
    span = query.time or Span(material.since, material.until)
    when, text, facts = summary(query, lambda each: execute(context.daemon, each), span, said)
    dated = "\n\n".join(filter(None, (when, text)))
    return Written(dated, "template", text), facts


def _error_text(error: UserError, said: Words) -> str:
    return sentence(phrases.escaped(rendering.render(error.message, said.language), 1000))


def _proposal_text(proposal: Proposal, said: Words) -> str:
    title, effect = phrases.escaped(proposal.title, 3000), phrases.escaped(proposal.effect, 9000)
    return f"**{title}?** {effect} {said.text('Nothing is done before you allow it.')}"
